"""The C version: one pass over memory, channels in vector lanes."""

from __future__ import annotations

import torch
from torch import Tensor

from mgrade.ops import _c


def _dense(tensor: Tensor) -> Tensor:
    return tensor.resolve_conj().contiguous()


def forward(decay: Tensor, drive: Tensor, initial: Tensor | None, reset: Tensor | None) -> tuple[Tensor, Tensor]:
    decay, drive, reset = _dense(decay), _dense(drive), _c.contiguous(reset, torch.bool)
    batch, _, hidden = drive.shape
    h = torch.empty_like(drive)
    last = drive.new_zeros(batch, hidden) if initial is None else initial.resolve_conj().clone().contiguous()
    _c.call(
        "diagonal_scan_forward",
        drive.dtype,
        decay,
        drive,
        reset,
        h,
        last,
        *drive.shape,
        _c.threads(4 * h.numel()),
    )
    return h, last


def backward(
    grad_h: Tensor,
    grad_last: Tensor | None,
    decay: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    h: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    grad_h, decay, h, reset = _dense(grad_h), _dense(decay), _dense(h), _c.contiguous(reset, torch.bool)
    initial = None if initial is None else _dense(initial)
    batch, _, hidden = h.shape
    grad_drive, grad_decay = torch.empty_like(h), h.new_zeros(batch, hidden)
    grad_initial = h.new_zeros(batch, hidden) if grad_last is None else _dense(grad_last).clone()
    _c.call(
        "diagonal_scan_backward",
        h.dtype,
        *(grad_h, decay, initial, reset, h, grad_drive, grad_decay, grad_initial),
        *(*h.shape, _c.threads(8 * h.numel())),
    )
    return grad_decay.sum(0), grad_drive, grad_initial
