"""The Triton version for CUDA: tiles of channels by time, an associative scan inside a tile, a carry between.

Time is cut into enough spans to fill the chip. A span needs the state at its start: a first, read-only pass reduces
every span to one affine map (keep, drive), and each program composes the maps of the spans before its own. Only the
states at tile starts are kept for the gradient, which runs the scan again.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mgrade.ops import _triton
from mgrade.ops._backend import TRITON_INTERPRETED, accumulator
from mgrade.ops._triton import restarts, row_limit

_CHANNELS, _TIME = (4, 16) if TRITON_INTERPRETED else (4, 256)
_STAGES, _WARPS = 2, 4
# With at least this many programs over batch and channels, time is not cut into spans. A constant, so that rounding
# does not depend on the device.
_ENOUGH = 512


@triton.jit
def _compose(keep_a, drive_a, restart_a, keep_b, drive_b, restart_b):
    """Step a, then step b. A restart in b masks a out, rather than multiplying it by zero."""
    seen = tl.where(restart_b > 0, 0.0, keep_b * drive_a)
    return keep_a * keep_b, drive_b + seen, tl.maximum(restart_a, restart_b)


@triton.jit
def _compose_plain(keep_a, drive_a, keep_b, drive_b):
    """Step a, then step b, without restarts."""
    return keep_a * keep_b, keep_b * drive_a + drive_b


@triton.jit
def _scan(keep, drive, restart, HAS_RESET: tl.constexpr, REVERSE: tl.constexpr):
    """The composition of all steps up to each: the share of the past that is kept (0 after a restart), and drive."""
    if HAS_RESET:
        through, out, cut = tl.associative_scan((keep, drive, restart), 1, _compose, reverse=REVERSE)
        through = tl.where(cut > 0, 0.0, through)
    else:
        through, out = tl.associative_scan((keep, drive), 1, _compose_plain, reverse=REVERSE)
    return through, out


@triton.jit
def _gates(logit):
    """1 - s(logit) and s(logit), each to full relative accuracy."""
    small = tl.exp(-tl.abs(logit))
    large = 1.0 / (1.0 + small)
    small = small * large
    return tl.where(logit < 0, large, small), tl.where(logit < 0, small, large)


@triton.jit
def _load(pointer, batch_stride, channel_stride, batch, channel, step, mask):
    """A tile (channels, time) of a (batch, channels, time) tensor, in float32."""
    at = pointer + batch * batch_stride + channel[:, None].to(tl.int64) * channel_stride + step[None, :]
    return tl.load(at, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _biased(value, bias, channel, inside, HAS_BIAS: tl.constexpr):
    if HAS_BIAS:
        value += tl.load(bias + channel, mask=inside, other=0.0).to(tl.float32)[:, None]
    return value


@triton.jit
def _entering(maps, batch, span, spans, channel, H, inside, state):
    """`state` carried through the maps (batch, spans, 2, H) of the spans before `span`."""
    for before in range(0, span):
        at = maps + ((batch * spans + before) * 2) * H + channel
        keep = tl.load(at, mask=inside, other=0.0)
        # a keep of exactly zero means a restart: the past is masked out
        state = tl.load(at + H, mask=inside, other=0.0) + tl.where(keep == 0.0, 0.0, keep * state)
    return state


@triton.jit
def _at_last(tile, step, T, BT: tl.constexpr):
    """The column of the last step within bounds of a tile."""
    last = (step == T - 1) | ((tl.arange(0, BT) == BT - 1) & (step < T))
    return tl.sum(tl.where(last[None, :], tile, 0.0), 1)


@triton.jit
def _scan_forward(
    gate, candidate, bias, skip, initial, reset, lengths, maps, y, last, starts,
    T, H, gate_b, gate_c, candidate_b, candidate_c, skip_b, skip_c, tiles, spans, span_tiles,
    HAS_BIAS: tl.constexpr, HAS_SKIP: tl.constexpr, HAS_INITIAL: tl.constexpr, HAS_RESET: tl.constexpr,
    HAS_LENGTHS: tl.constexpr, SUMMARY: tl.constexpr, BC: tl.constexpr, BT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One span of one block of channels: its outputs, or its map with SUMMARY."""
    batch = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BC + tl.arange(0, BC)
    span = tl.program_id(2)
    inside = channel < H
    limit = row_limit(lengths, batch, T, HAS_LENGTHS)
    state = tl.zeros((BC,), tl.float32)
    kept = tl.full((BC,), 1.0, tl.float32)
    if not SUMMARY:
        if HAS_INITIAL:
            state = tl.load(initial + batch * H + channel, mask=inside, other=0.0)
        state = _entering(maps, batch, span, spans, channel, H, inside, state)
    for tile in tl.range(span * span_tiles, tl.minimum((span + 1) * span_tiles, tiles), num_stages=STAGES):
        step = tile * BT + tl.arange(0, BT)
        here = step < T
        mask = inside[:, None] & here[None, :]
        logit = _biased(_load(gate, gate_b, gate_c, batch, channel, step, mask), bias, channel, inside, HAS_BIAS)
        value = _load(candidate, candidate_b, candidate_c, batch, channel, step, mask)
        value = _biased(value, bias, H + channel, inside, HAS_BIAS)
        keep, take = _gates(logit)
        valid = mask & (step < limit)[None, :]
        keep, drive = tl.where(valid, keep, 1.0), tl.where(valid, take * value, 0.0)
        restart = restarts(reset, batch, T, step, here, HAS_RESET, BC, BT)
        # the state before the tile enters through its first step
        first = (tl.arange(0, BT) == 0)[None, :] & (restart == 0)
        drive += tl.where(first, keep * state[:, None], 0.0)
        through, out = _scan(keep, drive, restart, HAS_RESET, False)
        if SUMMARY:
            passed = _at_last(through, step, T, BT)
            kept = tl.where(passed == 0.0, 0.0, kept * passed)
        else:
            tl.store(starts + (batch * tiles + tile) * H + channel, state, mask=inside)
            shown = out
            if HAS_SKIP:
                shown += _load(skip, skip_b, skip_c, batch, channel, step, mask)
            at = y + (batch * H + channel[:, None]) * T + step[None, :]
            tl.store(at, shown.to(y.dtype.element_ty), mask=mask)
        state = _at_last(out, step, T, BT)
    if SUMMARY:
        at = maps + ((batch * spans + span) * 2) * H + channel
        tl.store(at, kept, mask=inside)
        tl.store(at + H, state, mask=inside)
    elif span == spans - 1:
        tl.store(last + batch * H + channel, state, mask=inside)


@triton.jit
def _scan_backward(
    grad, grad_last, gate, candidate, bias, reset, lengths, maps, starts, grad_gate, grad_candidate, grad_bias,
    grad_initial,
    T, H, grad_b, grad_c, gate_b, gate_c, candidate_b, candidate_c, out_b, tiles, spans, span_tiles,
    HAS_BIAS: tl.constexpr, HAS_LAST: tl.constexpr, HAS_RESET: tl.constexpr, HAS_LENGTHS: tl.constexpr,
    SUMMARY: tl.constexpr, BC: tl.constexpr, BT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One span, backwards in time: spans, tiles and steps are counted from the end."""
    batch = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BC + tl.arange(0, BC)
    span = tl.program_id(2)
    inside = channel < H
    limit = row_limit(lengths, batch, T, HAS_LENGTHS)
    carry = tl.zeros((BC,), tl.float32)  # dL/dh_t from the steps after t, their gates applied
    kept = tl.full((BC,), 1.0, tl.float32)
    if not SUMMARY:
        if HAS_LAST:
            carry = tl.load(grad_last + batch * H + channel, mask=inside, other=0.0)
        carry = _entering(maps, batch, span, spans, channel, H, inside, carry)
    sum_gate = tl.zeros((BC,), tl.float32)
    sum_candidate = tl.zeros((BC,), tl.float32)
    for index in tl.range(span * span_tiles, tl.minimum((span + 1) * span_tiles, tiles), num_stages=STAGES):
        tile = tiles - 1 - index
        step = tile * BT + tl.arange(0, BT)
        here = step < T
        mask = inside[:, None] & here[None, :]
        logit = _biased(_load(gate, gate_b, gate_c, batch, channel, step, mask), bias, channel, inside, HAS_BIAS)
        keep, take = _gates(logit)
        valid = mask & (step < limit)[None, :]
        keep = tl.where(valid, keep, 1.0)
        pull = _load(grad, grad_b, grad_c, batch, channel, step, mask)
        # the gradient that reaches step t is multiplied by the gate of t + 1, and cut off by a restart there;
        # `carry` already includes the gate of the step after the tile
        next_step = step + 1
        later = here & (next_step < T) & (tl.arange(0, BT) < BT - 1)
        mask_later = inside[:, None] & later[None, :]
        logit = _load(gate, gate_b, gate_c, batch, channel, next_step, mask_later)
        keep_later, _ = _gates(_biased(logit, bias, channel, inside, HAS_BIAS))
        keep_later = tl.where(mask_later & (next_step < limit)[None, :], keep_later, 1.0)
        restart_later = restarts(reset, batch, T, next_step, later, HAS_RESET, BC, BT)
        final = here & ((next_step == T) | (tl.arange(0, BT) == BT - 1))  # the tile's last step within bounds
        drive = pull + tl.where(final[None, :], carry[:, None], 0.0)
        through, total = _scan(keep_later, drive, restart_later, HAS_RESET, True)
        restart = restarts(reset, batch, T, step, here, HAS_RESET, BC, BT)
        down = tl.where(restart > 0, 0.0, keep * total)
        at_first = (tl.arange(0, BT) == 0)[None, :]
        if SUMMARY:
            through = tl.where(restart > 0, 0.0, keep * through)
            passed = tl.sum(tl.where(at_first, through, 0.0), 1)
            kept = tl.where(passed == 0.0, 0.0, kept * passed)
        else:
            value = _load(candidate, candidate_b, candidate_c, batch, channel, step, mask)
            value = _biased(value, bias, H + channel, inside, HAS_BIAS)
            # the state before each step: the scan again, shifted by one step, from the state at the start of the tile
            earlier = step - 1
            inner = mask & (tl.arange(0, BT) > 0)[None, :] & (earlier < limit)[None, :]
            logit = _load(gate, gate_b, gate_c, batch, channel, earlier, inner)
            keep_earlier, take_earlier = _gates(_biased(logit, bias, channel, inside, HAS_BIAS))
            drive = _load(candidate, candidate_b, candidate_c, batch, channel, earlier, inner)
            drive = take_earlier * _biased(drive, bias, H + channel, inside, HAS_BIAS)
            state = tl.load(starts + (batch * tiles + tile) * H + channel, mask=inside, other=0.0)
            drive = tl.where(at_first, state[:, None], tl.where(inner, drive, 0.0))
            began = restarts(reset, batch, T, earlier, here & (tl.arange(0, BT) > 0), HAS_RESET, BC, BT)
            _, before = _scan(tl.where(inner, keep_earlier, 1.0), drive, began, HAS_RESET, False)
            before = tl.where(restart > 0, 0.0, before)
            to_candidate = tl.where(valid, total * take, 0.0)
            to_gate = to_candidate * keep * (value - before)
            at = batch * out_b + channel[:, None].to(tl.int64) * T + step[None, :]
            tl.store(grad_gate + at, to_gate.to(grad_gate.dtype.element_ty), mask=mask)
            tl.store(grad_candidate + at, to_candidate.to(grad_candidate.dtype.element_ty), mask=mask)
            if HAS_BIAS:
                sum_gate += tl.sum(to_gate, 1)
                sum_candidate += tl.sum(to_candidate, 1)
        carry = tl.sum(tl.where(at_first, down, 0.0), 1)
    if SUMMARY:
        at = maps + ((batch * spans + span) * 2) * H + channel
        tl.store(at, kept, mask=inside)
        tl.store(at + H, carry, mask=inside)
    else:
        if HAS_BIAS:
            at = grad_bias + ((batch * spans + span) * 2) * H + channel
            tl.store(at, sum_gate, mask=inside)
            tl.store(at + H, sum_candidate, mask=inside)
        if span == spans - 1:
            tl.store(grad_initial + batch * H + channel, carry, mask=inside)


def _spans(batch: int, time: int, hidden: int) -> tuple[int, int, int]:
    return _triton.spans(batch * triton.cdiv(hidden, _CHANNELS), time, _TIME, _ENOUGH)


def trace_shape(batch: int, time: int, hidden: int, skipped: bool) -> tuple[int, int, int]:
    """The shape of what `forward` keeps for the gradient: the states at tile starts."""
    return batch, (time + _TIME - 1) // _TIME, hidden


def forward(
    gate: Tensor,
    candidate: Tensor,
    bias: Tensor | None,
    skip: Tensor | None,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, time, hidden = gate.shape
    g, c = _triton.time_last(gate), _triton.time_last(candidate)
    beside = None if skip is None else _triton.time_last(skip)
    initial, reset, bias = _triton.dense(initial), _triton.dense(reset), _triton.dense(bias)
    lengths = _triton.dense(lengths)
    y = _triton.empty_time_last(batch, time, hidden, gate)
    wide = {"dtype": accumulator(gate.dtype), "device": gate.device}
    last = torch.empty(batch, hidden, **wide)
    tiles, spans, span_tiles = _spans(batch, time, hidden)
    starts = torch.empty(batch, tiles, hidden, **wide)
    if not (batch and hidden):
        return _triton.time_first(y), last, starts
    maps = torch.empty(batch, spans, 2, hidden, **wide)
    for summary in (True, False) if spans > 1 else (False,):
        _scan_forward[(batch, triton.cdiv(hidden, _CHANNELS), spans)](
            g, c, bias, beside, initial, reset, lengths, maps, y, last, starts, time, hidden,
            *g.stride()[:2], *c.stride()[:2], *(beside.stride()[:2] if beside is not None else (0, 0)),
            tiles, spans, span_tiles,
            HAS_BIAS=bias is not None, HAS_SKIP=beside is not None, HAS_INITIAL=initial is not None,
            HAS_RESET=reset is not None, HAS_LENGTHS=lengths is not None, SUMMARY=summary,
            BC=_CHANNELS, BT=_TIME, STAGES=_STAGES, num_warps=_WARPS,
        )  # fmt: skip
    return _triton.time_first(y), last, starts


def backward(
    grad: Tensor,
    grad_last: Tensor | None,
    gate: Tensor,
    candidate: Tensor,
    bias: Tensor | None,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
    starts: Tensor,
    packed: Tensor,
) -> tuple[Tensor | None, Tensor]:
    """Writes the gradients of gate and candidate into `packed`, (batch, time, 2 hidden)."""
    batch, time, hidden = gate.shape
    g, c, pull = _triton.time_last(gate), _triton.time_last(candidate), _triton.time_last(grad)
    grad_last, reset, bias = _triton.dense(grad_last), _triton.dense(reset), _triton.dense(bias)
    lengths = _triton.dense(lengths)
    out = packed.transpose(1, 2)
    wide = {"dtype": accumulator(gate.dtype), "device": gate.device}
    grad_initial = torch.empty(batch, hidden, **wide)
    tiles, spans, span_tiles = _spans(batch, time, hidden)
    grad_bias = torch.empty(batch, spans, 2 * hidden, **wide) if bias is not None else None
    if batch and hidden:
        maps = torch.empty(batch, spans, 2, hidden, **wide)
        for summary in (True, False) if spans > 1 else (False,):
            _scan_backward[(batch, triton.cdiv(hidden, _CHANNELS), spans)](
                pull, grad_last, g, c, bias, reset, lengths, maps, starts, out, out[:, hidden:], grad_bias,
                grad_initial, time, hidden, *pull.stride()[:2], *g.stride()[:2], *c.stride()[:2], out.stride(0),
                tiles, spans, span_tiles,
                HAS_BIAS=bias is not None, HAS_LAST=grad_last is not None, HAS_RESET=reset is not None,
                HAS_LENGTHS=lengths is not None, SUMMARY=summary, BC=_CHANNELS, BT=_TIME, STAGES=_STAGES,
                num_warps=_WARPS,
            )  # fmt: skip
    if grad_bias is not None:
        grad_bias = _triton.sum_parts(grad_bias.flatten(0, 1))
    return grad_bias, grad_initial
