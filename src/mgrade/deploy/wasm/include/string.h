/* All that the runtime asks of a C library, as the compiler's own: WebAssembly has instructions for it. */
#ifndef MGRADE_STRING_H
#define MGRADE_STRING_H

#define memcpy __builtin_memcpy
#define memset __builtin_memset

#endif
