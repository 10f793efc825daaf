"""The C version: one pass over memory, channels in vector lanes, half precision computed in float32."""

from __future__ import annotations

import torch
from torch import Tensor

from mgrade.ops import _c, _memory
from mgrade.ops._backend import accumulator
from mgrade.ops.gated_scan import reference

trace_shape = reference.trace_shape


def forward(
    gate: Tensor,
    candidate: Tensor,
    bias: Tensor | None,
    skip: Tensor | None,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    dtype = accumulator(gate.dtype)
    g, c = _c.rows(gate, dtype), _c.rows(candidate, dtype)
    bias, initial, reset = (_c.contiguous(bias, dtype), _c.contiguous(initial, dtype), _c.contiguous(reset, torch.bool))
    lengths = _c.contiguous(lengths, torch.int64)
    beside = None if skip is None else _c.rows(skip, dtype)
    h = _memory.empty(gate.shape, dtype)
    y = None if beside is None else _memory.empty(gate.shape, dtype)
    last = torch.empty(gate.shape[0], gate.shape[2], dtype=dtype)
    strides = (stride for tensor in (g, c, beside) for stride in ((0, 0) if tensor is None else tensor.stride()[:2]))
    _c.call(
        "gated_scan_forward",
        dtype,
        *(g, c, bias, beside, initial, reset, lengths, h, y, last),
        *(*gate.shape, *strides, _c.threads(16 * h.numel())),
    )
    if y is None:
        return h.to(gate.dtype), last, h.new_empty(h.shape[0], 0, h.shape[2])
    return y.to(gate.dtype), last, h


def backward(
    grad: Tensor,
    grad_last: Tensor | None,
    gate: Tensor,
    candidate: Tensor,
    bias: Tensor | None,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
    trace: Tensor,
    packed: Tensor,
) -> tuple[Tensor | None, Tensor]:
    """Writes the gradients of gate and candidate into `packed`, (batch, time, 2 hidden)."""
    dtype = accumulator(gate.dtype)
    batch, _, hidden = gate.shape
    pull, g, c = _c.rows(grad, dtype), _c.rows(gate, dtype), _c.rows(candidate, dtype)
    grad_last, bias, initial = (_c.contiguous(tensor, dtype) for tensor in (grad_last, bias, initial))
    reset, h = _c.contiguous(reset, torch.bool), trace.to(dtype).contiguous()
    lengths = _c.contiguous(lengths, torch.int64)
    wide = packed if packed.dtype == dtype else torch.empty(packed.shape, dtype=dtype)
    grad_bias = None if bias is None else torch.empty(batch, 2 * hidden, dtype=dtype)
    grad_initial = torch.empty(batch, hidden, dtype=dtype)
    _c.call(
        "gated_scan_backward",
        dtype,
        *(pull, grad_last, g, c, bias, initial, reset, lengths, h, wide, grad_bias, grad_initial),
        *(*gate.shape, *pull.stride()[:2], *g.stride()[:2], *c.stride()[:2], _c.threads(16 * g.numel())),
    )
    if wide is not packed:
        packed.copy_(wide)
    return None if grad_bias is None else grad_bias.sum(0), grad_initial
