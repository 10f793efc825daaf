"""The Triton version for CUDA: the filter as a product with a Toeplitz matrix, on the matrix units.

For one channel, the outputs of a tile of time are T @ x with T[s, m] = kernel[m - s]: the same matrix for every tile
of every batch row. So all (batch row, tile) pairs are the rows of one product, and the matrix is written out once per
channel and direction. The gradient of the signal is the same product with time reversed; the gradient of the kernel
sums the diagonals of x^T @ grad. Dilated filters run over every `dilation`-th step. Where a matrix would be mostly
zeros, or restarts rule it out, `triton_direct` takes over.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mgrade.ops import _triton
from mgrade.ops._backend import TRITON_INTERPRETED
from mgrade.ops._triton import dot
from mgrade.ops.delay_conv import triton_direct

# Most programs that share a kernel gradient, per channel and pair of tiles.
_PARTS = 16
# Up to this many taps, a dilated filter runs tap by tap: its matrix would be almost all zeros.
_FEW = 2 if TRITON_INTERPRETED else 16


@triton.jit
def _kernel_forward(weight, position, kernel, K, length, sigma, BLOCK: tl.constexpr):
    channel = tl.program_id(0)
    lag = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for tap in range(0, K):
        p = tl.load(position + channel * K + tap).to(tl.float32)
        distance = (lag.to(tl.float32) - p) / sigma
        total += tl.load(weight + channel * K + tap).to(tl.float32) * tl.exp(-0.5 * distance * distance)
    tl.store(kernel + channel * length + lag, total.to(kernel.dtype.element_ty), mask=lag < length)


@triton.jit
def _kernel_backward(grad_kernel, weight, position, grad_weight, grad_position, K, length, sigma, BLOCK: tl.constexpr):
    channel, tap = tl.program_id(0), tl.program_id(1)
    at = channel * K + tap
    p = tl.load(position + at).to(tl.float32)
    sum_weight = tl.zeros((BLOCK,), tl.float32)
    sum_position = tl.zeros((BLOCK,), tl.float32)
    for begin in range(0, length, BLOCK):
        lag = begin + tl.arange(0, BLOCK)
        grad = tl.load(grad_kernel + channel * length + lag, mask=lag < length, other=0.0).to(tl.float32)
        distance = (lag.to(tl.float32) - p) / sigma
        pull = grad * tl.exp(-0.5 * distance * distance)
        sum_weight += pull
        sum_position += pull * distance
    w = tl.load(weight + at).to(tl.float32)
    tl.store(grad_weight + at, tl.sum(sum_weight, 0).to(grad_weight.dtype.element_ty))
    tl.store(grad_position + at, (w * tl.sum(sum_position, 0) / sigma).to(grad_position.dtype.element_ty))


@triton.jit
def _locate(row, tiles, dilation, TILE: tl.constexpr):
    """A row of the product -> its batch row and first step. Phases vary fastest, so neighbours in time are adjacent."""
    return (row // (tiles * dilation)).to(tl.int64), ((row // dilation) % tiles) * TILE * dilation + row % dilation


@triton.jit
def _inputs(
    x, history, batch, channel, first, column, here, dilation, T, D, P, x_b, x_c,
    HAS_HISTORY: tl.constexpr, DILATED: tl.constexpr,
):  # fmt: skip
    """The inputs (rows, columns) at steps first + column dilation; steps before the first input come from `history`.

    Threads run along time: along the columns, or along the rows if columns are `dilation` steps apart.
    """
    AXIS: tl.constexpr = 0 if DILATED else 1
    batch, here = tl.expand_dims(batch, AXIS), tl.expand_dims(here, AXIS)
    step = tl.expand_dims(first, AXIS) + tl.expand_dims(column, 1 - AXIS) * dilation
    inside = here & (step < T)
    value = tl.load(x + batch * x_b + channel * x_c + step, mask=inside & (step >= 0), other=0.0)
    if HAS_HISTORY:
        past = history + batch * P * D + (P + step) * D + channel
        value += tl.load(past, mask=inside & (step < 0) & (step >= -P), other=0.0)
    if DILATED:
        value = tl.trans(value)
    return value


@triton.jit
def _spread(kernel, matrices, K, blocks, DIRECTION: tl.constexpr, TILE: tl.constexpr):
    """matrices (D, blocks, TILE, TILE): the kernel of every channel as the matrices that `_filter` multiplies with."""
    channel = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    inner, outer = tl.arange(0, TILE)[:, None], tl.arange(0, TILE)[None, :]
    lag = block * TILE + DIRECTION * (inner - outer)
    value = tl.load(kernel + channel * K + lag, mask=(lag >= 0) & (lag < K), other=0.0)
    tl.store(matrices + ((channel * blocks + block) * TILE + inner) * TILE + outer, value)


@triton.jit
def _filter(
    x, matrices, history, skip, y, rows, T, D, K, P, tiles, dilation, earlier, x_b, x_c, skip_b, skip_c, y_b, y_c,
    DIRECTION: tl.constexpr, HAS_HISTORY: tl.constexpr, HAS_SKIP: tl.constexpr, DILATED: tl.constexpr,
    PRECISION: tl.constexpr, TILE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """y[t] = sum_n kernel[n] x[t + DIRECTION n dilation], plus skip[t]; outputs begin `earlier` steps before x."""
    channel = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    here = row < rows
    batch, first = _locate(row, tiles, dilation, TILE)
    first -= earlier
    inner, outer = tl.arange(0, TILE), tl.arange(0, TILE)
    total = tl.zeros((ROWS, TILE), tl.float32)
    blocks = (K + TILE - 2) // TILE + 1
    for block in range(0, blocks):
        base = DIRECTION * block * TILE
        value = _inputs(
            x, history, batch, channel, first, base + inner, here, dilation, T, D, P, x_b, x_c, HAS_HISTORY, DILATED
        )
        toeplitz = tl.load(matrices + ((channel * blocks + block) * TILE + inner[:, None]) * TILE + outer[None, :])
        total = dot(value, toeplitz, total, PRECISION)
    # A product would carry NaN and Inf into outputs that must not see them, since 0 * NaN is NaN. If there are any,
    # leave them out of the product and mark the outputs that do see them.
    if tl.max(tl.max(((total - total) != 0.0).to(tl.int32), 1), 0) > 0:
        total = tl.zeros((ROWS, TILE), tl.float32)
        for block in range(0, blocks):
            base = DIRECTION * block * TILE
            value = _inputs(
                x, history, batch, channel, first, base + inner, here, dilation, T, D, P, x_b, x_c, HAS_HISTORY, DILATED
            )
            lag = DIRECTION * (base + inner[:, None] - outer[None, :])
            valid = (lag >= 0) & (lag < K)
            toeplitz = tl.load(matrices + ((channel * blocks + block) * TILE + inner[:, None]) * TILE + outer[None, :])
            strange = (value - value) != 0.0
            seen = dot(strange.to(tl.float32), valid.to(tl.float32), tl.zeros((ROWS, TILE), tl.float32), PRECISION)
            total = dot(tl.where(strange, 0.0, value), toeplitz, total, PRECISION)
            total = tl.where(seen > 0.5, float("nan"), total)
    if HAS_SKIP:
        total += _inputs(
            skip, history, batch, channel, first, outer, here, dilation, T, D, P, skip_b, skip_c, False, DILATED
        ).to(tl.float32)
    AXIS: tl.constexpr = 0 if DILATED else 1
    step = tl.expand_dims(first, AXIS) + tl.expand_dims(outer, 1 - AXIS) * dilation
    at_y = tl.expand_dims(y + batch * y_b + channel * y_c + earlier, AXIS) + step
    value = total.to(y.dtype.element_ty)
    if DILATED:
        value = tl.trans(value)
    tl.store(at_y, value, mask=tl.expand_dims(here, AXIS) & (step < T))


@triton.jit
def _correlate(
    grad, x, history, scratch, grad_kernel, rows, T, D, K, P, tiles, dilation, grad_b, grad_c, x_b, x_c, blocks, parts,
    HAS_HISTORY: tl.constexpr, DILATED: tl.constexpr, PRECISION: tl.constexpr, TILE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """grad_kernel (parts, blocks, D, 2 TILE): for one pair of tiles `block` apart, the sums over their diagonals."""
    channel = tl.program_id(0).to(tl.int64)
    block, part = tl.program_id(1), tl.program_id(2)
    inner = tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    groups = (rows + ROWS - 1) // ROWS
    for group in range(part * groups // parts, (part + 1) * groups // parts):
        row = group * ROWS + tl.arange(0, ROWS)
        here = row < rows
        batch, first = _locate(row, tiles, dilation, TILE)
        pull = _inputs(
            grad, history, batch, channel, first, inner, here, dilation, T, D, P, grad_b, grad_c, False, DILATED
        )
        value = _inputs(
            x, history, batch, channel, first, inner - block * TILE, here, dilation, T, D, P, x_b, x_c,
            HAS_HISTORY, DILATED,
        )  # fmt: skip
        total = dot(tl.trans(value), pull, total, PRECISION)
    # total[s, m] belongs to lag m - s + block TILE: store it and load it again along the diagonals
    program = (part * blocks + block) * D + channel
    mine = scratch + program * TILE * TILE
    tl.store(mine + inner[:, None] * TILE + inner[None, :], total)
    tl.debug_barrier()
    diagonal = tl.arange(0, 2 * TILE)  # m - s + TILE
    s = inner[:, None] + TILE - diagonal[None, :]
    value = tl.load(mine + s * TILE + inner[:, None], mask=(s >= 0) & (s < TILE), other=0.0)
    tl.store(grad_kernel + program * 2 * TILE + diagonal, tl.sum(value, 0))


@triton.jit
def _collect(sums, grad_kernel, D, K, blocks, parts, TILE: tl.constexpr):
    """grad_kernel (D, K) from the diagonals: diagonal j of block b has lag (b - 1) TILE + j; each lag occurs twice."""
    channel = tl.program_id(0)
    block = tl.program_id(1)
    inner = tl.arange(0, TILE)
    total = tl.zeros((TILE,), tl.float32)
    for part in range(0, parts):
        at = sums + ((part * blocks + block) * D + channel) * 2 * TILE + inner
        total += tl.load(at + TILE)
        if block + 1 < blocks:
            total += tl.load(at + D * 2 * TILE)
    lag = block * TILE + inner
    tl.store(grad_kernel + channel * K + lag, total, mask=lag < K)


def kernel_forward(weight: Tensor, position: Tensor, length: int, sigma: float) -> Tensor:
    channels, taps = weight.shape
    weight, position = weight.contiguous(), position.contiguous()
    kernel = weight.new_empty(channels, length)
    block = min(256, triton.next_power_of_2(length))
    if channels:
        _kernel_forward[(channels, triton.cdiv(length, block))](
            weight, position, kernel, taps, length, sigma, BLOCK=block
        )
    return kernel


def kernel_backward(grad_kernel: Tensor, weight: Tensor, position: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
    channels, taps = weight.shape
    length = grad_kernel.shape[1]
    weight, position = weight.contiguous(), position.contiguous()
    grad_weight, grad_position = torch.empty_like(weight), torch.empty_like(position)
    if channels and taps:
        _kernel_backward[(channels, taps)](
            grad_kernel.contiguous(), weight, position, grad_weight, grad_position, taps, length, sigma,
            BLOCK=min(256, triton.next_power_of_2(length)),
        )  # fmt: skip
    return grad_weight, grad_position


def _filter_precision(x: Tensor) -> str:
    """As for other products, but float32 signals use TF32 at least: rounding them further would cost more time."""
    precision = _triton.dot_precision(x)
    return "tf32" if precision == "bf16" and x.dtype == torch.float32 else precision


def _filter_blocks(x: Tensor, dilation: int) -> dict[str, int]:
    """Steps per tile, (batch row, tile) pairs per program, and warps, as measured on an H200."""
    if TRITON_INTERPRETED:
        return {"TILE": 16, "ROWS": 16, "num_warps": 4}
    if _filter_precision(x) == "bf16":
        return {"TILE": 64, "ROWS": 128 if dilation == 1 else 64, "num_warps": 4}
    return {"TILE": 32, "ROWS": 64, "num_warps": 4}


def _correlate_blocks(x: Tensor, taps: int, dilation: int) -> dict[str, int]:
    """Steps per tile, pairs per product, and warps: wide tiles for long kernels, unless precision would suffer."""
    if TRITON_INTERPRETED:
        return {"TILE": 16, "ROWS": 16, "num_warps": 4}
    if _filter_precision(x) == "bf16" and taps >= 128:
        return {"TILE": 64, "ROWS": 64, "num_warps": 4 if dilation == 1 else 8}
    return {"TILE": 32, "ROWS": 64, "num_warps": 2}


def _launch(
    x: Tensor,
    kernel: Tensor,
    history: Tensor | None,
    skip: Tensor | None,
    y: Tensor,
    dilation: int,
    direction: int,
    earlier: int,
) -> None:
    """Filters x (batch, channels, time) into y, which begins `earlier` steps before x."""
    batch, channels, time = x.shape
    taps = kernel.shape[1]
    blocks = _filter_blocks(x, dilation)
    kernel = kernel.to(x.dtype) if _filter_precision(x) == "bf16" else kernel
    tiles = triton.cdiv(triton.cdiv(time + earlier, dilation), blocks["TILE"])
    rows = batch * dilation * tiles
    strides = (t.stride()[:2] if t is not None else (0, 0) for t in (x, skip, y))
    kernel, tile = kernel.contiguous(), blocks["TILE"]
    pieces = (taps + tile - 2) // tile + 1
    matrices = torch.empty(channels, pieces, tile, tile, dtype=kernel.dtype, device=x.device)
    _spread[(channels, pieces)](kernel, matrices, taps, pieces, DIRECTION=direction, TILE=tile)
    _filter[(triton.cdiv(rows, blocks["ROWS"]), channels)](
        x, matrices, history, skip, y, rows, time, channels, taps, (taps - 1) * dilation, tiles, dilation,
        earlier, *(size for pair in strides for size in pair),
        DIRECTION=direction, HAS_HISTORY=history is not None and taps > 1, HAS_SKIP=skip is not None,
        DILATED=dilation > 1, PRECISION=_filter_precision(x), **blocks,
    )  # fmt: skip


def _tap_by_tap(kernel: Tensor, reset: Tensor | None, dilation: int) -> bool:
    return reset is not None or (dilation > 1 and kernel.shape[1] <= _FEW)


def fir_forward(
    x: Tensor, kernel: Tensor, history: Tensor | None, reset: Tensor | None, dilation: int, skip: bool
) -> Tensor:
    if _tap_by_tap(kernel, reset, dilation):
        return triton_direct.fir_forward(x, kernel, history, reset, dilation, skip)
    batch, time, channels = x.shape
    signal = _triton.time_last(x)
    y = _triton.empty_time_last(batch, time, channels, x)
    if y.numel():
        _launch(signal, kernel, _triton.dense(history), signal if skip else None, y, dilation, -1, 0)
    return _triton.time_first(y)


def fir_backward(
    grad: Tensor,
    x: Tensor,
    kernel: Tensor,
    history: Tensor | None,
    reset: Tensor | None,
    dilation: int,
    skip: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    if _tap_by_tap(kernel, reset, dilation):
        return triton_direct.fir_backward(grad, x, kernel, history, reset, dilation, skip)
    batch, time, channels = x.shape
    past = 0 if history is None else history.shape[1]
    pull, signal, history = _triton.time_last(grad), _triton.time_last(x), _triton.dense(history)
    rows = _triton.empty_time_last(batch, past + time, channels, x)
    if x.numel():
        _launch(pull, kernel, None, pull if skip else None, rows, dilation, 1, past)
    elif rows.numel():
        rows.zero_()
    grad_x = _triton.time_first(rows[..., past:] if past == 0 else rows[..., past:].contiguous())
    return (
        grad_x,
        _kernel_gradient(pull, signal, kernel, history, dilation),
        rows[..., :past].transpose(1, 2).contiguous(),
    )


def _kernel_gradient(grad: Tensor, x: Tensor, kernel: Tensor, history: Tensor | None, dilation: int) -> Tensor:
    batch, channels, time = x.shape
    taps = kernel.shape[1]
    if not x.numel():
        return torch.zeros_like(kernel, dtype=torch.float32)
    sizes = _correlate_blocks(x, taps, dilation)
    tile = sizes["TILE"]
    tiles = triton.cdiv(triton.cdiv(time, dilation), tile)
    rows = batch * dilation * tiles
    blocks = (taps + tile - 2) // tile + 1
    parts = max(1, min(_PARTS, triton.cdiv(rows, sizes["ROWS"]), 1024 // (channels * blocks)))
    scratch = torch.empty(parts * blocks * channels * tile * tile, dtype=torch.float32, device=x.device)
    sums = torch.empty(parts, blocks, channels, 2 * tile, dtype=torch.float32, device=x.device)
    _correlate[(channels, blocks, parts)](
        grad, x, history, scratch, sums, rows, time, channels, taps, (taps - 1) * dilation, tiles, dilation,
        *grad.stride()[:2], *x.stride()[:2], blocks, parts,
        HAS_HISTORY=history is not None and taps > 1, DILATED=dilation > 1, PRECISION=_filter_precision(x), **sizes,
    )  # fmt: skip
    grad_kernel = torch.empty(channels, taps, dtype=torch.float32, device=x.device)
    _collect[(channels, triton.cdiv(taps, tile))](sums, grad_kernel, channels, taps, blocks, parts, TILE=tile)
    return grad_kernel
