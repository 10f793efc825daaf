"""The Triton version for CUDA: tiles of channels by time, an associative scan inside a tile, a carry between.

Structured like `gated_scan`, spans of time included. The decay never changes, so the state before a tile reaches its
step j through decay^(j + 1), from a table computed in float64. Over thousands of steps even the rounding of such a
power matters, because it is the same in every tile.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mgrade.ops import _triton
from mgrade.ops._backend import TRITON_INTERPRETED
from mgrade.ops._triton import restarts, row_limit

# Many small programs, as tuned on an H200: one warp and one channel each, without prefetching.
_CHANNELS, _TIME = (4, 16) if TRITON_INTERPRETED else (1, 256)
_STAGES, _WARPS = 1, 1
# As in `gated_scan`: with fewer programs than this, time is cut into spans.
_ENOUGH = 512 if TRITON_INTERPRETED else 2048


@triton.jit
def _times(a_re, a_im, b_re, b_im):
    return a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re


@triton.jit
def _compose(keep_a, turn_a, re_a, im_a, restart_a, keep_b, turn_b, re_b, im_b, restart_b):
    """Step a, then step b: the past is multiplied by keep + i turn. A restart in b masks a out."""
    seen_re, seen_im = _times(keep_b, turn_b, re_a, im_a)
    seen_re, seen_im = tl.where(restart_b > 0, 0.0, seen_re), tl.where(restart_b > 0, 0.0, seen_im)
    keep, turn = _times(keep_a, turn_a, keep_b, turn_b)
    return keep, turn, re_b + seen_re, im_b + seen_im, tl.maximum(restart_a, restart_b)


@triton.jit
def _compose_plain(keep_a, turn_a, re_a, im_a, keep_b, turn_b, re_b, im_b):
    """Step a, then step b, without restarts."""
    seen_re, seen_im = _times(keep_b, turn_b, re_a, im_a)
    keep, turn = _times(keep_a, turn_a, keep_b, turn_b)
    return keep, turn, re_b + seen_re, im_b + seen_im


@triton.jit
def _scan(
    keep, turn, power_re, power_im, state_re, state_im, re, im, restart, HAS_RESET: tl.constexpr, REVERSE: tl.constexpr
):
    """The scan of a tile from the state before it, and the steps at or after a restart in the tile."""
    keep, turn = keep[:, None] + tl.zeros_like(re), turn[:, None] + tl.zeros_like(im)
    if HAS_RESET:
        parts = (keep, turn, re, im, restart)
        _, _, re, im, cut = tl.associative_scan(parts, 1, _compose, reverse=REVERSE)
    else:
        _, _, re, im = tl.associative_scan((keep, turn, re, im), 1, _compose_plain, reverse=REVERSE)
        cut = restart
    seen_re, seen_im = _times(power_re, power_im, state_re[:, None], state_im[:, None])
    return re + tl.where(cut > 0, 0.0, seen_re), im + tl.where(cut > 0, 0.0, seen_im), cut


@triton.jit
def _pair(pointer, channel, inside):
    """The complex numbers of some channels, from pairs side by side."""
    at = pointer + 2 * channel
    return tl.load(at, mask=inside, other=0.0), tl.load(at + 1, mask=inside, other=0.0)


@triton.jit
def _store_pair(pointer, channel, re, im, inside):
    tl.store(pointer + 2 * channel, re, mask=inside)
    tl.store(pointer + 2 * channel + 1, im, mask=inside)


@triton.jit
def _rows(pointer, stride, channel, column, mask):
    """A tile of complex numbers (channels, columns), real and imaginary parts in alternating rows."""
    at = pointer + (2 * channel[:, None]).to(tl.int64) * stride + column[None, :]
    re = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    return re, tl.load(at + stride, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _store_rows(pointer, stride, channel, column, re, im, mask):
    at = pointer + (2 * channel[:, None]).to(tl.int64) * stride + column[None, :]
    tl.store(at, re.to(pointer.dtype.element_ty), mask=mask)
    tl.store(at + stride, im.to(pointer.dtype.element_ty), mask=mask)


@triton.jit
def _column(tile, at):
    """One column of a tile."""
    return tl.sum(tl.where(at[None, :], tile, 0.0), 1)


@triton.jit
def _entering(maps, batch, span, spans, channel, H, inside, re, im):
    """A state carried through the maps (batch, spans, 4, H) of the spans before `span`."""
    for before in range(0, span):
        at = maps + ((batch * spans + before) * 4) * H + channel
        keep, turn = tl.load(at, mask=inside, other=0.0), tl.load(at + H, mask=inside, other=0.0)
        seen_re, seen_im = _times(keep, turn, re, im)
        gone = (keep == 0.0) & (turn == 0.0)  # exactly zero means a restart: the past is masked out
        re = tl.load(at + 2 * H, mask=inside, other=0.0) + tl.where(gone, 0.0, seen_re)
        im = tl.load(at + 3 * H, mask=inside, other=0.0) + tl.where(gone, 0.0, seen_im)
    return re, im


@triton.jit
def _store_map(maps, batch, span, spans, channel, H, inside, keep, turn, re, im):
    at = maps + ((batch * spans + span) * 4) * H + channel
    tl.store(at, keep, mask=inside)
    tl.store(at + H, turn, mask=inside)
    tl.store(at + 2 * H, re, mask=inside)
    tl.store(at + 3 * H, im, mask=inside)


@triton.jit
def _powers(decay, powers, H, BITS: tl.constexpr, BC: tl.constexpr, BT: tl.constexpr):
    """powers (H, 2, BT): decay to the powers 1 to BT, by repeated squaring in float64."""
    channel = tl.program_id(0) * BC + tl.arange(0, BC)
    column = tl.arange(0, BT)
    inside = channel < H
    square_re, square_im = _pair(decay, channel, inside)
    square_re, square_im = square_re.to(tl.float64)[:, None], square_im.to(tl.float64)[:, None]
    re, im = tl.full((BC, BT), 1.0, tl.float64), tl.zeros((BC, BT), tl.float64)
    for bit in tl.static_range(BITS):
        has = (((column + 1) >> bit) & 1)[None, :] > 0
        more_re, more_im = _times(re, im, square_re, square_im)
        re, im = tl.where(has, more_re, re), tl.where(has, more_im, im)
        square_re, square_im = _times(square_re, square_im, square_re, square_im)
    _store_rows(powers, BT, channel, column, re, im, inside[:, None] & (column < BT)[None, :])


@triton.jit
def _scan_forward(
    decay, powers, drive, initial, reset, lengths, maps, h, last, T, H, drive_b, drive_c, tiles, spans, span_tiles,
    HAS_INITIAL: tl.constexpr, HAS_RESET: tl.constexpr, HAS_LENGTHS: tl.constexpr, SUMMARY: tl.constexpr,
    BC: tl.constexpr, BT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One span of one block of channels: its states, or its map with SUMMARY."""
    batch = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BC + tl.arange(0, BC)
    span = tl.program_id(2)
    inside = channel < H
    end = row_limit(lengths, batch, T, HAS_LENGTHS) - 1  # the last valid step
    column = tl.arange(0, BT)
    decay_re, decay_im = _pair(decay, channel, inside)
    power_re, power_im = _rows(powers, BT, channel, column, inside[:, None])
    whole_re, whole_im = _column(power_re, column == BT - 1), _column(power_im, column == BT - 1)
    re, im = tl.zeros((BC,), tl.float32), tl.zeros((BC,), tl.float32)
    keep, turn = tl.full((BC,), 1.0, tl.float32), tl.zeros((BC,), tl.float32)
    if not SUMMARY:
        if HAS_INITIAL:
            re, im = _pair(initial + batch * 2 * H, channel, inside)
        if (end < 0) & (span == 0):
            _store_pair(last + batch * 2 * H, channel, re, im, inside)
        re, im = _entering(maps, batch, span, spans, channel, H, inside, re, im)
    for tile in tl.range(span * span_tiles, tl.minimum((span + 1) * span_tiles, tiles), num_stages=STAGES):
        step = tile * BT + column
        here = step < T
        mask = inside[:, None] & here[None, :]
        into_re, into_im = _rows(drive + batch * drive_b, drive_c, channel, step, mask)
        restart = restarts(reset, batch, T, step, here, HAS_RESET, BC, BT)
        out_re, out_im, cut = _scan(
            decay_re, decay_im, power_re, power_im, re, im, into_re, into_im, restart, HAS_RESET, False
        )
        if SUMMARY:
            keep, turn = _times(keep, turn, whole_re, whole_im)
            if HAS_RESET:
                gone = tl.max(cut, 1) > 0
                keep, turn = tl.where(gone, 0.0, keep), tl.where(gone, 0.0, turn)
        else:
            _store_rows(h + batch * 2 * H * T, T, channel, step, out_re, out_im, mask)
            if (end >= 0) & (end // BT == tile):
                last_re, last_im = _column(out_re, step == end), _column(out_im, step == end)
                _store_pair(last + batch * 2 * H, channel, last_re, last_im, inside)
        # the last tile may be incomplete, but nothing follows it
        re, im = _column(out_re, column == BT - 1), _column(out_im, column == BT - 1)
    if SUMMARY:
        _store_map(maps, batch, span, spans, channel, H, inside, keep, turn, re, im)


@triton.jit
def _scan_backward(
    grad, grad_last, decay, powers, initial, reset, lengths, h, maps, grad_drive, parts, grad_initial,
    T, H, grad_b, grad_c, h_b, h_c, tiles, spans, span_tiles,
    HAS_LAST: tl.constexpr, HAS_INITIAL: tl.constexpr, HAS_RESET: tl.constexpr, HAS_LENGTHS: tl.constexpr,
    SUMMARY: tl.constexpr, BC: tl.constexpr, BT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One span, backwards in time: spans, tiles and steps are counted from the end."""
    batch = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BC + tl.arange(0, BC)
    span = tl.program_id(2)
    inside = channel < H
    end = row_limit(lengths, batch, T, HAS_LENGTHS) - 1
    column = tl.arange(0, BT)
    decay_re, decay_im = _pair(decay, channel, inside)
    decay_im = -decay_im
    # an incomplete tile is the first in this direction: nothing enters it
    power_re, power_im = _rows(powers, BT, channel, BT - 1 - column, inside[:, None])
    power_im = -power_im
    whole_re, whole_im = _column(power_re, column == 0), _column(power_im, column == 0)
    last_re, last_im = tl.zeros((BC,), tl.float32), tl.zeros((BC,), tl.float32)
    if HAS_LAST:
        last_re, last_im = _pair(grad_last + batch * 2 * H, channel, inside)
    # dL/dh at the first step after the tile; zero if that is a restart
    re, im = tl.zeros((BC,), tl.float32), tl.zeros((BC,), tl.float32)
    keep, turn = tl.full((BC,), 1.0, tl.float32), tl.zeros((BC,), tl.float32)
    if not SUMMARY:
        re, im = _entering(maps, batch, span, spans, channel, H, inside, re, im)
    sum_re, sum_im = tl.zeros((BC, BT), tl.float32), tl.zeros((BC, BT), tl.float32)
    for index in tl.range(span * span_tiles, tl.minimum((span + 1) * span_tiles, tiles), num_stages=STAGES):
        tile = tiles - 1 - index
        step = tile * BT + column
        here = step < T
        mask = inside[:, None] & here[None, :]
        pull_re, pull_im = _rows(grad + batch * grad_b, grad_c, channel, step, mask)
        if HAS_LAST:
            final = (step == end)[None, :]
            pull_re += tl.where(final, last_re[:, None], 0.0)
            pull_im += tl.where(final, last_im[:, None], 0.0)
        later = (step + 1 < T) & (column < BT - 1)
        restart_later = restarts(reset, batch, T, step + 1, later, HAS_RESET, BC, BT)
        total_re, total_im, _ = _scan(
            decay_re, decay_im, power_re, power_im, re, im, pull_re, pull_im, restart_later, HAS_RESET, True
        )
        restart = restarts(reset, batch, T, step, here, HAS_RESET, BC, BT)
        if SUMMARY:
            keep, turn = _times(keep, turn, whole_re, whole_im)
            if HAS_RESET:
                gone = tl.max(restart, 1) > 0
                keep, turn = tl.where(gone, 0.0, keep), tl.where(gone, 0.0, turn)
        else:
            _store_rows(grad_drive + batch * 2 * H * T, T, channel, step, total_re, total_im, mask)
            earlier = mask & (step > 0)[None, :]
            before_re, before_im = _rows(h + batch * h_b, h_c, channel, step - 1, earlier)
            if HAS_INITIAL:
                first_re, first_im = _pair(initial + batch * 2 * H, channel, inside)
                before_re += tl.where((step == 0)[None, :], first_re[:, None], 0.0)
                before_im += tl.where((step == 0)[None, :], first_im[:, None], 0.0)
            more_re, more_im = _times(before_re, -before_im, total_re, total_im)
            sum_re += tl.where(restart > 0, 0.0, more_re)
            sum_im += tl.where(restart > 0, 0.0, more_im)
        re = _column(tl.where(restart > 0, 0.0, total_re), column == 0)
        im = _column(tl.where(restart > 0, 0.0, total_im), column == 0)
    if SUMMARY:
        _store_map(maps, batch, span, spans, channel, H, inside, keep, turn, re, im)
    else:
        _store_pair(parts + (batch * spans + span) * 2 * H, channel, tl.sum(sum_re, 1), tl.sum(sum_im, 1), inside)
        if span == spans - 1:
            re, im = _times(decay_re, decay_im, re, im)
            if end < 0:
                re, im = re + last_re, im + last_im
            _store_pair(grad_initial + batch * 2 * H, channel, re, im, inside)


def _real(numbers: Tensor | None) -> Tensor | None:
    """The contiguous pairs of a small complex tensor, or None."""
    return None if numbers is None else torch.view_as_real(numbers.contiguous())


def _table(decay: Tensor) -> Tensor:
    hidden = decay.shape[0]
    powers = torch.empty(hidden, 2, _TIME, dtype=torch.float32, device=decay.device)
    grid = (triton.cdiv(hidden, _CHANNELS),)
    _powers[grid](_real(decay), powers, hidden, BITS=_TIME.bit_length(), BC=_CHANNELS, BT=_TIME)
    return powers


def _spans(batch: int, time: int, hidden: int) -> tuple[int, int, int]:
    return _triton.spans(batch * triton.cdiv(hidden, _CHANNELS), time, _TIME, _ENOUGH)


def forward(
    decay: Tensor, drive: Tensor, initial: Tensor | None, reset: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    batch, time, width = drive.shape
    hidden = width // 2
    u = _triton.time_last(drive)
    h = _triton.empty_time_last(batch, time, width, drive)
    last = decay.new_empty(batch, hidden)
    if last.numel():
        reset, lengths, powers = _triton.dense(reset), _triton.dense(lengths), _table(decay)
        tiles, spans, span_tiles = _spans(batch, time, hidden)
        maps = torch.empty(batch, spans, 4, hidden, dtype=torch.float32, device=drive.device)
        for summary in (True, False) if spans > 1 else (False,):
            _scan_forward[(batch, triton.cdiv(hidden, _CHANNELS), spans)](
                _real(decay), powers, u, _real(initial), reset, lengths, maps, h, torch.view_as_real(last),
                time, hidden, *u.stride()[:2], tiles, spans, span_tiles,
                HAS_INITIAL=initial is not None, HAS_RESET=reset is not None, HAS_LENGTHS=lengths is not None,
                SUMMARY=summary, BC=_CHANNELS, BT=_TIME, STAGES=_STAGES, num_warps=_WARPS,
            )  # fmt: skip
    return _triton.time_first(h), last


def backward(
    grad_h: Tensor,
    grad_last: Tensor | None,
    decay: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
    h: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, time, width = h.shape
    hidden = width // 2
    pull, states = _triton.time_last(grad_h), _triton.time_last(h)
    grad_drive = _triton.empty_time_last(batch, time, width, h)
    grad_initial = decay.new_empty(batch, hidden)
    if not grad_initial.numel():
        return torch.zeros_like(decay), _triton.time_first(grad_drive), grad_initial
    reset, lengths, powers = _triton.dense(reset), _triton.dense(lengths), _table(decay)
    tiles, spans, span_tiles = _spans(batch, time, hidden)
    maps = torch.empty(batch, spans, 4, hidden, dtype=torch.float32, device=h.device)
    parts = torch.empty(batch * spans, hidden, 2, dtype=torch.float32, device=h.device)
    for summary in (True, False) if spans > 1 else (False,):
        _scan_backward[(batch, triton.cdiv(hidden, _CHANNELS), spans)](
            pull, _real(grad_last), _real(decay), powers, _real(initial), reset, lengths, states, maps,
            grad_drive, parts, torch.view_as_real(grad_initial), time, hidden, *pull.stride()[:2],
            *states.stride()[:2], tiles, spans, span_tiles,
            HAS_LAST=grad_last is not None, HAS_INITIAL=initial is not None, HAS_RESET=reset is not None,
            HAS_LENGTHS=lengths is not None, SUMMARY=summary, BC=_CHANNELS, BT=_TIME, STAGES=_STAGES,
            num_warps=_WARPS,
        )  # fmt: skip
    grad_decay = torch.view_as_complex(_triton.sum_parts(parts))
    return grad_decay, _triton.time_first(grad_drive), grad_initial
