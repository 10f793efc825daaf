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
    if x.dim() != 3 or choose("auto", x) != "triton":
        return F.linear(x, weight, bias)
    y: Tensor = torch.ops.mgrade.linear(x, weight)
    return y if bias is None else y + bias.to(y.dtype)


def product(x: Tensor, weight: Tensor, backend: str) -> Tensor:
    """x @ weight^T, laid out as `backend` likes it: (batch, time, inputs) -> (batch, time, outputs)."""
    if backend == "triton":
        from mgrade.ops.linear import triton

        return triton.product(x, weight)
    return F.linear(x, weight)


def add_product(base: Tensor | None, grad: Tensor, weight: Tensor, backend: str) -> Tensor:
    """base + grad @ weight, the way back through `product`: (batch, time, outputs) -> (batch, time, inputs)."""
    if backend == "triton":
        from mgrade.ops.linear import triton

        return triton.product(grad, weight.t(), base)
    back = grad.flatten(0, 1) @ weight
    back = back if base is None else back.add_(base.flatten(0, 1))
    return back.unflatten(0, grad.shape[:2])


def outer_product(grad: Tensor, x: Tensor, backend: str) -> Tensor:
    """The gradient of `weight` in `product`: the sum over batch and time of grad x^T, (outputs, inputs)."""
    if backend == "triton":
        from mgrade.ops.linear import triton

        return triton.outer(grad, x)[0]
    return grad.flatten(0, 1).t() @ x.flatten(0, 1)


@torch.library.impl("mgrade::linear", "default")
def _forward(x: Tensor, weight: Tensor) -> Tensor:
    return product(x, weight, "triton")


@torch.library.impl("mgrade::linear_backward", "default")
def _backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return add_product(None, grad, weight, "triton"), outer_product(grad, x, "triton").to(weight.dtype)


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
