"""Plain PyTorch, any device and floating dtype: what every other version is compared with, in float64."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from mgrade.ops._backend import accumulator


def _taps(position: Tensor, length: int, sigma: float) -> tuple[Tensor, Tensor]:
    """Scaled distance and Gaussian of every lag from every position, (channels, taps, length) each."""
    lag = torch.arange(length, dtype=position.dtype, device=position.device)
    distance = (lag - position[..., None]) / sigma
    return distance, torch.exp(-0.5 * distance**2)


def kernel_forward(weight: Tensor, position: Tensor, length: int, sigma: float) -> Tensor:
    dtype = accumulator(weight.dtype)
    _, gaussian = _taps(position.to(dtype), length, sigma)
    return (weight.to(dtype)[..., None] * gaussian).sum(1).to(weight.dtype).contiguous()


def kernel_backward(grad_kernel: Tensor, weight: Tensor, position: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
    dtype = accumulator(weight.dtype)
    distance, gaussian = _taps(position.to(dtype), grad_kernel.shape[1], sigma)
    pull = grad_kernel.to(dtype)[:, None] * gaussian
    grad_position = weight.to(dtype) * (pull * distance).sum(-1) / sigma
    return pull.sum(-1).to(weight.dtype).contiguous(), grad_position.to(position.dtype).contiguous()


def with_skip(kernel: Tensor, skip: bool) -> Tensor:
    """The kernel, with the skip connection added to its first tap if `skip`."""
    if not skip:
        return kernel
    one = torch.zeros_like(kernel)
    one[:, 0] = 1
    return kernel + one


def _lagged(
    x: Tensor, history: Tensor | None, reset: Tensor | None, taps: int, dilation: int
) -> Iterator[tuple[int, int, Tensor | None]]:
    """For every tap: its index, where its rows begin in (history, x), and which rows a restart hides."""
    past = (taps - 1) * dilation
    age = None
    if reset is not None:
        steps = torch.arange(x.shape[1], device=x.device)
        start = torch.where(reset, steps, -past - 1).cummax(1).values  # the latest restart, if any
        age = steps - start
    for tap in range(taps):
        yield tap, past - tap * dilation, None if age is None else (age < tap * dilation)[..., None]


def _joined(x: Tensor, history: Tensor | None, past: int, dtype: torch.dtype) -> Tensor:
    before = x.new_zeros(x.shape[0], past, x.shape[2]) if history is None else history
    return torch.cat([before, x], 1).to(dtype)


def fir_forward(
    x: Tensor, kernel: Tensor, history: Tensor | None, reset: Tensor | None, dilation: int, skip: bool
) -> Tensor:
    kernel = with_skip(kernel, skip)
    dtype = accumulator(x.dtype)
    time, taps = x.shape[1], kernel.shape[1]
    rows = _joined(x, history, (taps - 1) * dilation, dtype)
    y = torch.zeros_like(rows[:, :time])
    for tap, begin, hidden in _lagged(x, history, reset, taps, dilation):
        seen = rows[:, begin : begin + time]
        y = y + kernel[:, tap].to(dtype) * (seen if hidden is None else torch.where(hidden, 0, seen))
    return y.to(x.dtype).contiguous()


def fir_backward(
    grad: Tensor, x: Tensor, kernel: Tensor, history: Tensor | None, reset: Tensor | None, dilation: int, skip: bool
) -> tuple[Tensor, Tensor, Tensor]:
    kernel = with_skip(kernel, skip)
    dtype = accumulator(x.dtype)
    time, taps = x.shape[1], kernel.shape[1]
    past = (taps - 1) * dilation
    rows, wide = _joined(x, history, past, dtype), grad.to(dtype)
    grad_rows, grad_kernel = torch.zeros_like(rows), torch.zeros_like(kernel, dtype=dtype)
    for tap, begin, hidden in _lagged(x, history, reset, taps, dilation):
        seen, pull = rows[:, begin : begin + time], wide
        if hidden is not None:
            seen, pull = torch.where(hidden, 0, seen), torch.where(hidden, 0, pull)
        grad_kernel[:, tap] = (pull * seen).sum((0, 1))
        grad_rows[:, begin : begin + time] += kernel[:, tap].to(dtype) * pull
    kept = past if history is not None else 0
    return (
        grad_rows[:, past:].to(x.dtype).contiguous(),
        grad_kernel.to(kernel.dtype).contiguous(),
        grad_rows[:, :kept].to(x.dtype).contiguous(),
    )
