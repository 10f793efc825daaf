"""`feedforward`: the second half of a layer, norm(x + MLP(x)), as one operation."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mgrade.ops import _check
from mgrade.ops._backend import choose, first_only, implementation, implements, is_one_step, like_result
from mgrade.ops.dropout import dropout as drop
from mgrade.ops.dropout import kept
from mgrade.ops.feedforward import c
from mgrade.ops.layer_norm import layer_norm
from mgrade.ops.linear import linear

# Wider layers do not fit on chip, nor the gradients of their weights into a cache; they are computed op by op.
MAX_FUSED = 128

torch.library.define(
    "mgrade::feedforward",
    "(Tensor x, Tensor input, Tensor input_bias, Tensor output, Tensor output_bias, Tensor? scale, Tensor? shift,"
    " Tensor? base, Tensor? keep, float gain, float eps, str backend) -> (Tensor, Tensor)",
)
torch.library.define(
    "mgrade::feedforward_backward",
    "(Tensor grad, Tensor x, Tensor trace, Tensor input, Tensor input_bias, Tensor output, Tensor? scale,"
    " Tensor? keep, bool apart, float gain, float eps, str backend) -> (Tensor, Tensor, Tensor)",
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
    dropout: float = 0.0,
    whole: bool = False,
    base: Tensor | None = None,
) -> Tensor:
    """z = base + output @ gelu(input @ x + input_bias) + output_bias, then layer norm with scale and shift, if given.

    x (batch, time, dim), input (inner, dim), output (dim, inner) -> (batch, time, dim). The base defaults to x.
    `dropout` is the share of the branch dropped at random: single values, or channels for the whole sequence if
    `whole`.
    """
    parameters = (input, input_bias, output, output_bias)
    _check.floating("x", x, (None, None, None), "(batch, time, dim)")
    dim = x.shape[2]
    _check.floating("input", input, (None, dim), "(inner, dim)")
    inner = input.shape[0]
    _check.floating("input_bias", input_bias, (inner,), "(inner)")
    _check.floating("output", output, (dim, inner), "(dim, inner)")
    for name, tensor in (("output_bias", output_bias), ("scale", scale), ("shift", shift)):
        if tensor is not None:
            _check.floating(name, tensor, (dim,), "(dim)")
    if base is not None:
        _check.floating("base", base, tuple(x.shape), "(batch, time, dim)")
    backend = choose("auto", x)
    fused = dim <= MAX_FUSED
    alike = base is None or base.dtype == x.dtype
    if backend == "triton" and fused and alike:
        keep = kept(x, dropout, whole) if dropout else None
        gain = 1 / (1 - dropout)
        return torch.ops.mgrade.feedforward(x, *parameters, scale, shift, base, keep, gain, eps, backend)[0]
    plain = (
        not dropout and base is None and all(p.dtype == x.dtype in (torch.float32, torch.float64) for p in parameters)
    )
    if backend == "c" and fused and plain and not is_one_step(x) and not torch.is_autocast_enabled("cpu"):
        z = torch.ops.mgrade.feedforward(x, *parameters, None, None, None, None, 1.0, eps, backend)[0]
    else:
        active = F.gelu(linear(x, input, input_bias), approximate="tanh")
        base = x if base is None else base
        z = linear(active, output, output_bias, None if dropout else base)
        z = drop(z, dropout, whole, base) if dropout else z
    return z if scale is None else layer_norm(z, scale, shift, eps)


@implements("mgrade::feedforward")
def _forward(
    x: Tensor,
    input: Tensor,
    input_bias: Tensor,
    output: Tensor,
    output_bias: Tensor,
    scale: Tensor | None,
    shift: Tensor | None,
    base: Tensor | None,
    keep: Tensor | None,
    gain: float,
    eps: float,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """The outputs, and what the gradient needs: z before the norm, empty without one; in C the inputs of GELU."""
    if backend == "c":
        return c.forward(x, input, input_bias, output, output_bias)
    return implementation("feedforward", "triton").forward(
        x, input, input_bias, output, output_bias, scale, shift, base, keep, gain, eps
    )


@implements("mgrade::feedforward_backward")
def _backward(
    grad: Tensor,
    x: Tensor,
    trace: Tensor,
    input: Tensor,
    input_bias: Tensor,
    output: Tensor,
    scale: Tensor | None,
    keep: Tensor | None,
    apart: bool,
    gain: float,
    eps: float,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, of all given parameters in order, flat, and of the base.

    The last is empty unless the base is `apart` from x and there is a norm.
    """
    if backend == "c":
        return *c.backward(grad, x, trace, input, output), x.new_empty(0)
    return implementation("feedforward", "triton").backward(
        grad, x, trace, input, input_bias, output, scale, keep, apart, gain, eps
    )


@torch.library.register_fake("mgrade::feedforward")
def _fake_forward(
    x: Tensor,
    input: Tensor,
    input_bias: Tensor,
    output: Tensor,
    output_bias: Tensor,
    scale: Tensor | None,
    shift: Tensor | None,
    base: Tensor | None,
    keep: Tensor | None,
    gain: float,
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
    keep: Tensor | None,
    apart: bool,
    gain: float,
    eps: float,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    inner, dim = input.shape
    parameters = input.new_empty(2 * inner * dim + inner + (dim if backend == "c" else 3 * dim))
    to_base = like_result(x, backend) if apart and scale is not None else x.new_empty(0)
    return like_result(x, backend), parameters, to_base


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight_in, bias_in, weight_out, _, scale, _, base, keep, *constants = inputs
    ctx.apart, ctx.constants = base is not None, constants
    ctx.save_for_backward(x, output[1], weight_in, bias_in, weight_out, scale, keep)
    ctx.set_materialize_grads(False)  # the trace has no gradient


def _autograd(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 12
    x, trace, weight_in, bias_in, weight_out, scale, keep = ctx.saved_tensors
    to_x, flat, to_base = torch.ops.mgrade.feedforward_backward(
        grad, x, trace, weight_in, bias_in, weight_out, scale, keep, ctx.apart, *ctx.constants
    )
    inner, dim = weight_in.shape
    to_input, to_input_bias, to_output, to_bias, *norm = flat.split(
        [inner * dim, inner, inner * dim, *[dim] * ((flat.numel() - 2 * inner * dim - inner) // dim)]
    )
    to_norm = (None, None) if scale is None else norm
    weights = to_input.view_as(weight_in), to_input_bias, to_output.view_as(weight_out), to_bias
    if scale is None:  # without a norm it arrives unchanged
        to_base = grad
    return to_x, *weights, *to_norm, to_base if ctx.apart else None, None, None, None, None


torch.library.register_autograd("mgrade::feedforward", _autograd, setup_context=_setup)
first_only("mgrade::feedforward_backward")
