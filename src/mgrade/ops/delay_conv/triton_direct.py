"""The filter with restarts, on CUDA: tiles of time by channels, taps in the inner loop.

What a step may see differs from its neighbour's at a restart, so that no matrix product serves them both.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mgrade.ops import _triton
from mgrade.ops._backend import TRITON_INTERPRETED, accumulator
from mgrade.ops.delay_conv.reference import with_skip

_TIME, _CHANNELS = (16, 8) if TRITON_INTERPRETED else (64, 32)
# Groups of batch rows whose kernel gradients are summed apart: fixed, so that sums do not depend on the device.
_PARTS = 16


@triton.jit
def _rows(x, history, batch, channel, row, seen, inside, D, P, x_b, x_t, HAS_HISTORY: tl.constexpr):
    """The inputs (steps, channels) at `row`, those before the first from `history`, where they are seen; in float32."""
    at = row[:, None].to(tl.int64)
    value = tl.load(
        x + batch * x_b + at * x_t + channel[None, :], mask=(seen & (row >= 0))[:, None] & inside[None, :], other=0.0
    ).to(tl.float32)
    if HAS_HISTORY:
        value += tl.load(
            history + (batch * P + P + at) * D + channel[None, :],
            mask=(seen & (row < 0))[:, None] & inside[None, :],
            other=0.0,
        ).to(tl.float32)
    return value


@triton.jit
def _fir_forward(
    x, kernel, history, start, y, T, D, K, P, dilation, x_b, x_t,
    HAS_HISTORY: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """kernel (K, D); start (B, T): the oldest step that each step may see."""
    batch = tl.program_id(0).to(tl.int64)
    step = tl.program_id(1) * BT + tl.arange(0, BT)
    channel = tl.program_id(2) * BC + tl.arange(0, BC)
    inside = channel < D
    here = step < T
    oldest = tl.load(start + batch * T + step, mask=here, other=0)
    total = tl.zeros((BT, BC), tl.float32)
    for tap in range(0, K):
        k = tl.load(kernel + tap * D + channel, mask=inside, other=0.0)
        row = step - tap * dilation
        seen = here & (row >= oldest)
        value = _rows(x, history, batch, channel, row, seen, inside, D, P, x_b, x_t, HAS_HISTORY)
        total += k[None, :] * value
    out = y + (batch * T + step[:, None]) * D + channel[None, :]
    tl.store(out, total.to(y.dtype.element_ty), mask=here[:, None] & inside[None, :])


@triton.jit
def _fir_backward_rows(
    grad, kernel, start, grad_rows, T, D, K, past, dilation,
    BT: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The gradient of the `past` rows of history, if any, followed by that of x."""
    batch = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * BT + tl.arange(0, BT) - past
    channel = tl.program_id(2) * BC + tl.arange(0, BC)
    inside = channel < D
    total = tl.zeros((BT, BC), tl.float32)
    for tap in range(0, K):
        k = tl.load(kernel + tap * D + channel, mask=inside, other=0.0)
        step = row + tap * dilation
        seen = (step >= 0) & (step < T)
        seen = seen & (row >= tl.load(start + batch * T + step, mask=seen, other=0))
        pull = tl.load(
            grad + (batch * T + step[:, None]) * D + channel[None, :],
            mask=seen[:, None] & inside[None, :],
            other=0.0,
        )
        total += k[None, :] * pull.to(tl.float32)
    out = grad_rows + (batch * (past + T) + past + row[:, None]) * D + channel[None, :]
    tl.store(out, total.to(grad_rows.dtype.element_ty), mask=(row < T)[:, None] & inside[None, :])


@triton.jit
def _fir_backward_kernel(
    grad, x, history, start, grad_kernel, B, T, D, K, P, dilation, x_b, x_t, parts,
    HAS_HISTORY: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """grad_kernel (parts, K, D): one tap, one block of channels and one group of batch rows per program."""
    part, tap = tl.program_id(0), tl.program_id(1)
    channel = tl.program_id(2) * BC + tl.arange(0, BC)
    inside = channel < D
    total = tl.zeros((BT, BC), tl.float32)
    for b in range(part * B // parts, (part + 1) * B // parts):
        batch = tl.zeros((), tl.int64) + b
        for begin in range(0, T, BT):
            step = begin + tl.arange(0, BT)
            row = step - tap * dilation
            here = step < T
            seen = here & (row >= tl.load(start + batch * T + step, mask=here, other=0))
            value = _rows(x, history, batch, channel, row, seen, inside, D, P, x_b, x_t, HAS_HISTORY)
            pull = tl.load(
                grad + (batch * T + step[:, None]) * D + channel[None, :],
                mask=seen[:, None] & inside[None, :],
                other=0.0,
            )
            total += value * pull.to(tl.float32)
    tl.store(grad_kernel + (part * K + tap) * D + channel, tl.sum(total, 0), mask=inside)


def _oldest(reset: Tensor, past: int) -> Tensor:
    """The oldest step that each step may see: its latest restart, or all of the history. (batch, time) int32."""
    steps = torch.arange(reset.shape[1], device=reset.device, dtype=torch.int32)
    if not reset.shape[1]:
        return steps.expand(reset.shape)
    return torch.where(reset, steps, -past).cummax(1).values.contiguous()


def fir_forward(x: Tensor, kernel: Tensor, history: Tensor | None, reset: Tensor, dilation: int, skip: bool) -> Tensor:
    kernel = with_skip(kernel, skip)
    batch, time, channels = x.shape
    taps = kernel.shape[1]
    past = (taps - 1) * dilation
    x, history = x.contiguous(), None if history is None else history.contiguous()
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if y.numel():
        _fir_forward[(batch, triton.cdiv(time, _TIME), triton.cdiv(channels, _CHANNELS))](
            x, kernel.t().contiguous(), history, _oldest(reset, past), y, time, channels, taps, past, dilation,
            *x.stride()[:2], HAS_HISTORY=history is not None, BT=_TIME, BC=_CHANNELS,
        )  # fmt: skip
    return _triton.time_first(_triton.time_last(y))


def fir_backward(
    grad: Tensor, x: Tensor, kernel: Tensor, history: Tensor | None, reset: Tensor, dilation: int, skip: bool
) -> tuple[Tensor, Tensor, Tensor]:
    kernel = with_skip(kernel, skip)
    batch, time, channels = x.shape
    taps = kernel.shape[1]
    past = (taps - 1) * dilation
    kept = 0 if history is None else past
    x, grad, history = x.contiguous(), grad.contiguous(), None if history is None else history.contiguous()
    start = _oldest(reset, past)
    grad_rows = torch.empty(batch, kept + time, channels, dtype=x.dtype, device=x.device)
    parts = max(1, min(batch, _PARTS))
    grad_taps = torch.zeros(parts, taps, channels, dtype=accumulator(x.dtype), device=x.device)
    blocks = triton.cdiv(channels, _CHANNELS)
    if grad_rows.numel():
        _fir_backward_rows[(batch, triton.cdiv(kept + time, _TIME), blocks)](
            grad, kernel.t().contiguous(), start, grad_rows, time, channels, taps, kept, dilation,
            BT=_TIME, BC=_CHANNELS,
        )  # fmt: skip
    if x.numel():
        _fir_backward_kernel[(parts, taps, blocks)](
            grad, x, history, start, grad_taps, batch, time, channels, taps, past, dilation, *x.stride()[:2], parts,
            HAS_HISTORY=history is not None, BT=_TIME, BC=_CHANNELS,
        )  # fmt: skip
    grad_x = _triton.time_first(_triton.time_last(grad_rows[:, kept:]))
    return grad_x, grad_taps.sum(0).t().to(kernel.dtype).contiguous(), grad_rows[:, :kept].contiguous()
