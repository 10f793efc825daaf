"""Plain PyTorch, any device and floating dtype: what every other version is compared with, in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from mgrade.ops._backend import accumulator


def linear_scan(decay: Tensor, drive: Tensor, initial: Tensor | None, reset: Tensor | None) -> Tensor:
    """h_t = decay_t h_{t-1} + drive_t, real or complex, by repeatedly doubling the span that each step covers.

    decay, drive (batch, time, channels); initial (batch, channels); reset (batch, time). Where a step restarts,
    the past is masked out rather than multiplied by zero, so that a NaN does not cross the restart.
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
    """g_t = drive_t + decay_{t+1} g_{t+1}: the gradient of `linear_scan`, backwards through time."""
    later = torch.roll(decay, -1, 1).flip(1)
    restarts = None if reset is None else torch.roll(reset, -1, 1).flip(1)
    return linear_scan(later, drive.flip(1), None, restarts).flip(1)


def before(h: Tensor, initial: Tensor | None, reset: Tensor | None) -> Tensor:
    """h_{t-1} as step t sees it: the initial state at the start, zero where it restarts."""
    first = torch.zeros_like(h[:, :1]) if initial is None else initial[:, None].to(h.dtype)
    previous = torch.cat([first, h], 1)[:, : h.shape[1]]
    return previous if reset is None else torch.where(reset[..., None], 0, previous)


def last_state(h: Tensor, initial: Tensor | None) -> Tensor:
    """The state after the last step; the initial state if there are no steps."""
    if h.shape[1]:
        return h[:, -1].clone(memory_format=torch.contiguous_format)
    return (
        h.new_zeros(h.shape[0], h.shape[2]) if initial is None else initial.clone(memory_format=torch.contiguous_format)
    )


def trace_shape(batch: int, time: int, hidden: int, skipped: bool) -> tuple[int, int, int]:
    """The shape of what `forward` keeps for the gradient: the states, unless they are the outputs themselves."""
    return batch, time if skipped else 0, hidden


def biased(gate: Tensor, candidate: Tensor, bias: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """Gate and candidate plus their halves of the bias; beyond a row's length the gate is closed."""
    dtype = accumulator(gate.dtype)
    gate, candidate = gate.to(dtype), candidate.to(dtype)
    if bias is not None:
        gate_bias, candidate_bias = bias.to(dtype).chunk(2)
        gate, candidate = gate + gate_bias, candidate + candidate_bias
    if lengths is not None:
        padding = (torch.arange(gate.shape[1], device=gate.device) >= lengths[:, None])[..., None]
        gate, candidate = gate.masked_fill(padding, -torch.inf), candidate.masked_fill(padding, 0)
    return gate, candidate


def forward(
    gate: Tensor,
    candidate: Tensor,
    bias: Tensor | None,
    skip: Tensor | None,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    logit, value = biased(gate, candidate, bias, lengths)
    h = linear_scan(torch.sigmoid(-logit), torch.sigmoid(logit) * value, initial, reset)
    last = last_state(h, initial)
    if skip is None:
        return h.to(gate.dtype).contiguous(), last, h.new_empty(h.shape[0], 0, h.shape[2])
    return (h + skip).to(gate.dtype).contiguous(), last, h.contiguous()


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
    logit, value = biased(gate, candidate, bias, lengths)
    batch, time, hidden = gate.shape
    if time == 0:
        grad_initial = (
            logit.new_zeros(batch, hidden)
            if grad_last is None
            else grad_last.clone(memory_format=torch.contiguous_format)
        )
        return None if bias is None else logit.new_zeros(2 * hidden), grad_initial
    keep, take = torch.sigmoid(-logit), torch.sigmoid(logit)
    drive = grad.to(logit.dtype)
    if grad_last is not None:
        drive = torch.cat([drive[:, :-1], drive[:, -1:] + grad_last[:, None]], 1)
    total = reverse_scan(keep, drive, reset)
    change = value - before(trace.to(logit.dtype), initial, reset)
    grads = torch.cat([total * change * keep * take, total * take], -1)
    packed.copy_(grads)
    grad_initial = keep[:, 0] * total[:, 0]
    if reset is not None:
        grad_initial = torch.where(reset[:, :1], 0, grad_initial)
    return None if bias is None else grads.sum((0, 1)), grad_initial.contiguous()
