"""Plain PyTorch, any device and floating dtype: what every other version is compared with, in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from mgrade.ops._backend import accumulator


def linear_scan(decay: Tensor, drive: Tensor, initial: Tensor | None, reset: Tensor | None) -> Tensor:
    """h_t = decay_t h_{t-1} + drive_t, real or complex, by doubling the span that each step has seen.

    decay, drive (batch, time, channels); initial (batch, channels); reset (batch, time). Where a step restarts,
    the past is left out rather than multiplied by zero, so that a NaN before it stays before it.
    """
    time = drive.shape[1]
    if time == 0:
        return drive.clone()
    blocked = torch.zeros(*drive.shape[:2], 1, dtype=torch.bool, device=drive.device)
    if reset is not None:
        blocked = reset[..., None]
    h = drive
    if initial is not None:
        first = drive[:, 0] + torch.where(blocked[:, 0], 0, decay[:, 0] * initial)
        h = torch.cat([first[:, None], drive[:, 1:]], 1)
    span = 1
    while span < time:
        seen = torch.where(blocked[:, span:], 0, decay[:, span:] * h[:, :-span])
        h = torch.cat([h[:, :span], h[:, span:] + seen], 1)
        decay = torch.cat([decay[:, :span], decay[:, span:] * decay[:, :-span]], 1)
        blocked = torch.cat([blocked[:, :span], blocked[:, span:] | blocked[:, :-span]], 1)
        span *= 2
    return h


def reverse_scan(decay: Tensor, drive: Tensor, reset: Tensor | None) -> Tensor:
    """g_t = drive_t + decay_{t+1} g_{t+1}: how the gradient of `linear_scan` runs back through time."""
    later = torch.roll(decay, -1, 1).flip(1)
    restarts = None if reset is None else torch.roll(reset, -1, 1).flip(1)
    return linear_scan(later, drive.flip(1), None, restarts).flip(1)


def before(h: Tensor, initial: Tensor | None, reset: Tensor | None) -> Tensor:
    """h_{t-1} as step t sees it: the initial state at the start, zero where it restarts."""
    first = torch.zeros_like(h[:, :1]) if initial is None else initial[:, None].to(h.dtype)
    previous = torch.cat([first, h], 1)[:, : h.shape[1]]
    return previous if reset is None else torch.where(reset[..., None], 0, previous)


def last_state(h: Tensor, initial: Tensor | None) -> Tensor:
    """The state after the last step; the initial one if there was none."""
    if h.shape[1]:
        return h[:, -1].clone()
    return h.new_zeros(h.shape[0], h.shape[2]) if initial is None else initial.clone()


def forward(gate: Tensor, candidate: Tensor, initial: Tensor | None, reset: Tensor | None) -> tuple[Tensor, Tensor]:
    dtype = accumulator(gate.dtype)
    wide = gate.to(dtype)
    h = linear_scan(torch.sigmoid(-wide), torch.sigmoid(wide) * candidate.to(dtype), initial, reset)
    return h.to(gate.dtype), last_state(h, initial)


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
    if gate.shape[1] == 0:
        none = h.new_zeros(h.shape[0], h.shape[2], dtype=dtype)
        return (
            torch.zeros_like(gate),
            torch.zeros_like(candidate),
            none if grad_last is None else grad_last.clone(),
        )
    keep, take = torch.sigmoid(-gate.to(dtype)), torch.sigmoid(gate.to(dtype))
    drive = grad_h.to(dtype)
    if grad_last is not None:
        drive = torch.cat([drive[:, :-1], drive[:, -1:] + grad_last[:, None]], 1)
    total = reverse_scan(keep, drive, reset)
    change = candidate.to(dtype) - before(h.to(dtype), initial, reset)
    grad_initial = keep[:, 0] * total[:, 0]
    if reset is not None:
        grad_initial = torch.where(reset[:, :1], 0, grad_initial)
    grad_gate = total * change * keep * take
    return grad_gate.to(gate.dtype), (total * take).to(candidate.dtype), grad_initial
