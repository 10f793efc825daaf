"""`feedforward`: the second half of a layer, norm(x + MLP(x)), as one operation."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mgrade.ops._backend import choose, like_result
from mgrade.ops.feedforward import c

# Wider layers do not fit on chip; they go the way of plain PyTorch.
MAX_FUSED = 128

torch.library.define(
    "mgrade::feedforward",
    "(Tensor x, Tensor input, Tensor input_bias, Tensor output, Tensor output_bias, Tensor? scale, Tensor? shift,"
    " float eps, str backend) -> (Tensor, Tensor)",
)
torch.library.define(
    "mgrade::feedforward_backward",
    "(Tensor grad, Tensor x, Tensor trace, Tensor input, Tensor input_bias, Tensor output, Tensor? scale, float eps,"
    " str backend) -> (Tensor, Tensor)",
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
    dim, backend = x.shape[-1], choose("auto", x)
    parameters = (input, input_bias, output, output_bias)
    if backend == "triton" and dim <= MAX_FUSED:
        return torch.ops.mgrade.feedforward(x, *parameters, scale, shift, eps, backend)[0]
    plain = all(p.dtype == x.dtype in (torch.float32, torch.float64) for p in parameters)
    if backend == "c" and x.dim() == 3 and plain and not torch.is_autocast_enabled("cpu"):
        z = torch.ops.mgrade.feedforward(x, *parameters, None, None, eps, backend)[0]
    else:
        z = x + F.linear(F.gelu(F.linear(x, input, input_bias), approximate="tanh"), output, output_bias)
    return z if scale is None else F.layer_norm(z, (dim,), scale, shift, eps)


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
    backend: str,
) -> tuple[Tensor, Tensor]:
    """The outputs, and what the gradient needs: z before a norm, empty without one; in C the first product."""
    if backend == "c":
        return c.forward(x, input, input_bias, output, output_bias)
    from mgrade.ops.feedforward import triton

    return triton.forward(x, input, input_bias, output, output_bias, scale, shift, eps)


@torch.library.impl("mgrade::feedforward_backward", "default")
def _backward(
    grad: Tensor,
    x: Tensor,
    trace: Tensor,
    input: Tensor,
    input_bias: Tensor,
    output: Tensor,
    scale: Tensor | None,
    eps: float,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """The gradient of x, and those of all parameters in their order, flat, as far as they are there."""
    if backend == "c":
        return c.backward(grad, x, trace, input, input_bias, output)
    from mgrade.ops.feedforward import triton

    return triton.backward(grad, x, trace, input, input_bias, output, scale, eps)


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
    backend: str,
) -> tuple[Tensor, Tensor]:
    if backend == "c":
        trace = x.new_empty(*x.shape[:2], input.shape[0])
    else:
        trace = x.new_empty(0) if scale is None else like_result(x, backend)
    return like_result(x, backend), trace


@torch.library.register_fake("mgrade::feedforward_backward")
def _fake_backward(
    grad: Tensor,
    x: Tensor,
    trace: Tensor,
    input: Tensor,
    input_bias: Tensor,
    output: Tensor,
    scale: Tensor | None,
    eps: float,
    backend: str,
) -> tuple[Tensor, Tensor]:
    inner, dim = input.shape
    return like_result(x, backend), input.new_empty(2 * inner * dim + inner + (dim if backend == "c" else 3 * dim))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight_in, bias_in, weight_out, _, scale, _, ctx.eps, ctx.backend = inputs
    ctx.save_for_backward(x, output[1], weight_in, bias_in, weight_out, scale)
    ctx.set_materialize_grads(False)  # nobody asks for the gradient of the trace


def _autograd(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 9
    x, trace, weight_in, bias_in, weight_out, scale = ctx.saved_tensors
    to_x, flat = torch.ops.mgrade.feedforward_backward(
        grad, x, trace, weight_in, bias_in, weight_out, scale, ctx.eps, ctx.backend
    )
    inner, dim = weight_in.shape
    to_input, to_input_bias, to_output, to_bias, *norm = flat.split(
        [inner * dim, inner, inner * dim, *[dim] * ((flat.numel() - 2 * inner * dim - inner) // dim)]
    )
    to_norm = (None, None) if scale is None else norm
    weights = to_input.view_as(weight_in), to_input_bias, to_output.view_as(weight_out), to_bias
    return to_x, *weights, *to_norm, None, None


torch.library.register_autograd("mgrade::feedforward", _autograd, setup_context=_setup)
