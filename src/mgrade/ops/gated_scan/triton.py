"""The Triton version for CUDA: tiles of time by channels, an associative scan inside a tile, a carry between."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mgrade.ops._backend import TRITON_INTERPRETED, accumulator

_TIME, _CHANNELS = (16, 8) if TRITON_INTERPRETED else (64, 32)


@triton.jit
def _compose(keep_a, drive_a, restart_a, keep_b, drive_b, restart_b):
    """Step a, then step b. A restart in b leaves a out, rather than multiplying it by zero."""
    seen = tl.where(restart_b > 0, 0.0, keep_b * drive_a)
    return keep_a * keep_b, drive_b + seen, tl.maximum(restart_a, restart_b)


@triton.jit
def _gates(logit):
    """1 - s(logit) and s(logit), each to full relative accuracy."""
    small = tl.exp(-tl.abs(logit))
    large = 1.0 / (1.0 + small)
    small = small * large
    return tl.where(logit < 0, large, small), tl.where(logit < 0, small, large)


@triton.jit
def _forward_kernel(
    gate, candidate, initial, reset, h, last, T, H, gate_b, gate_t, candidate_b, candidate_t,
    HAS_INITIAL: tl.constexpr, HAS_RESET: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = channel < H
    state = tl.zeros((BC,), tl.float32)
    if HAS_INITIAL:
        state = tl.load(initial + batch * H + channel, mask=inside, other=0.0)
    for begin in range(0, T, BT):
        step = begin + tl.arange(0, BT)
        mask = (step < T)[:, None] & inside[None, :]
        logit = tl.load(
            gate + batch * gate_b + step[:, None].to(tl.int64) * gate_t + channel[None, :],
            mask=mask,
            other=0.0,
        )
        value = tl.load(
            candidate + batch * candidate_b + step[:, None].to(tl.int64) * candidate_t + channel[None, :],
            mask=mask,
            other=0.0,
        )
        keep, take = _gates(logit.to(tl.float32))
        keep = tl.where(mask, keep, 1.0)
        drive = tl.where(mask, take * value.to(tl.float32), 0.0)
        restart = tl.zeros((BT, BC), tl.int32)
        if HAS_RESET:
            restart += tl.load(reset + batch * T + step, mask=step < T, other=0).to(tl.int32)[:, None]
        # the state before the tile enters through its first step
        first = (tl.arange(0, BT) == 0)[:, None] & (restart == 0)
        drive += tl.where(first, keep * state[None, :], 0.0)
        _, out, _ = tl.associative_scan((keep, drive, restart), 0, _compose)
        tl.store(h + (batch * T + step[:, None]) * H + channel[None, :], out.to(h.dtype.element_ty), mask=mask)
        state = tl.sum(tl.where((tl.arange(0, BT) == BT - 1)[:, None], out, 0.0), 0)
    tl.store(last + batch * H + channel, state, mask=inside)


@triton.jit
def _backward_kernel(
    grad_h, grad_last, gate, candidate, initial, reset, h, grad_gate, grad_candidate, grad_initial,
    T, H, gate_b, gate_t, candidate_b, candidate_t,
    HAS_LAST: tl.constexpr, HAS_INITIAL: tl.constexpr, HAS_RESET: tl.constexpr,
    BT: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = channel < H
    carry = tl.zeros((BC,), tl.float32)  # dL/dh_t from the steps after t, already through their gates
    if HAS_LAST:
        carry = tl.load(grad_last + batch * H + channel, mask=inside, other=0.0)
    for index in range(0, T, BT):
        step = T - 1 - index - tl.arange(0, BT)  # backwards in time
        mask = (step >= 0)[:, None] & inside[None, :]
        row = (batch * T + step[:, None]) * H + channel[None, :]
        at_gate = gate + batch * gate_b + step[:, None].to(tl.int64) * gate_t + channel[None, :]
        keep, take = _gates(tl.load(at_gate, mask=mask, other=0.0).to(tl.float32))
        # what step t passes down is multiplied by the gate of t + 1, and stopped by a restart there
        later = mask & (step < T - 1)[:, None]
        keep_later, _ = _gates(tl.load(at_gate + gate_t, mask=later, other=0.0).to(tl.float32))
        keep_later = tl.where(later, keep_later, 1.0)
        restart = tl.zeros((BT, BC), tl.int32)
        if HAS_RESET:
            here = (step >= 0) & (step < T - 1)
            restart += tl.load(reset + batch * T + step + 1, mask=here, other=0).to(tl.int32)[:, None]
        drive = tl.load(grad_h + row, mask=mask, other=0.0).to(tl.float32)
        first = (tl.arange(0, BT) == 0)[:, None]
        drive += tl.where(first, carry[None, :], 0.0)
        _, total, _ = tl.associative_scan((keep_later, drive, restart), 0, _compose)

        value = tl.load(
            candidate + batch * candidate_b + step[:, None].to(tl.int64) * candidate_t + channel[None, :],
            mask=mask,
            other=0.0,
        ).to(tl.float32)
        before = tl.load(h + row - H, mask=mask & (step > 0)[:, None], other=0.0).to(tl.float32)
        if HAS_INITIAL:
            start = tl.load(initial + batch * H + channel, mask=inside, other=0.0)
            before = tl.where((step == 0)[:, None], start[None, :], before)
        down = keep * total
        if HAS_RESET:
            here = tl.load(reset + batch * T + step, mask=step >= 0, other=0).to(tl.int32)[:, None] > 0
            before = tl.where(here, 0.0, before)
            down = tl.where(here, 0.0, down)
        tl.store(grad_candidate + row, (take * total).to(grad_candidate.dtype.element_ty), mask=mask)
        tl.store(
            grad_gate + row,
            (total * (value - before) * keep * take).to(grad_gate.dtype.element_ty),
            mask=mask,
        )
        # the last step of the tile that exists hands its gradient on
        final = tl.maximum(step, 0) == tl.maximum(T - index - BT, 0)
        carry = tl.sum(tl.where(final[:, None] & (step >= 0)[:, None], down, 0.0), 0)
    tl.store(grad_initial + batch * H + channel, carry, mask=inside)


def _rows(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _dense(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def forward(gate: Tensor, candidate: Tensor, initial: Tensor | None, reset: Tensor | None) -> tuple[Tensor, Tensor]:
    batch, time, hidden = gate.shape
    gate, candidate, initial, reset = _rows(gate), _rows(candidate), _dense(initial), _dense(reset)
    h = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    last = torch.empty(batch, hidden, dtype=accumulator(gate.dtype), device=gate.device)
    if batch and hidden:
        _forward_kernel[(batch, triton.cdiv(hidden, _CHANNELS))](
            gate, candidate, initial, reset, h, last, time, hidden,
            *gate.stride()[:2], *candidate.stride()[:2],
            HAS_INITIAL=initial is not None, HAS_RESET=reset is not None, BT=_TIME, BC=_CHANNELS,
        )  # fmt: skip
    return h, last


def backward(
    grad_h: Tensor,
    grad_last: Tensor | None,
    gate: Tensor,
    candidate: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    h: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, time, hidden = gate.shape
    gate, candidate, initial, reset = _rows(gate), _rows(candidate), _dense(initial), _dense(reset)
    grad_h, grad_last, h = grad_h.contiguous(), _dense(grad_last), h.contiguous()
    grad_gate, grad_candidate = torch.empty_like(h), torch.empty_like(h)
    grad_initial = torch.empty(batch, hidden, dtype=accumulator(gate.dtype), device=gate.device)
    if batch and hidden:
        _backward_kernel[(batch, triton.cdiv(hidden, _CHANNELS))](
            grad_h, grad_last, gate, candidate, initial, reset, h, grad_gate, grad_candidate, grad_initial,
            time, hidden, *gate.stride()[:2], *candidate.stride()[:2],
            HAS_LAST=grad_last is not None, HAS_INITIAL=initial is not None, HAS_RESET=reset is not None,
            BT=_TIME, BC=_CHANNELS,
        )  # fmt: skip
    return grad_gate, grad_candidate, grad_initial
