"""The filter tap by tap, on CUDA: one channel per row of time, where a matrix product would not do well.

That is with restarts, where the visible past differs from step to step, and with few taps far apart.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mgrade.ops import _triton
from mgrade.ops._backend import TRITON_INTERPRETED
from mgrade.ops.delay_conv.reference import with_skip

# Steps and taps at a time in the gradient of the kernel.
_TIME, _TAPS = (16, 2) if TRITON_INTERPRETED else (256, 8)
# Groups of batch rows with separate sums of the kernel gradient; a constant, so that sums do not depend on the device.
_PARTS = 16


@triton.jit
def _since(start, batch, T, P, step, here, HAS_START: tl.constexpr):
    """The oldest step visible to each step."""
    oldest = tl.zeros_like(step) - P
    if HAS_START:
        oldest = tl.load(start + batch * T + step, mask=here, other=0)
    return oldest


@triton.jit
def _rows(x, history, batch, channel, row, seen, D, P, x_b, x_c, HAS_HISTORY: tl.constexpr):
    """The visible inputs at `row`, in float32; negative rows come from `history`."""
    value = tl.load(x + batch * x_b + channel * x_c + row, mask=seen & (row >= 0), other=0.0).to(tl.float32)
    if HAS_HISTORY:
        past = history + (batch * P + P + row) * D + channel
        value += tl.load(past, mask=seen & (row < 0), other=0.0).to(tl.float32)
    return value


@triton.jit
def _fir_forward(
    x, kernel, history, start, y, T, D, K, P, dilation, x_b, x_c,
    HAS_HISTORY: tl.constexpr, HAS_START: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """kernel (D, K); start (B, T): the oldest step visible to each step, if restarts hide any."""
    program = tl.program_id(0).to(tl.int64)
    batch, channel = program // D, program % D
    step = tl.program_id(1) * BT + tl.arange(0, BT)
    here = step < T
    oldest = _since(start, batch, T, P, step, here, HAS_START)
    total = tl.zeros((BT,), tl.float32)
    for tap in range(0, K):
        row = step - tap * dilation
        value = _rows(x, history, batch, channel, row, here & (row >= oldest), D, P, x_b, x_c, HAS_HISTORY)
        total += tl.load(kernel + channel * K + tap) * value
    tl.store(y + program * T + step, total.to(y.dtype.element_ty), mask=here)


@triton.jit
def _fir_backward_rows(
    grad, kernel, start, grad_rows, T, D, K, past, dilation, grad_b, grad_c,
    HAS_START: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """The gradient of the `past` rows of history, if any, followed by that of x."""
    program = tl.program_id(0).to(tl.int64)
    batch, channel = program // D, program % D
    row = tl.program_id(1) * BT + tl.arange(0, BT) - past
    total = tl.zeros((BT,), tl.float32)
    for tap in range(0, K):
        step = row + tap * dilation
        seen = (step >= 0) & (step < T)
        seen = seen & (row >= _since(start, batch, T, past, step, seen, HAS_START))
        pull = tl.load(grad + batch * grad_b + channel * grad_c + step, mask=seen, other=0.0)
        total += tl.load(kernel + channel * K + tap) * pull.to(tl.float32)
    out = grad_rows + program * (past + T) + past + row
    tl.store(out, total.to(grad_rows.dtype.element_ty), mask=row < T)


@triton.jit
def _fir_backward_kernel(
    grad, x, history, start, grad_kernel, B, T, D, K, P, dilation, grad_b, grad_c, x_b, x_c, parts,
    HAS_HISTORY: tl.constexpr, HAS_START: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """grad_kernel (parts, D, K): some taps of one channel and one group of batch rows per program."""
    channel = tl.program_id(0).to(tl.int64)
    tap = tl.program_id(1) * BK + tl.arange(0, BK)
    part = tl.program_id(2)
    total = tl.zeros((BK, BT), tl.float32)
    for b in range(part * B // parts, (part + 1) * B // parts):
        batch = tl.zeros((), tl.int64) + b
        for begin in range(0, T, BT):
            step = begin + tl.arange(0, BT)
            here = step < T
            pull = tl.load(grad + batch * grad_b + channel * grad_c + step, mask=here, other=0.0).to(tl.float32)
            row = step[None, :] - tap[:, None] * dilation
            seen = here[None, :] & (row >= _since(start, batch, T, P, step, here, HAS_START)[None, :])
            value = _rows(x, history, batch, channel, row, seen, D, P, x_b, x_c, HAS_HISTORY)
            total += tl.where(seen, pull[None, :], 0.0) * value
    tl.store(grad_kernel + (part * D + channel) * K + tap, tl.sum(total, 1), mask=tap < K)


def _oldest(reset: Tensor | None, past: int) -> Tensor | None:
    """The oldest step visible to each step: its latest restart, or the start of the history. (batch, time) int32."""
    if reset is None:
        return None
    steps = torch.arange(reset.shape[1], device=reset.device, dtype=torch.int32)
    if not reset.shape[1]:
        return steps.expand(reset.shape)
    return torch.where(reset, steps, -past).cummax(1).values.contiguous()


def fir_forward(
    x: Tensor, kernel: Tensor, history: Tensor | None, reset: Tensor | None, dilation: int, skip: bool
) -> Tensor:
    kernel = with_skip(kernel, skip).contiguous()
    batch, time, channels = x.shape
    taps = kernel.shape[1]
    past = (taps - 1) * dilation
    signal, y = _triton.time_last(x), _triton.empty_time_last(batch, time, channels, x)
    if y.numel():
        grid, block = _triton.row_grid(batch, channels, time)
        _fir_forward[grid](
            signal, kernel, _triton.dense(history), _oldest(reset, past), y, time, channels, taps, past, dilation,
            *signal.stride()[:2], HAS_HISTORY=history is not None, HAS_START=reset is not None, BT=block,
        )  # fmt: skip
    return _triton.time_first(y)


def fir_backward(
    grad: Tensor, x: Tensor, kernel: Tensor, history: Tensor | None, reset: Tensor | None, dilation: int, skip: bool
) -> tuple[Tensor, Tensor, Tensor]:
    kernel = with_skip(kernel, skip).contiguous()
    batch, time, channels = x.shape
    taps = kernel.shape[1]
    past = (taps - 1) * dilation
    kept = 0 if history is None else past
    pull, signal, start = _triton.time_last(grad), _triton.time_last(x), _oldest(reset, past)
    rows = _triton.empty_time_last(batch, kept + time, channels, x)
    if rows.numel():
        grid, block = _triton.row_grid(batch, channels, kept + time)
        _fir_backward_rows[grid](
            pull, kernel, start, rows, time, channels, taps, kept, dilation, *pull.stride()[:2],
            HAS_START=reset is not None, BT=block,
        )  # fmt: skip
    parts = max(1, min(batch, _PARTS))
    sums = torch.zeros(parts, channels, taps, dtype=torch.float32, device=x.device)
    if x.numel():
        _fir_backward_kernel[(channels, triton.cdiv(taps, _TAPS), parts)](
            pull, signal, _triton.dense(history), start, sums, batch, time, channels, taps, past, dilation,
            *pull.stride()[:2], *signal.stride()[:2], parts,
            HAS_HISTORY=history is not None, HAS_START=reset is not None, BT=_TIME, BK=_TAPS,
        )  # fmt: skip
    grad_x = rows if kept == 0 else rows[..., kept:].contiguous()
    grad_history = rows[..., :kept].transpose(1, 2).contiguous()
    return _triton.time_first(grad_x), _triton.sum_parts(sums).to(kernel.dtype), grad_history
