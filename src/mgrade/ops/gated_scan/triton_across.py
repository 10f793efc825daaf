"""The Triton version for tensors with contiguous channels, the default layout of (batch, time, hidden).

Threads lie side by side along the channels, and each takes a run of consecutive steps. A scan of the runs' maps (keep,
drive) gives the state before each run of a tile; each run is then computed from there, with its inputs still in
registers. Spans of time and tile starts are as in the version for contiguous time. Results have the layout of the
inputs. There is no bias and no skip: those belong to `gated_recurrence`, whose gates keep time contiguous.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mgrade.ops import _triton
from mgrade.ops._backend import TRITON_INTERPRETED, accumulator
from mgrade.ops._triton import row_limit
from mgrade.ops.gated_scan.triton import _entering, _gates


class Tile(NamedTuple):
    """The tile of a program, the number of stages that it prefetches, and its warps."""

    channels: int
    runs: int
    steps: int
    """Steps of a run."""
    stages: int
    warps: int


# Both tiles cover the same number of steps, runs x steps, because they share the states at tile starts.
FORWARD = Tile(4, 4, 2, 1, 1) if TRITON_INTERPRETED else Tile(16, 32, 4, 2, 4)
BACKWARD = Tile(8, 2, 4, 1, 1) if TRITON_INTERPRETED else Tile(8, 16, 8, 2, 1)
# With at least this many programs over batch and channels, time is not cut into spans.
_ENOUGH = 256
# Triton does not specialise kernels on the values of these.
_COUNTS = ("T", "tiles", "spans", "span_tiles")


@triton.jit
def _compose(keep_a, drive_a, past_a, before_a, keep_b, drive_b, past_b, before_b):
    """Runs a, then runs b: their map (keep, drive), and their map without the last run (past, before)."""
    return keep_a * keep_b, keep_b * drive_a + drive_b, past_b * keep_a, past_b * drive_a + before_b


@triton.jit
def _seen(keep, past, HAS_RESET: tl.constexpr):
    """keep times the past; with restarts, a keep of exactly zero masks the past out, even if it is NaN."""
    left = keep * past
    if HAS_RESET:
        left = tl.where(keep == 0.0, 0.0, left)
    return left


@triton.jit
def _product(keep_a, keep_b, HAS_RESET: tl.constexpr):
    """The product of two keeps; zero stays zero, even if the other is NaN."""
    both = keep_a * keep_b
    if HAS_RESET:
        both = tl.where((keep_a == 0.0) | (keep_b == 0.0), 0.0, both)
    return both


@triton.jit
def _compose_cut(keep_a, drive_a, past_a, before_a, keep_b, drive_b, past_b, before_b):
    """The same with restarts."""
    keep, past = _product(keep_a, keep_b, True), _product(keep_a, past_b, True)
    return keep, drive_b + _seen(keep_b, drive_a, True), past, before_b + _seen(past_b, drive_a, True)


@triton.jit
def _join(keep, drive, state, HAS_RESET: tl.constexpr, REVERSE: tl.constexpr):
    """The state before each run, and the map up to each, from the maps of the runs and the state before the tile."""
    parts = (keep, drive, tl.full(keep.shape, 1.0, tl.float32), tl.zeros_like(drive))
    if HAS_RESET:
        keep, drive, past, before = tl.associative_scan(parts, 1, _compose_cut, reverse=REVERSE)
    else:
        keep, drive, past, before = tl.associative_scan(parts, 1, _compose, reverse=REVERSE)
    return before + _seen(past, state[:, None], HAS_RESET), keep, drive


@triton.jit
def _column(tile, at):
    """One column of a tile."""
    return tl.sum(tl.where(at[None, :], tile, 0.0), 1)


@triton.jit
def _at(pointer, row, step, channel):
    """The addresses of a tile (channels, steps); consecutive steps are `row` elements apart."""
    return pointer + step[None, :].to(tl.int64) * row + channel[:, None]


@triton.jit
def _load(pointer, row, step, channel, mask):
    return tl.load(_at(pointer, row, step, channel), mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _cut(reset, step, T, HAS_RESET: tl.constexpr):
    """Where a sequence restarts, (1, steps)."""
    cut = tl.zeros(step.shape, tl.int1)
    if HAS_RESET:
        cut = tl.load(reset + step, mask=step < T, other=0).to(tl.int32) > 0
    return cut[None, :]


@triton.jit(do_not_specialize=_COUNTS)
def _scan_forward(
    gate, candidate, initial, reset, lengths, maps, y, last, starts,
    T, H, gate_b, gate_t, candidate_b, candidate_t, tiles, spans, span_tiles,
    HAS_INITIAL: tl.constexpr, HAS_RESET: tl.constexpr, HAS_LENGTHS: tl.constexpr, SUMMARY: tl.constexpr,
    BC: tl.constexpr, RUNS: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One span of one block of channels: its states, or its map with SUMMARY."""
    blocks = tl.cdiv(H, BC)  # neighbours in memory at the same time
    batch = (tl.program_id(0) // blocks).to(tl.int64)
    channel = (tl.program_id(0) % blocks) * BC + tl.arange(0, BC)
    span = tl.program_id(1)
    run = tl.arange(0, RUNS)
    inside = channel < H
    limit = row_limit(lengths, batch, T, HAS_LENGTHS)
    gate += batch * gate_b
    candidate += batch * candidate_b
    y += batch * T * H
    if HAS_RESET:
        reset += batch * T
    state = tl.zeros((BC,), tl.float32)
    kept = tl.full((BC,), 1.0, tl.float32)
    if not SUMMARY:
        if HAS_INITIAL:
            state = tl.load(initial + batch * H + channel, mask=inside, other=0.0)
        state = _entering(maps, batch, span, spans, channel, H, inside, state)
    for tile in tl.range(span * span_tiles, tl.minimum((span + 1) * span_tiles, tiles), num_stages=STAGES):
        begin = (tile * RUNS + run) * STEPS
        logits, values = (), ()
        for i in tl.static_range(STEPS):
            valid = inside[:, None] & (begin + i < limit)[None, :]
            logits += (_load(gate, gate_t, begin + i, channel, valid),)
            values += (_load(candidate, candidate_t, begin + i, channel, valid),)
        keeps, drives = (), ()
        keep, drive = tl.full((BC, RUNS), 1.0, tl.float32), tl.zeros((BC, RUNS), tl.float32)
        for i in tl.static_range(STEPS):
            one, take = _gates(logits[i])
            valid = inside[:, None] & (begin + i < limit)[None, :]
            one = tl.where(_cut(reset, begin + i, T, HAS_RESET), 0.0, tl.where(valid, one, 1.0))
            keeps += (one,)
            drives += (tl.where(valid, take * values[i], 0.0),)
            keep, drive = _product(keep, one, HAS_RESET), drives[i] + _seen(one, drive, HAS_RESET)
        h, keep, drive = _join(keep, drive, state, HAS_RESET, False)
        if SUMMARY:
            kept = _product(kept, _column(keep, run == RUNS - 1), HAS_RESET)
        else:
            tl.store(starts + (batch * tiles + tile) * H + channel, state, mask=inside)
            for i in tl.static_range(STEPS):
                h = drives[i] + _seen(keeps[i], h, HAS_RESET)
                mask = inside[:, None] & (begin + i < T)[None, :]
                tl.store(_at(y, H, begin + i, channel), h.to(y.dtype.element_ty), mask=mask)
        state = _column(drive + _seen(keep, state[:, None], HAS_RESET), run == RUNS - 1)
    if SUMMARY:
        at = maps + ((batch * spans + span) * 2) * H + channel
        tl.store(at, kept, mask=inside)
        tl.store(at + H, state, mask=inside)
    elif span == spans - 1:
        tl.store(last + batch * H + channel, state, mask=inside)


@triton.jit(do_not_specialize=_COUNTS)
def _scan_backward(
    grad, grad_last, gate, candidate, reset, lengths, maps, starts, packed, grad_initial,
    T, H, grad_b, grad_t, gate_b, gate_t, candidate_b, candidate_t, tiles, spans, span_tiles,
    HAS_LAST: tl.constexpr, HAS_RESET: tl.constexpr, HAS_LENGTHS: tl.constexpr, SUMMARY: tl.constexpr,
    BC: tl.constexpr, RUNS: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One span, backwards in time: spans and tiles are counted from the end.

    Step t passes keep_t times (dL/dh_t plus what it received) down to the step before it: again a map per run.
    """
    blocks = tl.cdiv(H, BC)  # neighbours in memory at the same time
    batch = (tl.program_id(0) // blocks).to(tl.int64)
    channel = (tl.program_id(0) % blocks) * BC + tl.arange(0, BC)
    span = tl.program_id(1)
    run = tl.arange(0, RUNS)
    inside = channel < H
    limit = row_limit(lengths, batch, T, HAS_LENGTHS)
    grad += batch * grad_b
    gate += batch * gate_b
    candidate += batch * candidate_b
    packed += batch * T * 2 * H
    if HAS_RESET:
        reset += batch * T
    carry = tl.zeros((BC,), tl.float32)  # what the step after the tile passes down to it
    kept = tl.full((BC,), 1.0, tl.float32)
    if not SUMMARY:
        if HAS_LAST:
            carry = tl.load(grad_last + batch * H + channel, mask=inside, other=0.0)
        carry = _entering(maps, batch, span, spans, channel, H, inside, carry)
    for index in tl.range(span * span_tiles, tl.minimum((span + 1) * span_tiles, tiles), num_stages=STAGES):
        tile = tiles - 1 - index
        begin = (tile * RUNS + run) * STEPS
        logits, values, pulls = (), (), ()
        for i in tl.static_range(STEPS):
            valid = inside[:, None] & (begin + i < limit)[None, :]
            logits += (_load(gate, gate_t, begin + i, channel, valid),)
            pulls += (_load(grad, grad_t, begin + i, channel, inside[:, None] & (begin + i < T)[None, :]),)
            if not SUMMARY:
                values += (_load(candidate, candidate_t, begin + i, channel, valid),)
        keeps, takes, cuts = (), (), ()
        keep, down = tl.full((BC, RUNS), 1.0, tl.float32), tl.zeros((BC, RUNS), tl.float32)
        for i in tl.static_range(STEPS):
            one, take = _gates(logits[i])
            valid = inside[:, None] & (begin + i < limit)[None, :]
            keeps += (tl.where(valid, one, 1.0),)
            takes += (tl.where(valid, take, 0.0),)
            cuts += (_cut(reset, begin + i, T, HAS_RESET),)
            keep = _product(keep, tl.where(cuts[i], 0.0, keeps[i]), HAS_RESET)
        for i in tl.static_range(STEPS - 1, -1, -1):
            down = tl.where(cuts[i], 0.0, keeps[i] * (pulls[i] + down))
        if not SUMMARY:
            drive = tl.zeros((BC, RUNS), tl.float32)
            for i in tl.static_range(STEPS):
                drive = takes[i] * values[i] + tl.where(cuts[i], 0.0, keeps[i] * drive)
            start = tl.load(starts + (batch * tiles + tile) * H + channel, mask=inside, other=0.0)
            h, _, _ = _join(keep, drive, start, HAS_RESET, False)
            changes = ()
            for i in tl.static_range(STEPS):
                before = tl.where(cuts[i], 0.0, h)
                changes += (values[i] - before,)
                h = keeps[i] * before + takes[i] * values[i]
        down, passed, bottom = _join(keep, down, carry, HAS_RESET, True)
        if SUMMARY:
            kept = _product(kept, _column(passed, run == 0), HAS_RESET)
        else:
            for i in tl.static_range(STEPS - 1, -1, -1):
                total = pulls[i] + down
                to_candidate = takes[i] * total
                to_gate = to_candidate * keeps[i] * changes[i]
                at = _at(packed, 2 * H, begin + i, channel)
                mask = inside[:, None] & (begin + i < T)[None, :]
                tl.store(at, to_gate.to(packed.dtype.element_ty), mask=mask)
                tl.store(at + H, to_candidate.to(packed.dtype.element_ty), mask=mask)
                down = tl.where(cuts[i], 0.0, keeps[i] * total)
        carry = _column(bottom + _seen(passed, carry[:, None], HAS_RESET), run == 0)
    if SUMMARY:
        at = maps + ((batch * spans + span) * 2) * H + channel
        tl.store(at, kept, mask=inside)
        tl.store(at + H, carry, mask=inside)
    elif span == spans - 1:
        tl.store(grad_initial + batch * H + channel, carry, mask=inside)


def _spans(x: Tensor, tile: Tile) -> tuple[int, int, int]:
    batch, time, hidden = x.shape
    return _triton.spans(batch * triton.cdiv(hidden, tile.channels), time, tile.runs * tile.steps, _ENOUGH)


def _rows(x: Tensor) -> Tensor:
    """`x` (batch, time, hidden) with contiguous channels."""
    return x if x.stride(2) == 1 else x.contiguous()


def trace_shape(batch: int, time: int, hidden: int) -> tuple[int, int, int]:
    """The shape of what `forward` keeps for the gradient: the states at tile starts."""
    steps = FORWARD.runs * FORWARD.steps
    return batch, (time + steps - 1) // steps, hidden


def forward(
    gate: Tensor,
    candidate: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, time, hidden = gate.shape
    tile = FORWARD
    initial, reset, lengths = _triton.dense(initial), _triton.dense(reset), _triton.dense(lengths)
    wide = {"dtype": accumulator(gate.dtype), "device": gate.device}
    y = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    last = torch.empty(batch, hidden, **wide)
    tiles, spans, span_tiles = _spans(gate, tile)
    starts = torch.empty(batch, tiles, hidden, **wide)
    if last.numel():
        maps = torch.empty(batch, spans, 2, hidden, **wide)
        for summary in (True, False) if spans > 1 else (False,):
            _scan_forward[(batch * triton.cdiv(hidden, tile.channels), spans)](
                gate, candidate, initial, reset, lengths, maps, y, last, starts, time, hidden,
                *gate.stride()[:2], *candidate.stride()[:2], tiles, spans, span_tiles,
                HAS_INITIAL=initial is not None, HAS_RESET=reset is not None, HAS_LENGTHS=lengths is not None,
                SUMMARY=summary, BC=tile.channels, RUNS=tile.runs, STEPS=tile.steps, STAGES=tile.stages,
                num_warps=tile.warps,
            )  # fmt: skip
    return y, last, starts


def backward(
    grad: Tensor,
    grad_last: Tensor | None,
    gate: Tensor,
    candidate: Tensor,
    reset: Tensor | None,
    lengths: Tensor | None,
    starts: Tensor,
    packed: Tensor,
) -> Tensor:
    """Writes the gradients of gate and candidate into `packed` (batch, time, 2 hidden); returns that of `initial`."""
    batch, time, hidden = gate.shape
    tile = BACKWARD
    grad = _rows(grad)
    grad_last, reset, lengths = _triton.dense(grad_last), _triton.dense(reset), _triton.dense(lengths)
    wide = {"dtype": accumulator(gate.dtype), "device": gate.device}
    grad_initial = torch.empty(batch, hidden, **wide)
    tiles, spans, span_tiles = _spans(gate, tile)
    if grad_initial.numel():
        maps = torch.empty(batch, spans, 2, hidden, **wide)
        for summary in (True, False) if spans > 1 else (False,):
            _scan_backward[(batch * triton.cdiv(hidden, tile.channels), spans)](
                grad, grad_last, gate, candidate, reset, lengths, maps, starts, packed, grad_initial, time, hidden,
                *grad.stride()[:2], *gate.stride()[:2], *candidate.stride()[:2], tiles, spans, span_tiles,
                HAS_LAST=grad_last is not None, HAS_RESET=reset is not None, HAS_LENGTHS=lengths is not None,
                SUMMARY=summary, BC=tile.channels, RUNS=tile.runs, STEPS=tile.steps, STAGES=tile.stages,
                num_warps=tile.warps,
            )  # fmt: skip
    return grad_initial
