"""Which implementation serves a call."""

from __future__ import annotations

import importlib.util
import os

import torch
from torch import Tensor

from mgrade.ops import _c

BACKENDS = ("auto", "reference", "c", "triton")
C_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128)
TRITON_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.complex64)


HAS_C = _c.LIBRARY is not None
HAS_TRITON = importlib.util.find_spec("triton") is not None
# Triton kernels can also run on the CPU, slowly, through Triton's interpreter: that is how they are tested there.
TRITON_INTERPRETED = HAS_TRITON and os.environ.get("TRITON_INTERPRET") == "1"


def available() -> tuple[str, ...]:
    """The backends that can run on this machine, the reference first."""
    triton = TRITON_INTERPRETED or (HAS_TRITON and torch.cuda.is_available())
    return ("reference", *("c",) * HAS_C, *("triton",) * triton)


def choose(backend: str, tensor: Tensor) -> str:
    """The backend for `tensor`: the one asked for, or for `auto` the fastest that takes its device and dtype."""
    device = tensor.device.type
    fits = {
        "reference": True,
        "c": HAS_C and device == "cpu" and tensor.dtype in C_DTYPES,
        "triton": HAS_TRITON
        and tensor.dtype in TRITON_DTYPES
        and (device == "cuda" or (device == "cpu" and TRITON_INTERPRETED)),
    }
    if backend == "auto":
        fast = "triton" if device == "cuda" else "c"
        return fast if fits[fast] else "reference"
    if backend not in fits:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    if not fits[backend]:
        raise ValueError(
            f"backend {backend!r} cannot run {tensor.dtype} tensors on {device} here;"
            f" available: {', '.join(available())}"
        )
    return backend


def is_one_step(x: Tensor) -> bool:
    """Whether x (batch, time, channels) is a step of a stream on a CPU, of which launching takes longer than computing.

    A few calls of PyTorch serve it best, without the operators that a gradient or a tracer would see.
    """
    return (
        x.shape[1] == 1
        and x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.float64)
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


def channels_last(*tensors: Tensor) -> bool:
    """Whether all of these (batch, time, channels) keep their channels contiguous, and not time."""
    return all(x.stride(2) == 1 and x.stride(1) != 1 and x.shape[1] != 1 for x in tensors)


def like_result(x: Tensor, backend: str, across: bool = False) -> Tensor:
    """An uninitialised (batch, time, channels) laid out as `backend` returns it.

    Triton keeps time contiguous, except in kernels that work `across` contiguous channels as well.
    """
    if backend == "triton" and not across:
        batch, time, channels = x.shape
        return x.new_empty(batch, channels, time).transpose(1, 2)
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The dtype that sums and states are kept in: float32 for half and bfloat16, else the dtype itself."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
