"""`layer_norm`: the norm over the channels, in the layout of its input, with the dropout and skip that may follow.

On CUDA, activations have contiguous time, and this keeps it. Elsewhere it is `torch.nn.functional.layer_norm`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mgrade.ops._backend import choose, first_only, implementation, implements, is_autocast, like_result
from mgrade.ops.dropout import dropout as drop
from mgrade.ops.dropout import kept

# Wider layers do not fit on chip and are left to PyTorch.
MAX_FUSED = 512

torch.library.define(
    "mgrade::layer_norm",
    "(Tensor x, Tensor? scale, Tensor? shift, Tensor? base, Tensor? keep, float gain, float eps) -> Tensor",
)
torch.library.define(
    "mgrade::layer_norm_backward",
    "(Tensor grad, Tensor x, Tensor? scale, Tensor? keep, float gain, bool sums, float eps) -> (Tensor, Tensor)",
)


def layer_norm(
    x: Tensor,
    scale: Tensor | None,
    shift: Tensor | None,
    eps: float = 1e-5,
    base: Tensor | None = None,
    dropout: float = 0.0,
    whole: bool = False,
) -> Tensor:
    """Layer norm over the channels in the type of x, where autocast would return float32.

    `dropout` is the share of the result dropped at random: single values, or channels for the whole sequence if
    `whole`. Then it is added to `base`, if given.
    """
    alike = base is None or base.dtype == x.dtype
    if x.dim() == 3 and x.shape[2] <= MAX_FUSED and not x.is_complex() and alike and choose("auto", x) == "triton":
        keep = kept(x, dropout, whole) if dropout else None
        return torch.ops.mgrade.layer_norm(x, scale, shift, base, keep, 1 / (1 - dropout), eps)
    if is_autocast(x):
        with torch.autocast(x.device.type, enabled=False):
            scale, shift = (None if p is None else p.to(x.dtype) for p in (scale, shift))
            y = F.layer_norm(x, x.shape[-1:], scale, shift, eps)
    else:
        y = F.layer_norm(x, x.shape[-1:], scale, shift, eps)
    if dropout:
        return drop(y, dropout, whole, base)
    return y if base is None else base + y


@implements("mgrade::layer_norm")
def _forward(*arguments: Any) -> Tensor:
    return implementation("layer_norm", "triton").forward(*arguments)


@implements("mgrade::layer_norm_backward")
def _backward(*arguments: Any) -> tuple[Tensor, Tensor]:
    """The gradient of x, and with `sums` those of scale and shift, (2, channels) in float32 (else empty)."""
    return implementation("layer_norm", "triton").backward(*arguments)


@torch.library.register_fake("mgrade::layer_norm")
def _fake_forward(x: Tensor, *_: Any) -> Tensor:
    return like_result(x, "triton")


@torch.library.register_fake("mgrade::layer_norm_backward")
def _fake_backward(
    grad: Tensor, x: Tensor, scale: Tensor | None, keep: Tensor | None, gain: float, sums: bool, eps: float
) -> tuple[Tensor, Tensor]:
    return like_result(x, "triton"), x.new_empty(2 if sums else 0, x.shape[2], dtype=torch.float32)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, scale, shift, _, keep, ctx.gain, ctx.eps = inputs
    ctx.save_for_backward(x, scale, keep)
    ctx.dtypes = tuple(None if p is None else p.dtype for p in (scale, shift))


def _autograd(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, scale, keep = ctx.saved_tensors
    sums = any(ctx.needs_input_grad[1:3])
    to_x, to_both = torch.ops.mgrade.layer_norm_backward(grad, x, scale, keep, ctx.gain, sums, ctx.eps)
    to_scale = to_shift = None
    if sums:
        to_scale, to_shift = (None if dtype is None else to_both[i].to(dtype) for i, dtype in enumerate(ctx.dtypes))
    return to_x, to_scale, to_shift, grad if ctx.needs_input_grad[3] else None, None, None, None


torch.library.register_autograd("mgrade::layer_norm", _autograd, setup_context=_setup)
first_only("mgrade::layer_norm_backward")
