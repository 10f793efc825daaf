"""Products with time contiguous: W @ x per batch row, and the sum over batch and time of a b^T.

W @ x is left to cuBLAS, except in bfloat16 for narrow layers: adding a base to it is then free, and a model of narrow
layers alone needs no cuBLAS workspace, which is larger than such a model.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mgrade.ops import _triton
from mgrade.ops._backend import TRITON_INTERPRETED
from mgrade.ops._triton import dot, piece

_TILE, _TIME = (16, 16) if TRITON_INTERPRETED else (64, 128)
_OUTER_WARPS = 4
_ROWS, _STEPS, _DEPTH, _WARPS = (16, 16, 16, 4) if TRITON_INTERPRETED else (128, 64, 32, 4)
# From this many channels on, cuBLAS is faster in bfloat16 too: alone, and followed by an addition.
_WIDE, _WIDE_WITH_BASE = 65, 256
# Enough programs to fill a large chip; a constant, so that rounding does not depend on the device.
_PROGRAMS = 256


@triton.jit
def _product(
    base, gain, bias, x, weight, y, T, N, M, base_b, base_c, x_b, x_c, weight_n, weight_m,
    HAS_BASE: tl.constexpr, HAS_GAIN: tl.constexpr, HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr,
    BN: tl.constexpr, BT: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """y (B, N, T) = weight (N, M) @ x (B, M, T), plus gain (N) * base (B, N, T), plus bias (N): HAS_BASE, HAS_GAIN and
    HAS_BIAS say which of these there are."""
    batch, step = piece(T, BT)
    row = tl.program_id(1) * BN + tl.arange(0, BN)
    here = (row < N)[:, None] & (step < T)[None, :]
    total = tl.zeros((BN, BT), tl.float32)
    for begin in range(0, M, BM):
        column = begin + tl.arange(0, BM)
        some = column < M
        at = weight + row[:, None] * weight_n + column[None, :] * weight_m
        w = tl.load(at, mask=(row < N)[:, None] & some[None, :], other=0.0)
        at = x + batch * x_b + column[:, None].to(tl.int64) * x_c + step[None, :]
        value = tl.load(at, mask=some[:, None] & (step < T)[None, :], other=0.0)
        total = dot(w, value, total, PRECISION)
    if HAS_BASE:
        at = base + batch * base_b + row[:, None].to(tl.int64) * base_c + step[None, :]
        below = tl.load(at, mask=here, other=0.0).to(tl.float32)
        if HAS_GAIN:
            below *= tl.load(gain + row, mask=row < N, other=0.0).to(tl.float32)[:, None]
        total += below
    if HAS_BIAS:
        total += tl.load(bias + row, mask=row < N, other=0.0).to(tl.float32)[:, None]
    tl.store(y + (batch * N + row[:, None]) * T + step[None, :], total.to(y.dtype.element_ty), mask=here)


@triton.jit
def _add(
    y, base, gain, bias, T, N, base_b, base_c,
    HAS_BASE: tl.constexpr, HAS_GAIN: tl.constexpr, HAS_BIAS: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """y (B, N, T) += gain (N) * base (B, N, T) + bias (N), each optional."""
    program = tl.program_id(0).to(tl.int64)
    batch, row = program // N, program % N
    step = tl.program_id(1) * BT + tl.arange(0, BT)
    here = step < T
    at = y + program * T + step
    total = tl.load(at, mask=here).to(tl.float32)
    if HAS_BASE:
        below = tl.load(base + batch * base_b + row * base_c + step, mask=here).to(tl.float32)
        if HAS_GAIN:
            below *= tl.load(gain + row).to(tl.float32)
        total += below
    if HAS_BIAS:
        total += tl.load(bias + row).to(tl.float32)
    tl.store(at, total.to(y.dtype.element_ty), mask=here)


@triton.jit
def _scaled_backward(grad, base, gain, grad_base, parts, T, N, grad_b, grad_c, base_b, base_c, BT: tl.constexpr):
    """grad_base (B, N, T) = gain (N) * grad; parts (B, tiles, N): each tile's sum of grad * base."""
    program = tl.program_id(0).to(tl.int64)
    batch, row = program // N, program % N
    step = tl.program_id(1) * BT + tl.arange(0, BT)
    here = step < T
    pull = tl.load(grad + batch * grad_b + row * grad_c + step, mask=here, other=0.0).to(tl.float32)
    below = tl.load(base + batch * base_b + row * base_c + step, mask=here, other=0.0).to(tl.float32)
    scaled = pull * tl.load(gain + row).to(tl.float32)
    tl.store(grad_base + program * T + step, scaled.to(grad_base.dtype.element_ty), mask=here)
    tl.store(parts + (batch * tl.num_programs(1) + tl.program_id(1)) * N + row, tl.sum(pull * below, 0))


@triton.jit
def _row_sums(a, row, N, T, chunks, begin, end, a_b, a_c, BN: tl.constexpr, BT: tl.constexpr):
    """The sums of some rows of a (B, N, T) over the steps of chunks `begin` to `end`."""
    total = tl.zeros((BN, BT), tl.float32)
    for chunk in range(begin, end):
        batch = tl.zeros((), tl.int64) + chunk // chunks
        step = (chunk % chunks) * BT + tl.arange(0, BT)
        at = a + batch * a_b + row[:, None].to(tl.int64) * a_c + step[None, :]
        total += tl.load(at, mask=(row < N)[:, None] & (step < T)[None, :], other=0.0).to(tl.float32)
    return tl.sum(total, 1)


@triton.jit
def _outer(
    a, b, out, B, T, N, M, size, a_b, a_c, b_b, b_c, parts,
    SUMS: tl.constexpr, PRECISION: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """out (parts, size): the sum over batch rows and steps of a (B, N, T) times b (B, M, T), then with SUMS of a.

    A tile cannot be both multiplied and summed: it would be overwritten while in use (triton-lang/triton#6691). So it
    is multiplied by ones where that is EXACT, and otherwise loaded again.
    """
    row = tl.program_id(0) * BN + tl.arange(0, BN)
    column = tl.program_id(1) * BM + tl.arange(0, BM)
    part = tl.program_id(2)
    chunks = (T + BT - 1) // BT
    total = tl.zeros((BN, BM), tl.float32)
    alone = tl.zeros((BN, 16), tl.float32)
    begin, end = (part * B * chunks) // parts, ((part + 1) * B * chunks) // parts
    EXACT: tl.constexpr = PRECISION == "bf16" and a.dtype.element_ty == tl.bfloat16
    for chunk in range(begin, end):
        batch = tl.zeros((), tl.int64) + chunk // chunks
        step = (chunk % chunks) * BT + tl.arange(0, BT)
        here = step < T
        at_a = a + batch * a_b + row[:, None].to(tl.int64) * a_c + step[None, :]
        left = tl.load(at_a, mask=(row < N)[:, None] & here[None, :], other=0.0)
        at_b = b + batch * b_b + column[None, :].to(tl.int64) * b_c + step[:, None]
        right = tl.load(at_b, mask=(column < M)[None, :] & here[:, None], other=0.0)
        total = dot(left, right, total, PRECISION)
        if SUMS and EXACT:
            alone = dot(left, tl.full((BT, 16), 1.0, left.dtype), alone, PRECISION)
    at = out + part * size + row[:, None] * M + column[None, :]
    tl.store(at, total, mask=(row < N)[:, None] & (column < M)[None, :])
    if SUMS:
        first = tl.program_id(1) == 0  # of the programs with these rows
        if EXACT:
            sums = tl.sum(alone, 1) / 16
        else:
            sums = _row_sums(a, row, N, T, chunks, begin, tl.where(first, end, begin), a_b, a_c, BN, BT)
        tl.store(out + part * size + N * M + row, sums, mask=(row < N) & first)


def outer(a: Tensor, b: Tensor, sums: bool = False) -> Tensor:
    """a (batch, time, n), b (batch, time, m) -> the sum over batch and time of a b^T, (n, m), in float32.

    With `sums`, also that of a alone: the result is then flat, (n m + n).
    """
    a, b = _triton.time_last(a), _triton.time_last(b)
    batch, n, time = a.shape
    m = b.shape[1]
    size = n * m + (n if sums else 0)
    if not (batch and time):
        total = torch.zeros(size, dtype=torch.float32, device=a.device)
    else:
        rows, columns = (min(_TILE, max(16, triton.next_power_of_2(width))) for width in (n, m))
        steps = _TIME if a.element_size() == 2 or _triton.room(a) >= _triton.LARGE else _TIME // 2
        grid = triton.cdiv(n, rows), triton.cdiv(m, columns)
        parts = max(1, min(_PROGRAMS // (grid[0] * grid[1]), batch * triton.cdiv(time, steps)))
        out = torch.empty(parts, size, dtype=torch.float32, device=a.device)
        _outer[(*grid, parts)](
            a, b, out, batch, time, n, m, size, *a.stride()[:2], *b.stride()[:2], parts,
            SUMS=sums, PRECISION=_triton.dot_precision(a), BN=rows, BM=columns, BT=steps, num_warps=_OUTER_WARPS,
        )  # fmt: skip
        total = _triton.sum_parts(out)
    return total if sums else total.view(n, m)


def along_time(x: Tensor) -> Tensor:
    """x (batch, time, channels), copied if its time is not contiguous."""
    return _triton.time_first(_triton.time_last(x))


def scaled_backward(grad: Tensor, base: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    """grad and base (batch, time, n), gain (n) -> gain * grad, and the sum over batch and time of grad * base."""
    pull, below = _triton.time_last(grad), _triton.time_last(base)
    batch, n, time = pull.shape
    grad_base = _triton.empty_time_last(batch, time, n, base)
    if not grad.numel():
        return _triton.time_first(grad_base), torch.zeros_like(gain)
    grid, block = _triton.row_grid(batch, n, time)
    parts = torch.empty(batch, grid[1], n, dtype=torch.float32, device=grad.device)
    strides = *pull.stride()[:2], *below.stride()[:2]
    _scaled_backward[grid](pull, below, gain.contiguous(), grad_base, parts, time, n, *strides, BT=block)
    return _triton.time_first(grad_base), _triton.sum_parts(_triton.sum_parts(parts)).to(gain.dtype)


def product(
    x: Tensor, weight: Tensor, base: Tensor | None = None, bias: Tensor | None = None, gain: Tensor | None = None
) -> Tensor:
    """x (batch, time, m), weight (n, m) -> gain * base + x @ weight^T + bias, (batch, time, n) in the dtype of x."""
    signal, bias, gain = _triton.time_last(x), _triton.dense(bias), _triton.dense(gain)
    batch, m, time = signal.shape
    n, precision = weight.shape[0], _triton.dot_precision(x)
    below = signal if base is None else _triton.time_last(base)
    added = {"HAS_BASE": base is not None, "HAS_GAIN": gain is not None, "HAS_BIAS": bias is not None}
    if precision != "bf16" or max(n, m) >= (_WIDE if base is None else _WIDE_WITH_BASE) or not x.numel():
        y = torch.bmm(weight.to(x.dtype).expand(batch, -1, -1), signal)
        if y.numel() and any(added.values()):
            grid, block = _triton.row_grid(batch, n, time)
            _add[grid](y, below, gain, bias, time, n, *below.stride()[:2], **added, BT=block)
        return _triton.time_first(y)
    y = _triton.empty_time_last(batch, time, n, x)
    weight = weight.to(torch.bfloat16)  # rounded once, not in every tile
    rows = min(max(16, triton.next_power_of_2(n)), _ROWS)
    _product[(batch * triton.cdiv(time, _STEPS), triton.cdiv(n, rows))](
        below, gain, bias, signal, weight, y, time, n, m, *below.stride()[:2], *signal.stride()[:2], *weight.stride(),
        **added, PRECISION=precision, BN=rows, BT=_STEPS,
        BM=min(_DEPTH, max(16, triton.next_power_of_2(m))), num_warps=_WARPS,
    )  # fmt: skip
    return _triton.time_first(y)
