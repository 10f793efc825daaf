"""Shared libraries of C code, loaded with ctypes; they exist if a compiler was present at installation."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path


def load_library(folder: Path, name: str, declare: Callable[[ctypes.CDLL], None]) -> ctypes.CDLL | None:
    """The library `name` in `folder`, its functions declared by `declare`; None if it was not built."""
    for path in sorted(folder.glob(f"{name}*")):
        if path.suffix in (".so", ".pyd", ".dylib"):
            try:
                library = ctypes.CDLL(str(path))
                declare(library)
            except (OSError, AttributeError):  # built for another machine, or by another version
                continue
            return library
    return None
