"""`linear`: a linear layer that keeps the layout of its input.

On CUDA, activations have contiguous time, and the product keeps it: W @ x per batch row. Elsewhere this is
`torch.nn.functional.linear`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mgrade.ops import _check
from mgrade.ops._backend import accumulator, choose, first_only, implementation, implements, like_result
from mgrade.ops.linear import c

torch.library.define("mgrade::linear", "(Tensor x, Tensor weight, Tensor? bias, Tensor? base, Tensor? gain) -> Tensor")
torch.library.define(
    "mgrade::linear_backward",
    "(Tensor grad, Tensor x, Tensor weight, Tensor? base, Tensor? gain, bool to_x, bool to_bias)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, base: Tensor | None = None, gain: Tensor | None = None
) -> Tensor:
    """base + weight @ x + bias: x (batch, time, inputs), weight (outputs, inputs) -> (batch, time, outputs).

    With `gain` (outputs), `base` is multiplied by it, channel by channel.
    """
    if x.dim() != 3 or x.is_complex() or choose("auto", x) != "triton":
        y = F.linear(x, weight, bias)
        if base is None:
            return y
        return base + y if gain is None else torch.addcmul(y, gain.to(base.dtype), base)
    _check.has_shape("weight", weight, (None, x.shape[2]), "(outputs, inputs)")
    if bias is not None:
        _check.has_shape("bias", bias, (weight.shape[0],), "(outputs)")
    return torch.ops.mgrade.linear(x, weight, bias, base, None if base is None else gain)


def product(x: Tensor, weight: Tensor, backend: str) -> Tensor:
    """x @ weight^T in the layout of `backend`: (batch, time, inputs) -> (batch, time, outputs)."""
    if backend == "triton":
        return implementation("linear", "triton").product(x, weight)
    if backend == "c" and x.dtype in c.TYPES:
        return c.product(x, weight.t())
    return torch.mm(x.flatten(0, 1), weight.to(x.dtype).t()).unflatten(0, x.shape[:2])


def add_product(base: Tensor | None, grad: Tensor, weight: Tensor, backend: str) -> Tensor:
    """base + grad @ weight, the gradient of x in `product`: (batch, time, outputs) -> (batch, time, inputs)."""
    if backend == "triton":
        return implementation("linear", "triton").product(grad, weight.t(), base)
    if backend == "c" and grad.dtype in c.TYPES:
        return c.product(grad, weight, base)
    y = torch.mm(grad.flatten(0, 1), weight.to(grad.dtype)).unflatten(0, grad.shape[:2])
    return y if base is None else y.add_(base)


def outer_product(grad: Tensor, x: Tensor, backend: str) -> Tensor:
    """The gradient of `weight` in `product`: the sum over batch and time of grad x^T, (outputs, inputs)."""
    if backend == "triton":
        return implementation("linear", "triton").outer(grad, x)
    grad, x = grad.to(accumulator(x.dtype)), x.to(accumulator(x.dtype))
    if backend == "c" and grad.shape[2] * x.shape[2] <= c.MAX_SUMS:
        return c.outer(grad, x)
    if grad.shape[1] >= grad.shape[2]:  # row by row it runs in parallel
        return torch.bmm(grad.transpose(1, 2), x).sum(0)
    return grad.flatten(0, 1).t() @ x.flatten(0, 1)


@implements("mgrade::linear")
def _forward(x: Tensor, weight: Tensor, bias: Tensor | None, base: Tensor | None, gain: Tensor | None) -> Tensor:
    return implementation("linear", "triton").product(x, weight, base, bias, gain)


@implements("mgrade::linear_backward")
def _backward(
    grad: Tensor, x: Tensor, weight: Tensor, base: Tensor | None, gain: Tensor | None, to_x: bool, to_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of x (empty unless `to_x`), of weight and bias (flat, bias only if `to_bias`), and of base and gain
    (empty without a gain)."""
    triton = implementation("linear", "triton")
    grad = triton.along_time(grad)
    grad_x = add_product(None, grad, weight, "triton") if to_x else grad.new_empty(0)
    flat = triton.outer(grad, x, sums=to_bias).flatten().to(weight.dtype)
    if base is None or gain is None:
        return grad_x, flat, grad.new_empty(0), grad.new_empty(0)
    return grad_x, flat, *triton.scaled_backward(grad, base, gain)


@torch.library.register_fake("mgrade::linear")
def _fake_forward(x: Tensor, weight: Tensor, bias: Tensor | None, base: Tensor | None, gain: Tensor | None) -> Tensor:
    return like_result(x.new_empty(1, 1, 1).expand(*x.shape[:2], weight.shape[0]), "triton")


@torch.library.register_fake("mgrade::linear_backward")
def _fake_backward(
    grad: Tensor, x: Tensor, weight: Tensor, base: Tensor | None, gain: Tensor | None, to_x: bool, to_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grad_x = like_result(x, "triton") if to_x else grad.new_empty(0)
    flat = weight.new_empty(weight.numel() + (weight.shape[0] if to_bias else 0))
    if base is None or gain is None:
        return grad_x, flat, grad.new_empty(0), grad.new_empty(0)
    return grad_x, flat, like_result(base, "triton"), torch.empty_like(gain)


def _setup(
    ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None], output: Tensor
) -> None:
    x, weight, bias, base, gain = inputs
    ctx.save_for_backward(x, weight, None if gain is None else base, gain)
    ctx.has_bias, ctx.base = bias is not None, None if base is None else base.dtype


def _autograd(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, base, gain = ctx.saved_tensors
    wanted = ctx.needs_input_grad[0]
    to_x, flat, to_base, to_gain = torch.ops.mgrade.linear_backward(grad, x, weight, base, gain, wanted, ctx.has_bias)
    if gain is None:
        to_base, to_gain = None if ctx.base is None else grad.to(ctx.base), None
    return (
        to_x if wanted else None,
        flat[: weight.numel()].view_as(weight),
        flat[weight.numel() :] if ctx.has_bias else None,
        to_base,
        to_gain,
    )


torch.library.register_autograd("mgrade::linear", _autograd, setup_context=_setup)
first_only("mgrade::linear_backward")
