"""Memory between training steps on a CPU."""

from __future__ import annotations

import ctypes

# glibc's names for what `mallopt` sets, and the largest value that it takes.
_TRIM_THRESHOLD, _MMAP_MAX, _MOST = -1, -4, 2**31 - 1


def keep_memory() -> bool:
    """Makes this process keep the memory it frees; whether that could be had (of glibc alone).

    Every training step frees its activations, and the next one needs as much again. Given back in between, they come as
    fresh pages, whose first touch costs more than a pass over them. For a process whose business is training.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):
        return False
    return bool(mallopt(_MMAP_MAX, 0) and mallopt(_TRIM_THRESHOLD, _MOST))
