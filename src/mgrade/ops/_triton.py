"""What the Triton versions share.

Inside them time is contiguous: tensors are (batch, channels, time), because both a filter and a scan run along time.
Outside they are (batch, time, channels) as everywhere; `time_last` and `time_first` go between the two without
copying a tensor that is laid out so already, and results come back as views of time-contiguous memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mgrade.ops._backend import TRITON_INTERPRETED


def time_last(x: Tensor) -> Tensor:
    """(batch, time, channels) -> (batch, channels, time) with time contiguous."""
    swapped = x.transpose(1, 2)
    return swapped if swapped.stride(2) == 1 or swapped.shape[2] == 1 else swapped.contiguous()


def empty_time_last(batch: int, time: int, channels: int, like: Tensor) -> Tensor:
    """An uninitialised (batch, channels, time)."""
    return torch.empty(batch, channels, time, dtype=like.dtype, device=like.device)


def time_first(x: Tensor) -> Tensor:
    """(batch, channels, time) -> a view (batch, time, channels)."""
    return x.transpose(1, 2)


def dense(tensor: Tensor | None) -> Tensor | None:
    """`tensor` without gaps, or None."""
    return None if tensor is None else tensor.contiguous()


def dot_precision() -> str:
    """How float32 matrix products are computed: as `torch.set_float32_matmul_precision` says."""
    exact = TRITON_INTERPRETED or torch.get_float32_matmul_precision() == "highest"
    return "ieee" if exact else "tf32"
