"""`linear`: the mixing of channels, in whatever layout its input has.

On CUDA, activations keep time contiguous, and so does the product with them: W @ x per batch row. Elsewhere this is
`torch.nn.functional.linear`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mgrade.ops._backend import choose, like_result

torch.library.define("mgrade::linear", "(Tensor x, Tensor weight) -> Tensor")
torch.library.define("mgrade::linear_backward", "(Tensor grad, Tensor x, Tensor weight) -> (Tensor, Tensor)")


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (batch, time, inputs) and weight (outputs, inputs) -> (batch, time, outputs)."""
    if x.dim() != 3 or x.dtype != weight.dtype or choose("auto", x) != "triton":
        return F.linear(x, weight, bias)
    y: Tensor = torch.ops.mgrade.linear(x, weight)
    return y if bias is None else y + bias


@torch.library.impl("mgrade::linear", "default")
def _forward(x: Tensor, weight: Tensor) -> Tensor:
    from mgrade.ops.linear import triton

    return triton.forward(x, weight)


@torch.library.impl("mgrade::linear_backward", "default")
def _backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    from mgrade.ops.linear import triton

    return triton.backward(grad, x, weight)


@torch.library.register_fake("mgrade::linear")
def _fake_forward(x: Tensor, weight: Tensor) -> Tensor:
    return like_result(x.new_empty(1, 1, 1).expand(*x.shape[:2], weight.shape[0]), "triton")


@torch.library.register_fake("mgrade::linear_backward")
def _fake_backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return like_result(x, "triton"), torch.empty_like(weight)


def _setup(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _autograd(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    return torch.ops.mgrade.linear_backward(grad, *ctx.saved_tensors)


torch.library.register_autograd("mgrade::linear", _autograd, setup_context=_setup)
