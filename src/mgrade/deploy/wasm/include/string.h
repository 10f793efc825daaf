/* All that the runtime needs of a C library, as compiler built-ins: WebAssembly has instructions for them. */
#ifndef MGRADE_STRING_H
#define MGRADE_STRING_H

#define memcpy __builtin_memcpy
#define memset __builtin_memset

#endif
