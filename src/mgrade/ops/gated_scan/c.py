"""The C version: one pass over memory, channels in vector lanes, half precision computed in float32."""

from __future__ import annotations

import torch
from torch import Tensor

from mgrade.ops import _c
from mgrade.ops._backend import accumulator


def forward(gate: Tensor, candidate: Tensor, initial: Tensor | None, reset: Tensor | None) -> tuple[Tensor, Tensor]:
    dtype = accumulator(gate.dtype)
    g, c = _c.rows(gate, dtype), _c.rows(candidate, dtype)
    initial, reset = _c.contiguous(initial, dtype), _c.contiguous(reset, torch.bool)
    h = torch.empty(gate.shape, dtype=dtype)
    last = torch.empty(gate.shape[0], gate.shape[2], dtype=dtype)
    _c.call(
        "gated_scan_forward",
        dtype,
        *(g, c, initial, reset, h, last),
        *(*gate.shape, *g.stride()[:2], *c.stride()[:2], _c.threads(16 * h.numel())),
    )
    return h.to(gate.dtype), last


def backward(
    grad_h: Tensor,
    grad_last: Tensor | None,
    gate: Tensor,
    candidate: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    h: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    dtype = accumulator(gate.dtype)
    grad, g, c = _c.rows(grad_h, dtype), _c.rows(gate, dtype), _c.rows(candidate, dtype)
    grad_last, initial = _c.contiguous(grad_last, dtype), _c.contiguous(initial, dtype)
    reset, wide = _c.contiguous(reset, torch.bool), h.to(dtype).contiguous()
    grad_gate, grad_candidate = torch.empty_like(wide), torch.empty_like(wide)
    grad_initial = torch.empty(gate.shape[0], gate.shape[2], dtype=dtype)
    _c.call(
        "gated_scan_backward",
        dtype,
        *(grad, grad_last, g, c, initial, reset, wide, grad_gate, grad_candidate, grad_initial),
        *(*gate.shape, *grad.stride()[:2], *g.stride()[:2], *c.stride()[:2], _c.threads(16 * h.numel())),
    )
    return grad_gate.to(gate.dtype), grad_candidate.to(candidate.dtype), grad_initial
