"""Plain PyTorch on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from mgrade.ops.gated_scan.reference import before, last_state, linear_scan, reverse_scan


def forward(decay: Tensor, drive: Tensor, initial: Tensor | None, reset: Tensor | None) -> tuple[Tensor, Tensor]:
    h = linear_scan(decay.expand_as(drive), drive, initial, reset)
    h = h.clone() if h is drive else h
    return h.resolve_conj().contiguous(), last_state(h, initial)


def backward(
    grad_h: Tensor,
    grad_last: Tensor | None,
    decay: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    h: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    if h.shape[1] == 0:
        none = torch.zeros_like(h.sum(1))
        return torch.zeros_like(decay), torch.zeros_like(h), none if grad_last is None else grad_last.clone()
    drive = grad_h
    if grad_last is not None:
        drive = torch.cat([drive[:, :-1], drive[:, -1:] + grad_last[:, None]], 1)
    total = reverse_scan(decay.conj().expand_as(h), drive, reset)
    grad_initial = decay.conj() * total[:, 0]
    if reset is not None:
        grad_initial = torch.where(reset[:, :1], 0, grad_initial)
    grad_decay = (before(h, initial, reset).conj() * total).sum((0, 1))
    return grad_decay, total.resolve_conj().contiguous(), grad_initial.contiguous()
