"""The Triton version: mask, scaling and skip in one pass over memory."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from mgrade.ops import _triton
from mgrade.ops._triton import dropped


@triton.jit
def _dropout(
    x, keep, base, y, gain, T, D, x_b, x_c, base_b, base_c,
    DROPS: tl.constexpr, HAS_BASE: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """y (B, D, T) = gain * x where `keep` is set, plus base: one row of time per program."""
    program = tl.program_id(0).to(tl.int64)
    batch, channel = program // D, program % D + tl.arange(0, 1)
    step = tl.program_id(1) * BT + tl.arange(0, BT)
    here = (step < T)[None, :]
    total = tl.load(x + batch * x_b + channel[:, None] * x_c + step[None, :], mask=here, other=0.0).to(tl.float32)
    total = dropped(total, keep, gain, batch, channel, step, T, D, here, DROPS)
    if HAS_BASE:
        at = base + batch * base_b + channel[:, None] * base_c + step[None, :]
        total += tl.load(at, mask=here, other=0.0).to(tl.float32)
    tl.store(y + program * T + step[None, :], total.to(y.dtype.element_ty), mask=here)


def forward(x: Tensor, keep: Tensor, base: Tensor | None, gain: float) -> Tensor:
    batch, time, dim = x.shape
    signal, y = _triton.time_last(x), _triton.empty_time_last(batch, time, dim, x)
    below = signal if base is None else _triton.time_last(base)
    if y.numel():
        (grid, block), (mask, drops) = _triton.row_grid(batch, dim, time), _triton.mask(keep)
        _dropout[grid](
            signal, mask, below, y, gain, time, dim, *signal.stride()[:2], *below.stride()[:2],
            DROPS=drops, HAS_BASE=base is not None, BT=block,
        )  # fmt: skip
    return _triton.time_first(y)
