"""The C generators: found beside this file if a compiler was there at installation, called through ctypes."""

from __future__ import annotations

import ctypes
from pathlib import Path

_POINTER, _INT64, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
# The arguments of every function; all return 0 if all went well.
_SIGNATURES = {
    "mgrade_pathfinder": (_POINTER, ctypes.c_uint64, _INT64, _INT64, _INT, _POINTER, _POINTER, _POINTER),
    "mgrade_pathfinder_paddle": (_POINTER, _INT, ctypes.c_double, _POINTER, _POINTER),
    "mgrade_png_unfilter": (_POINTER, _INT64, _INT64, _POINTER),
}


def _load() -> ctypes.CDLL | None:
    for path in sorted(Path(__file__).parent.glob("_generators*")):
        if path.suffix in (".so", ".pyd", ".dylib"):
            try:
                return _declare(ctypes.CDLL(str(path)))
            except (OSError, AttributeError):  # built for another machine, or by another version
                continue
    return None


def _declare(lib: ctypes.CDLL) -> ctypes.CDLL:
    for name, kinds in _SIGNATURES.items():
        function = getattr(lib, name)
        function.argtypes = kinds
        function.restype = _INT
    return lib


# The shared library, or None where it was not built.
LIBRARY = _load()
