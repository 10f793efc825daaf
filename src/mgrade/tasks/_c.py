"""The C generators, called through ctypes; the library exists if a compiler was present at installation."""

from __future__ import annotations

import ctypes
from pathlib import Path

from mgrade._library import load_library

_POINTER, _INT64, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
# The arguments of every function; all return 0 on success.
_SIGNATURES = {
    "mgrade_pathfinder": (_POINTER, ctypes.c_uint64, _INT64, _INT64, _INT, _POINTER, _POINTER, _POINTER),
    "mgrade_pathfinder_paddle": (_POINTER, _INT, ctypes.c_double, _POINTER, _POINTER),
    "mgrade_png_unfilter": (_POINTER, _INT64, _INT64, _POINTER),
}


def _declare(lib: ctypes.CDLL) -> None:
    for name, kinds in _SIGNATURES.items():
        function = getattr(lib, name)
        function.argtypes = kinds
        function.restype = _INT


# The shared library, or None if it was not built.
LIBRARY = load_library(Path(__file__).parent, "_generators", _declare)
