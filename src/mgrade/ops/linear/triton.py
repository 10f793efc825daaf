"""Products with time contiguous: cuBLAS for W @ x, Triton for the gradient of W, a sum over batch and time."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mgrade.ops import _triton
from mgrade.ops._backend import TRITON_INTERPRETED, accumulator

_TILE, _TIME = (16, 16) if TRITON_INTERPRETED else (64, 64)
# Enough programs to fill a large chip; fixed, so that rounding does not depend on the device.
_PROGRAMS = 512


@triton.jit
def _outer(
    a, b, out, B, T, N, M, a_b, a_c, b_b, b_c, parts,
    PRECISION: tl.constexpr, TILE: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """out (parts, N, M) = sum over batch rows and steps of a (B, N, T) times b (B, M, T)."""
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    part = tl.program_id(2)
    chunks = (T + BT - 1) // BT
    total = tl.zeros((TILE, TILE), tl.float32)
    for chunk in range((part * B * chunks) // parts, ((part + 1) * B * chunks) // parts):
        batch = tl.zeros((), tl.int64) + chunk // chunks
        step = (chunk % chunks) * BT + tl.arange(0, BT)
        here = step < T
        at_a = a + batch * a_b + row[:, None].to(tl.int64) * a_c + step[None, :]
        left = tl.load(at_a, mask=(row < N)[:, None] & here[None, :], other=0.0).to(tl.float32)
        at_b = b + batch * b_b + column[None, :].to(tl.int64) * b_c + step[:, None]
        right = tl.load(at_b, mask=(column < M)[None, :] & here[:, None], other=0.0).to(tl.float32)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    at = out + (part * N + row[:, None]) * M + column[None, :]
    tl.store(at, total, mask=(row < N)[:, None] & (column < M)[None, :])


def outer(a: Tensor, b: Tensor) -> Tensor:
    """a (batch, n, time), b (batch, m, time), time contiguous -> sum over batch and time of a b^T, (n, m)."""
    batch, n, time = a.shape
    m = b.shape[1]
    if not (batch and time):
        return torch.zeros(n, m, dtype=accumulator(a.dtype), device=a.device)
    grid = triton.cdiv(n, _TILE), triton.cdiv(m, _TILE)
    parts = max(1, min(_PROGRAMS // (grid[0] * grid[1]), batch * triton.cdiv(time, _TIME)))
    out = torch.empty(parts, n, m, dtype=torch.float32, device=a.device)
    _outer[(*grid, parts)](
        a, b, out, batch, time, n, m, *a.stride()[:2], *b.stride()[:2], parts,
        PRECISION=_triton.dot_precision(), TILE=_TILE, BT=_TIME,
    )  # fmt: skip
    return out.sum(0) if parts > 1 else out[0]


def forward(x: Tensor, weight: Tensor) -> Tensor:
    signal = _triton.time_last(x)
    return _triton.time_first(torch.bmm(weight.expand(signal.shape[0], -1, -1), signal))


def backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    pull, signal = _triton.time_last(grad), _triton.time_last(x)
    grad_x = torch.bmm(weight.t().expand(pull.shape[0], -1, -1), pull)
    return _triton.time_first(grad_x), outer(pull, signal).to(weight.dtype)
