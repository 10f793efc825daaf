"""`dropout`: drops single values or whole channels at random in training, and adds the skip that follows."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mgrade.ops._backend import choose, implementation, implements, like_result

torch.library.define("mgrade::dropout", "(Tensor x, Tensor keep, Tensor? base, float gain) -> Tensor")


def dropout(x: Tensor, share: float, whole: bool = False, base: Tensor | None = None) -> Tensor:
    """Drops `share` of the values of x (batch, time, dim), or whole channels if `whole`, and scales the rest.

    The result is added to `base`, if given.
    """
    alike = base is None or base.dtype == x.dtype
    if alike and choose("auto", x) == "triton":
        return torch.ops.mgrade.dropout(x, kept(x, share, whole), base, 1 / (1 - share))
    if whole:
        y = x * F.dropout(x.new_ones(x.shape[0], 1, x.shape[2]), share)
    elif x.stride(2) == 1:
        y = F.dropout(x, share)
    else:  # in memory order, which is faster
        y = F.dropout(x.transpose(1, 2), share).transpose(1, 2)
    return y if base is None else base + y


def kept(x: Tensor, share: float, whole: bool = False) -> Tensor:
    """A random mask for `dropout`: 1 to keep, 0 to drop, (batch, time or 1, dim) with time contiguous."""
    batch, time, dim = x.shape
    mask = torch.empty(batch, dim, 1 if whole else time, dtype=torch.uint8, device=x.device)
    return mask.bernoulli_(1 - share).transpose(1, 2)


@implements("mgrade::dropout")
def _forward(x: Tensor, keep: Tensor, base: Tensor | None, gain: float) -> Tensor:
    return implementation("dropout", "triton").forward(x, keep, base, gain)


@torch.library.register_fake("mgrade::dropout")
def _fake_forward(x: Tensor, keep: Tensor, base: Tensor | None, gain: float) -> Tensor:
    return like_result(x, "triton")


def _setup(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None, float], output: Tensor) -> None:
    _, keep, _, ctx.gain = inputs
    ctx.save_for_backward(keep)


def _autograd(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (keep,) = ctx.saved_tensors
    to_x = torch.ops.mgrade.dropout(grad, keep, None, ctx.gain)
    return to_x, None, grad if ctx.needs_input_grad[2] else None, None


torch.library.register_autograd("mgrade::dropout", _autograd, setup_context=_setup)
