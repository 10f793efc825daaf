"""`cross_entropy`: the classification loss, fast in every layout."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mgrade.ops._backend import choose, implementation, implements, like_result, refuse_second

# More classes than this are left to PyTorch.
MAX_FUSED = 256

torch.library.define("mgrade::cross_entropy", "(Tensor logits, Tensor target) -> (Tensor, Tensor)")


def cross_entropy(logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean over all targets of -log softmax(logits)[target], with one weight per class if given.

    logits (…, classes), target (…), each from 0 to classes - 1. For other targets a CPU raises an IndexError or a
    RuntimeError; CUDA cannot, and the loss is NaN there. Otherwise as `torch.nn.functional.cross_entropy`, which on
    CUDA reduces many targets in a single block and copies logits that are not contiguous.
    """
    if logits.shape[:-1] != target.shape:
        raise ValueError(f"target must have shape {tuple(logits.shape[:-1])}, got {tuple(target.shape)}")
    fits = logits.dim() == 3 and logits.shape[-1] <= MAX_FUSED and logits.numel() > 0
    if weight is None and fits and choose("auto", logits) == "triton":
        return torch.ops.mgrade.cross_entropy(logits, target)[0]
    wide = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    surprise = torch.logsumexp(wide, -1) - wide.gather(-1, target[..., None])[..., 0]
    if weight is None:
        return surprise.mean()
    each = weight[target]
    return (each * surprise).sum() / each.sum()


@implements("mgrade::cross_entropy")
def _forward(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The loss and its gradient, which is nearly free while the logits are at hand."""
    return implementation("cross_entropy", "triton").forward(logits, target)


@torch.library.register_fake("mgrade::cross_entropy")
def _fake(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    return logits.new_empty((), dtype=torch.float32), like_result(logits, "triton")


def _setup(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])
    ctx.set_materialize_grads(False)


def _autograd(ctx: Any, grad: Tensor | None, twice: Tensor | None) -> tuple[Tensor | None, None]:
    if twice is not None:
        refuse_second("mgrade::cross_entropy")
    if grad is None:
        return None, None
    (slope,) = ctx.saved_tensors
    return slope * grad.to(slope.dtype), None


torch.library.register_autograd("mgrade::cross_entropy", _autograd, setup_context=_setup)
