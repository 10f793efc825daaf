"""The C version: the products are PyTorch's, in blocks of rows whose inner activations stay in the cache.

GELU and its gradient run over a block once. The norm is left out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mgrade.ops import _c, _memory

# Groups of rows of a block whose bias gradients are summed apart, the same whatever the number of threads.
_PARTS = 16


def forward(x: Tensor, input: Tensor, input_bias: Tensor, output: Tensor, output_bias: Tensor) -> tuple[Tensor, Tensor]:
    """x (batch, time, dim) -> x + MLP(x), and what its first product gave, which the gradient needs again."""
    rows, inner = x.flatten(0, 1), len(input)
    z = torch.add(rows, output_bias, out=_memory.empty(rows.shape, x.dtype))
    u = _memory.empty((len(rows), inner), x.dtype)
    to_inner, to_dim, bias = input.t().contiguous(), output.t().contiguous(), input_bias.contiguous()
    size = _c.cached_rows(inner)
    scratch = _memory.empty((min(size, len(rows)), inner), x.dtype)
    for part, before, result in zip(rows.split(size), u.split(size), z.split(size), strict=True):
        torch.mm(part, to_inner, out=before)
        active = scratch[: len(part)]
        _c.call("gelu_forward", x.dtype, before, bias, active, *before.shape, _c.threads(16 * before.numel()))
        result.addmm_(active, to_dim)
    return z.view(x.shape), u.view(*x.shape[:2], inner)


def backward(
    grad: Tensor, x: Tensor, u: Tensor, input: Tensor, input_bias: Tensor, output: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of x, and of input, input bias, output and output bias, flat."""
    rows, inner, pull = x.flatten(0, 1), len(input), grad.flatten(0, 1).contiguous()
    to_x = _memory.empty(rows.shape, x.dtype)
    to_input, to_output = torch.zeros_like(input), torch.zeros_like(output)
    parts, bias = torch.zeros(_PARTS, inner, dtype=x.dtype), input_bias.contiguous()
    size = _c.cached_rows(inner)
    scratch = _memory.empty((2, min(size, len(rows)), inner), x.dtype)
    split = (tensor.split(size) for tensor in (rows, u.flatten(0, 1).contiguous(), pull, to_x))
    for part, before, grad_part, result in zip(*split, strict=True):
        active, to_u = scratch[:, : len(part)]
        torch.mm(grad_part, output, out=to_u)
        sizes = (_PARTS, *before.shape, _c.threads(16 * before.numel()))
        _c.call("gelu_backward", x.dtype, before, bias, to_u, active, parts, *sizes)
        torch.addmm(grad_part, to_u, input, out=result)
        to_input.addmm_(to_u.t(), part)
        to_output.addmm_(grad_part.t(), active)
    return to_x.view(x.shape), torch.cat([to_input.flatten(), parts.sum(0), to_output.flatten(), pull.sum(0)])
