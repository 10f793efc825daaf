"""The C version: products of rows with a small matrix, near the processor's peak."""

from __future__ import annotations

import torch
from torch import Tensor

from mgrade.ops import _c, _memory

# The types that the kernels compute in; others are left to PyTorch.
TYPES = (torch.float32, torch.float64)
# The gradient of a larger matrix would not stay in the cache while it is summed.
MAX_SUMS = 1 << 16


def product(x: Tensor, matrix: Tensor, base: Tensor | None = None) -> Tensor:
    """base + x @ matrix: x (batch, time, inputs), matrix (inputs, outputs) -> (batch, time, outputs)."""
    inputs, outputs = matrix.shape
    y = _memory.empty((*x.shape[:2], outputs), x.dtype)
    beside = None if base is None else base.contiguous()
    sizes = (x.shape[0] * x.shape[1], inputs, outputs, _c.threads(x.numel() * outputs))
    _c.call("product", x.dtype, x.contiguous(), _c.panels(matrix.to(x.dtype)), beside, y, *sizes)
    return y


def outer(grad: Tensor, x: Tensor) -> Tensor:
    """The sum over batch and time of grad x^T: (outputs, inputs)."""
    rows, outputs, inputs = grad.shape[0] * grad.shape[1], grad.shape[2], x.shape[2]
    parts = _c.parts(rows)
    sums = torch.zeros(parts, outputs, inputs, dtype=x.dtype)
    threads = _c.threads(rows * sums[0].numel())
    _c.call("outer", x.dtype, grad.contiguous(), x.contiguous(), sums, parts, rows, outputs, inputs, threads)
    return sums.sum(0)
