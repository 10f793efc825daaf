"""`glu`: GELU, then a linear layer gated by another; on CUDA, both are one product."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mgrade.ops._backend import choose, first_only, implementation, implements, like_result

torch.library.define(
    "mgrade::glu",
    "(Tensor x, Tensor value, Tensor value_bias, Tensor gate, Tensor gate_bias, Tensor? base=None)"
    " -> (Tensor, Tensor, Tensor)",
)
torch.library.define(
    "mgrade::glu_backward",
    "(Tensor grad, Tensor x, Tensor active, Tensor pair, Tensor value, Tensor value_bias, Tensor gate,"
    " Tensor gate_bias) -> (Tensor, Tensor)",
)


def glu(
    x: Tensor, value: Tensor, value_bias: Tensor, gate: Tensor, gate_bias: Tensor, base: Tensor | None = None
) -> Tensor:
    """(value @ a + value_bias) sigmoid(gate @ a + gate_bias) with a = gelu(x), added to `base` if there is one.

    x (batch, time, inputs), value and gate (outputs, inputs) -> (batch, time, outputs).
    """
    if x.dim() == 3 and choose("auto", x) == "triton":
        return torch.ops.mgrade.glu(x, value, value_bias, gate, gate_bias, base)[0]
    active = F.gelu(x, approximate="tanh")
    y = F.linear(active, value, value_bias) * torch.sigmoid(F.linear(active, gate, gate_bias))
    return y if base is None else base + y


@implements("mgrade::glu")
def _forward(
    x: Tensor, value: Tensor, value_bias: Tensor, gate: Tensor, gate_bias: Tensor, base: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs, and what the gradient needs: gelu(x), and value and gate before their biases, side by side."""
    return implementation("glu", "triton").forward(x, *_stacked(value, value_bias, gate, gate_bias), base)


@implements("mgrade::glu_backward")
def _backward(grad: Tensor, x: Tensor, active: Tensor, pair: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of x, and those of value, gate, value_bias and gate_bias, flat."""
    return implementation("glu", "triton").backward(grad, x, active, pair, *_stacked(*parameters))


def _stacked(value: Tensor, value_bias: Tensor, gate: Tensor, gate_bias: Tensor) -> tuple[Tensor, Tensor]:
    """The weight and the bias of both layers as one."""
    return torch.cat([value, gate]), torch.cat([value_bias, gate_bias])


@torch.library.register_fake("mgrade::glu")
def _fake_forward(x: Tensor, value: Tensor, *_: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    one, outputs = x.new_empty(1, 1, 1), value.shape[0]
    y, pair = (like_result(one.expand(*x.shape[:2], width), "triton") for width in (outputs, 2 * outputs))
    return y, like_result(x, "triton"), pair


@torch.library.register_fake("mgrade::glu_backward")
def _fake_backward(
    grad: Tensor, x: Tensor, active: Tensor, pair: Tensor, value: Tensor, *_: Tensor
) -> tuple[Tensor, Tensor]:
    return like_result(x, "triton"), value.new_empty(2 * (value.numel() + value.shape[0]))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, *parameters, base = inputs
    ctx.base = None if base is None else base.dtype
    ctx.save_for_backward(x, *output[1:], *parameters)
    ctx.set_materialize_grads(False)  # only the first output has a gradient


def _autograd(ctx: Any, grad: Tensor | None, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 6
    to_x, flat = torch.ops.mgrade.glu_backward(grad, *ctx.saved_tensors)
    value = ctx.saved_tensors[3]
    to_value, to_gate, to_value_bias, to_gate_bias = flat.split([value.numel()] * 2 + [value.shape[0]] * 2)
    to_base = None if ctx.base is None else grad.to(ctx.base)
    return to_x, to_value.view_as(value), to_value_bias, to_gate.view_as(value), to_gate_bias, to_base


torch.library.register_autograd("mgrade::glu", _autograd, setup_context=_setup)
first_only("mgrade::glu_backward")
