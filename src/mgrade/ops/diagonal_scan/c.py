"""The C version: one pass over memory, channels in vector lanes."""

from __future__ import annotations

import torch
from torch import Tensor

from mgrade.ops import _c
from mgrade.ops.diagonal_scan.reference import last_valid, numbers, pairs, split_last


def forward(
    decay: Tensor, drive: Tensor, initial: Tensor | None, reset: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    u, reset = numbers(drive), _c.contiguous(reset, torch.bool)
    h = torch.empty_like(u)
    start = u.new_zeros(u.shape[0], u.shape[2]) if initial is None else initial
    last = start.clone(memory_format=torch.contiguous_format)
    _c.call(
        "diagonal_scan_forward",
        *(h.dtype, decay.contiguous(), u, reset, h, last),
        *(*h.shape, _c.threads(4 * h.numel())),
    )
    return pairs(h, drive.dtype), last_valid(h, last, initial, lengths)


def backward(
    grad_h: Tensor,
    grad_last: Tensor | None,
    decay: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
    h: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    pull, states, reset = numbers(grad_h), numbers(h), _c.contiguous(reset, torch.bool)
    initial = None if initial is None else initial.contiguous()
    onward = None
    if lengths is not None:
        pull, onward = split_last(pull, grad_last, lengths)
        grad_last = None
    grad_drive, grad_decay = torch.empty_like(states), states.new_zeros(states.shape[0], states.shape[2])
    grad_initial = (
        torch.zeros_like(grad_decay) if grad_last is None else grad_last.clone(memory_format=torch.contiguous_format)
    )
    _c.call(
        "diagonal_scan_backward",
        *(states.dtype, pull, decay.contiguous(), initial, reset, states, grad_drive, grad_decay, grad_initial),
        *(*states.shape, _c.threads(8 * states.numel())),
    )
    return grad_decay.sum(0), pairs(grad_drive, h.dtype), grad_initial if onward is None else grad_initial + onward
