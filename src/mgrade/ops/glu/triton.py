"""The Triton version: one product with both matrices and one pass over its result, in each direction."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from mgrade.ops import _triton
from mgrade.ops.linear.triton import outer, product


@triton.jit
def _gated(pair, bias, T, N, BT: tl.constexpr):
    """For one row (of B and N) and some steps: offsets in pair (B, 2 N, T), values there, and which are in bounds."""
    program = tl.program_id(0).to(tl.int64)
    batch, row = program // N, program % N
    step = tl.program_id(1) * BT + tl.arange(0, BT)
    here = step < T
    at_value, at_gate = (batch * 2 * N + row) * T + step, (batch * 2 * N + N + row) * T + step
    value = tl.load(pair + at_value, mask=here, other=0.0).to(tl.float32) + tl.load(bias + row).to(tl.float32)
    gate = tl.load(pair + at_gate, mask=here, other=0.0).to(tl.float32) + tl.load(bias + N + row).to(tl.float32)
    return at_value, at_gate, value, tl.sigmoid(gate), program, step, here


@triton.jit
def _glu(base, pair, bias, y, T, N, base_b, base_c, HAS_BASE: tl.constexpr, BT: tl.constexpr):
    """y (B, N, T) = value * sigmoid(gate), from pair (B, 2 N, T) and bias (2 N), plus base (B, N, T)."""
    _, _, value, share, program, step, here = _gated(pair, bias, T, N, BT)
    total = value * share
    if HAS_BASE:
        at = base + (program // N) * base_b + (program % N) * base_c + step
        total += tl.load(at, mask=here, other=0.0).to(tl.float32)
    tl.store(y + program * T + step, total.to(y.dtype.element_ty), mask=here)


@triton.jit
def _glu_backward(grad, pair, bias, grad_pair, T, N, grad_b, grad_c, BT: tl.constexpr):
    at_value, at_gate, value, share, program, step, here = _gated(pair, bias, T, N, BT)
    at = grad + (program // N) * grad_b + (program % N) * grad_c + step
    pull = tl.load(at, mask=here, other=0.0).to(tl.float32) * share
    tl.store(grad_pair + at_value, pull.to(grad_pair.dtype.element_ty), mask=here)
    tl.store(grad_pair + at_gate, (pull * value * (1.0 - share)).to(grad_pair.dtype.element_ty), mask=here)


def forward(x: Tensor, weight: Tensor, bias: Tensor, base: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    active = _triton.time_first(F.gelu(x.transpose(1, 2).contiguous(), approximate="tanh"))
    pair = product(active, weight)
    batch, time, outputs = x.shape[0], x.shape[1], weight.shape[0] // 2
    y = _triton.empty_time_last(batch, time, outputs, x)
    if y.numel():
        grid, block = _triton.row_grid(batch, outputs, time)
        below = y if base is None else _triton.time_last(base)
        _glu[grid](below, pair, bias, y, time, outputs, *below.stride()[:2], HAS_BASE=base is not None, BT=block)
    return _triton.time_first(y), active, pair


def backward(
    grad: Tensor, x: Tensor, active: Tensor, pair: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    batch, time, width = pair.shape
    pull, grad_pair = _triton.time_last(grad), _triton.empty_time_last(batch, time, width, x)
    if grad.numel():
        grid, block = _triton.row_grid(batch, width // 2, time)
        before = pair.transpose(1, 2).contiguous()
        _glu_backward[grid](pull, before, bias, grad_pair, time, width // 2, *pull.stride()[:2], BT=block)
    to_pair = _triton.time_first(grad_pair)
    to_active, signal = product(to_pair, weight.t()).transpose(1, 2), x.transpose(1, 2).contiguous()
    to_x = torch.ops.aten.gelu_backward(to_active, signal, approximate="tanh")
    return _triton.time_first(to_x), outer(to_pair, active, sums=True).to(weight.dtype)
