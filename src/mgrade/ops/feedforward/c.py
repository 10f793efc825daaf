"""The C version: the products are PyTorch's, GELU and its gradient run over memory once. The norm is left out."""

from __future__ import annotations

import torch
from torch import Tensor

from mgrade.ops import _c
from mgrade.ops.linear import outer_product

# Groups of rows whose bias gradients are summed apart, the same whatever the number of threads.
_PARTS = 16


def forward(x: Tensor, input: Tensor, input_bias: Tensor, output: Tensor, output_bias: Tensor) -> tuple[Tensor, Tensor]:
    """x (batch, time, dim) -> x + MLP(x), and what its first product gave, which the gradient needs again."""
    rows = x.flatten(0, 1)
    u = rows @ input.t().contiguous()
    active = torch.empty_like(u)
    _c.call("gelu_forward", u.dtype, u, input_bias.contiguous(), active, *u.shape, _c.threads(16 * u.numel()))
    z = torch.addmm(output_bias, active, output.t().contiguous()).add_(rows)
    return z.view(x.shape), u.view(*x.shape[:2], input.shape[0])


def backward(
    grad: Tensor, x: Tensor, u: Tensor, input: Tensor, input_bias: Tensor, output: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of x, and of input, input bias, output and output bias, flat."""
    inner = input.shape[0]
    pull = grad.flatten(0, 1).contiguous()
    to_u = pull @ output
    active, u = torch.empty_like(to_u), u.contiguous()
    parts = torch.zeros(_PARTS, inner, dtype=x.dtype)
    _c.call(
        "gelu_backward",
        x.dtype,
        *(u, input_bias.contiguous(), to_u, active, parts, _PARTS, *to_u.shape, _c.threads(16 * to_u.numel())),
    )
    to_x = (to_u @ input).add_(pull).view(x.shape)
    to_input = outer_product(to_u.view_as(u), x, "c")
    to_output = outer_product(grad, active.view_as(u), "c")
    flat = torch.cat([to_input.flatten(), parts.sum(0), to_output.flatten(), pull.sum(0)])
    return to_x, flat
