"""Argument checks: one line that names the argument, what it is and what it must be."""

from __future__ import annotations

import torch
from torch import Tensor

from mgrade.ops._backend import is_recorded, is_transformed

NARROWEST = 1e-30
"""The smallest `sigma`: below it, sigma or the distances divided by it overflow or underflow in float32."""


def floating(name: str, tensor: Tensor, shape: tuple[int | None, ...], layout: str) -> None:
    """Refuses a tensor that is not floating point or does not have `shape` (None: any size)."""
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} must be a tensor {layout}, got {type(tensor).__name__}")
    if not tensor.is_floating_point():
        raise ValueError(f"{name} must be a floating-point tensor, got {tensor.dtype}")
    has_shape(name, tensor, shape, layout)


def has_shape(name: str, tensor: Tensor, shape: tuple[int | None, ...], layout: str) -> None:
    """Refuses a tensor whose shape is not `shape` (None: any size)."""
    actual = tuple(tensor.shape)
    fits = len(actual) == len(shape)
    if fits and actual != shape:
        for want, got in zip(shape, actual, strict=True):
            fits = fits and (want is None or want == got)
    if not fits:
        want_all = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} must have shape {layout} = ({want_all}), got {actual}")


def channels(x: Tensor, count: int) -> None:
    """Refuses an input (batch, time, channels) of a module that has another number of channels."""
    if x.dim() == 3 and x.shape[2] != count:
        raise ValueError(f"x must have {count} channels, got {x.shape[2]}: shape {tuple(x.shape)}")


def same_dtype(name: str, tensor: Tensor, other: str, dtype: torch.dtype) -> None:
    """Refuses a tensor whose dtype differs from that of another argument."""
    if tensor.dtype != dtype:
        raise ValueError(f"{name} must have the dtype of {other}, {dtype}, got {tensor.dtype}")


def reset_mask(reset: Tensor | None, batch: int, time: int) -> None:
    """Refuses a `reset` that is not a boolean (batch, time) mask."""
    if reset is None:
        return
    if not isinstance(reset, Tensor) or reset.dtype != torch.bool:
        kind = reset.dtype if isinstance(reset, Tensor) else type(reset).__name__
        raise ValueError(f"reset must be a boolean tensor (batch, time), got {kind}")
    has_shape("reset", reset, (batch, time), "(batch, time)")


def row_lengths(lengths: Tensor | None, batch: int, time: int) -> None:
    """Refuses `lengths` that are not one whole number per row, from 0 to `time`."""
    if lengths is None:
        return
    if not isinstance(lengths, Tensor) or lengths.dtype not in (torch.int32, torch.int64):
        kind = lengths.dtype if isinstance(lengths, Tensor) else type(lengths).__name__
        raise ValueError(f"lengths must be an int32 or int64 tensor (batch), got {kind}")
    has_shape("lengths", lengths, (batch,), "(batch)")
    if batch and values_visible(lengths):
        low, high = (int(end) for end in torch.aminmax(lengths))
        if low < 0 or high > time:
            raise ValueError(f"lengths must lie within 0 and {time} steps, got {low if low < 0 else high}")


def values_visible(tensor: Tensor) -> bool:
    """Whether reading values is cheap and allowed: on the CPU, outside tracing. On CUDA it would stall the device."""
    return tensor.is_cpu and not is_recorded() and not is_transformed()
