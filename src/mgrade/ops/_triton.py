"""Helpers shared by the Triton versions.

They work on tensors (batch, channels, time) with time contiguous, because filters and scans run along time. Callers
see (batch, time, channels) as everywhere else. `time_last` and `time_first` convert between the two, without a copy if
time is contiguous already, and results are returned as views of time-contiguous memory.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from mgrade.ops._backend import TRITON_INTERPRETED

# Shared memory of a program on an H100, for which tiles were tuned. An A100 has less, an RTX card still less.
LARGE = 232_448


def room(x: Tensor) -> int:
    """Bytes of shared memory available to a program on the device of x."""
    return _room(x.get_device()) if x.is_cuda else LARGE


@functools.cache
def _room(device: int) -> int:
    chip = torch.cuda.get_device_properties(device)
    return getattr(chip, "shared_memory_per_block_optin", chip.shared_memory_per_block)


def time_last(x: Tensor) -> Tensor:
    """(batch, time, channels) -> (batch, channels, time) with time contiguous."""
    swapped = x.transpose(1, 2)
    return swapped if swapped.stride(2) == 1 or swapped.shape[2] == 1 else swapped.contiguous()


def empty_time_last(batch: int, time: int, channels: int, like: Tensor) -> Tensor:
    """An uninitialised (batch, channels, time)."""
    return torch.empty(batch, channels, time, dtype=like.dtype, device=like.device)


def time_first(x: Tensor) -> Tensor:
    """(batch, channels, time) -> a view (batch, time, channels)."""
    return x.transpose(1, 2)


@triton.jit
def _sum_parts(parts, total, P, N, BP: tl.constexpr, BN: tl.constexpr):
    column = tl.program_id(0) * BN + tl.arange(0, BN)
    sums = tl.zeros((BP, BN), tl.float32)
    for begin in range(0, P, BP):
        row = begin + tl.arange(0, BP)
        mask = (row < P)[:, None] & (column < N)[None, :]
        sums += tl.load(parts + row[:, None] * N + column[None, :], mask=mask, other=0.0)
    tl.store(total + column, tl.sum(sums, 0), mask=column < N)


def sum_parts(parts: Tensor) -> Tensor:
    """The float32 sum over the first dimension, which holds the partial sums of the programs."""
    if parts.shape[0] == 1:
        return parts[0]
    total = torch.empty(parts.shape[1:], dtype=torch.float32, device=parts.device)
    size = total.numel()
    if size:
        _sum_parts[(triton.cdiv(size, 32),)](parts, total, parts.shape[0], size, BP=64, BN=32)
    return total


def dense(tensor: Tensor | None) -> Tensor | None:
    """`tensor` made contiguous, or None."""
    return None if tensor is None else tensor.contiguous()


def mask(keep: Tensor | None) -> tuple[Tensor | None, str]:
    """`keep` (batch, time or 1, dim) with time last, and what it drops: "nothing", "values" or "channels"."""
    if keep is None:
        return None, "nothing"
    return keep.transpose(1, 2).contiguous(), "channels" if keep.shape[1] == 1 else "values"


@triton.jit
def dropped(branch, keep, gain, batch, channel, step, T, D, here, DROPS: tl.constexpr):
    """The branch (channels, time) after dropout: kept values times `gain`. `here` marks elements within bounds."""
    if DROPS == "channels":
        kept = tl.load(keep + batch * D + channel, mask=channel < D, other=0)[:, None]
        branch = tl.where(here & (kept > 0), branch * gain, 0.0)
    elif DROPS == "values":
        kept = tl.load(keep + (batch * D + channel[:, None]) * T + step[None, :], mask=here, other=0)
        branch = tl.where(kept > 0, branch * gain, 0.0)
    return branch


@triton.jit
def piece(T, BT: tl.constexpr):
    """The batch row and the BT steps of this program, in a grid that covers all rows in pieces of BT steps.

    Both are folded into the first grid axis, the only one that may be long.
    """
    pieces = tl.cdiv(T, BT)
    return (tl.program_id(0) // pieces).to(tl.int64), (tl.program_id(0) % pieces) * BT + tl.arange(0, BT)


@triton.jit
def restarts(reset, batch, T, step, here, HAS_RESET: tl.constexpr, BC: tl.constexpr, BT: tl.constexpr):
    """1 where a sequence restarts, (channels, time); `here` marks steps within bounds."""
    restart = tl.zeros((BC, BT), tl.int32)
    if HAS_RESET:
        restart += tl.load(reset + batch * T + step, mask=here, other=0).to(tl.int32)[None, :]
    return restart


@triton.jit
def row_limit(lengths, batch, T, HAS_LENGTHS: tl.constexpr):
    """The number of valid steps of a row."""
    steps = T
    if HAS_LENGTHS:
        steps = tl.minimum(tl.maximum(tl.load(lengths + batch).to(tl.int32), 0), T)
    return steps


def row_grid(batch: int, channels: int, time: int) -> tuple[tuple[int, int], int]:
    """For row-wise kernels: the grid over rows (batch x channels) and blocks of time, and the steps per block."""
    block = min(1024, triton.next_power_of_2(time))
    return (batch * channels, triton.cdiv(time, block)), block


def spans(programs: int, time: int, tile: int, enough: int) -> tuple[int, int, int]:
    """The number of tiles of time, of spans of tiles, and of tiles per span.

    With at least `enough` programs over batch and channels, time is one span. With fewer, it is cut into enough spans
    for about `2 * enough` programs in all.
    """
    tiles = triton.cdiv(time, tile)
    wanted = 1 if programs >= enough else 2 * enough // max(programs, 1)
    span_tiles = max(1, triton.cdiv(tiles, min(wanted, max(tiles, 1))))
    return tiles, max(1, triton.cdiv(tiles, span_tiles)), span_tiles


@triton.jit
def dot(a, b, total, PRECISION: tl.constexpr):
    """total + a @ b, summed in float32; PRECISION says whether the factors are rounded to TF32 or bfloat16."""
    if PRECISION == "bf16":
        total = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), total)
    else:
        total = tl.dot(a.to(tl.float32), b.to(tl.float32), total, input_precision=PRECISION)
    return total


def dot_precision(x: Tensor) -> str:
    """The precision of matrix products with `x`, by `torch.set_float32_matmul_precision`.

    `highest`: float32 accuracy, by three products of TF32 parts. `high`: factors rounded to TF32. `medium`: factors
    rounded to bfloat16. In the last two, bfloat16 factors are used as they are.
    """
    precision = torch.get_float32_matmul_precision()
    if precision == "highest":
        return "ieee" if TRITON_INTERPRETED else "tf32x3"
    return "bf16" if precision == "medium" or x.dtype == torch.bfloat16 else "tf32"
