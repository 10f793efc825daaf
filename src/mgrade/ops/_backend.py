"""Which implementation serves a call."""

from __future__ import annotations

import functools
import importlib.util
import os

import torch
from torch import Tensor

from mgrade.ops import _c

BACKENDS = ("auto", "reference", "c", "triton")
C_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128)
TRITON_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@functools.cache
def triton_interpreted() -> bool:
    """Whether Triton kernels run on the CPU through Triton's interpreter (`TRITON_INTERPRET=1`)."""
    return os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton") is not None


@functools.cache
def available() -> tuple[str, ...]:
    """The backends that can run on this machine, the reference first."""
    found = ["reference"]
    if _c.library() is not None:
        found.append("c")
    if triton_interpreted() or (torch.cuda.is_available() and importlib.util.find_spec("triton") is not None):
        found.append("triton")
    return tuple(found)


def choose(backend: str, tensor: Tensor, has_triton: bool = True) -> str:
    """The backend for `tensor`: the one asked for, or for `auto` the fastest that takes its device and dtype."""
    device = tensor.device.type
    fits = {
        "reference": True,
        "c": device == "cpu" and tensor.dtype in C_DTYPES,
        "triton": has_triton
        and tensor.dtype in TRITON_DTYPES
        and (device == "cuda" or (device == "cpu" and triton_interpreted())),
    }
    if backend == "auto":
        fast = "triton" if device == "cuda" else "c"
        return fast if fits[fast] and fast in available() else "reference"
    if backend not in fits:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    if backend not in available():
        raise ValueError(f"backend {backend!r} is not available here; available: {', '.join(available())}")
    if not fits[backend]:
        raise ValueError(f"backend {backend!r} does not take {tensor.dtype} tensors on {device}")
    return backend


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The dtype that sums and states are kept in: float32 for half and bfloat16, else the dtype itself."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
