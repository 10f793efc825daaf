"""`feedforward`: the second half of a layer, norm(x + MLP(x)), as one operation."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mgrade.ops._backend import choose, like_result

# Wider layers do not fit on chip; they go the way of plain PyTorch.
MAX_FUSED = 128

torch.library.define(
    "mgrade::feedforward",
    "(Tensor x, Tensor input, Tensor input_bias, Tensor output, Tensor output_bias, Tensor? scale, Tensor? shift,"
    " float eps) -> (Tensor, Tensor)",
)
torch.library.define(
    "mgrade::feedforward_backward",
    "(Tensor grad, Tensor x, Tensor z, Tensor input, Tensor input_bias, Tensor output, Tensor? scale, float eps)"
    " -> (Tensor, Tensor)",
)


def feedforward(
    x: Tensor,
    input: Tensor,
    input_bias: Tensor,
    output: Tensor,
    output_bias: Tensor,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """z = x + output @ gelu(input @ x + input_bias) + output_bias, then layer norm with scale and shift, if given.

    x (batch, time, dim), input (inner, dim), output (dim, inner) -> (batch, time, dim).
    """
    dim = x.shape[-1]
    if dim > MAX_FUSED or choose("auto", x) != "triton":
        z = x + F.linear(F.gelu(F.linear(x, input, input_bias), approximate="tanh"), output, output_bias)
        return z if scale is None else F.layer_norm(z, (dim,), scale, shift, eps)
    return torch.ops.mgrade.feedforward(x, input, input_bias, output, output_bias, scale, shift, eps)[0]


@torch.library.impl("mgrade::feedforward", "default")
def _forward(
    x: Tensor,
    input: Tensor,
    input_bias: Tensor,
    output: Tensor,
    output_bias: Tensor,
    scale: Tensor | None,
    shift: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """The outputs, and z (empty without a norm, which does not need it)."""
    from mgrade.ops.feedforward import triton

    return triton.forward(x, input, input_bias, output, output_bias, scale, shift, eps)


@torch.library.impl("mgrade::feedforward_backward", "default")
def _backward(
    grad: Tensor,
    x: Tensor,
    z: Tensor,
    input: Tensor,
    input_bias: Tensor,
    output: Tensor,
    scale: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """The gradient of x, and those of all parameters in their order, flat; scale's and shift's mean nothing if None."""
    from mgrade.ops.feedforward import triton

    return triton.backward(grad, x, z, input, input_bias, output, scale, eps)


@torch.library.register_fake("mgrade::feedforward")
def _fake_forward(
    x: Tensor,
    input: Tensor,
    input_bias: Tensor,
    output: Tensor,
    output_bias: Tensor,
    scale: Tensor | None,
    shift: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor]:
    return like_result(x, "triton"), x.new_empty(0) if scale is None else like_result(x, "triton")


@torch.library.register_fake("mgrade::feedforward_backward")
def _fake_backward(
    grad: Tensor,
    x: Tensor,
    z: Tensor,
    input: Tensor,
    input_bias: Tensor,
    output: Tensor,
    scale: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor]:
    inner, dim = input.shape
    return like_result(x, "triton"), input.new_empty(2 * inner * dim + inner + 3 * dim)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight_in, bias_in, weight_out, _, scale, _, ctx.eps = inputs
    ctx.save_for_backward(x, output[1], weight_in, bias_in, weight_out, scale)
    ctx.set_materialize_grads(False)  # nobody asks for the gradient of z


def _autograd(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 8
    x, z, weight_in, bias_in, weight_out, scale = ctx.saved_tensors
    to_x, flat = torch.ops.mgrade.feedforward_backward(grad, x, z, weight_in, bias_in, weight_out, scale, ctx.eps)
    inner, dim = weight_in.shape
    to_input, to_input_bias, to_output, to_bias, to_scale, to_shift = flat.split(
        [inner * dim, inner, inner * dim, dim, dim, dim]
    )
    norm = (None, None) if scale is None else (to_scale, to_shift)
    return to_x, to_input.view_as(weight_in), to_input_bias, to_output.view_as(weight_out), to_bias, *norm, None


torch.library.register_autograd("mgrade::feedforward", _autograd, setup_context=_setup)
