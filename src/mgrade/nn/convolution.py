"""Convolutions over time: a layer's view of the recent past.

Each module has `forward(x, state, reset, lengths) -> (y, state)` over any number of steps and
`initial_state(batch)`; the state is the delay line, (batch, past, dim), oldest first.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from mgrade._checks import check_whole, is_number
from mgrade.nn import initialise
from mgrade.nn.config import ModelConfig
from mgrade.ops import _check, delay_kernel, dilated_conv
from mgrade.ops._backend import has_tangents


class DelayConv(nn.Module):
    """Depthwise convolution whose taps have learnable weights and learnable delays.

    weight, position (dim, taps). Positions lie within 0 .. length - 1. One that an optimiser has moved beyond counts as
    the end of that range; `constrain_` moves it there.
    """

    def __init__(self, dim: int, taps: int, length: int, sigma: float, init: str = "even", scale: float = 1.0):
        super().__init__()
        for name, value in (("dim", dim), ("taps", taps), ("length", length)):
            check_whole(name, value)
        if not (is_number(sigma) and sigma >= _check.NARROWEST):
            raise ValueError(f"sigma must be a number of at least {_check.NARROWEST:g}, got {sigma!r}")
        self.length, self.sigma, self.dilation = length, sigma, 1
        self._drawn: tuple[Tensor, Tensor, float, Tensor] | None = None
        self.weight = nn.Parameter(initialise.truncated_normal_(torch.empty(dim, taps), math.sqrt(scale / taps)))
        self.position = nn.Parameter(initialise.positions_(torch.empty(dim, taps), length, init))
        self.constrain_()  # a default dtype of low precision may round up beyond the range

    def forward(
        self,
        x: Tensor,
        state: Tensor | None = None,
        reset: Tensor | None = None,
        lengths: Tensor | None = None,
        skip: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """x (batch, time, dim) -> y (batch, time, dim), plus x itself if `skip`, and the delay line after it."""
        _check.channels(x, self.weight.shape[0])
        return dilated_conv(x, self.drawn(), history=state, reset=reset, lengths=lengths, skip=skip)

    def kernel(self) -> Tensor:
        """The weight of every delay, (dim, length)."""
        return self.drawn().clone(memory_format=torch.contiguous_format)

    def drawn(self) -> Tensor:
        """The kernel, read-only: on a CPU without gradients it is cached until the taps change."""
        weight, position = self.weight, self.position
        if torch.is_grad_enabled() or has_tangents() or not _check.values_visible(weight):
            return delay_kernel(weight, self.within(), length=self.length, sigma=self.sigma)
        if self._drawn is not None:
            *taps, sigma, kernel = self._drawn
            same = sigma == self.sigma and kernel.dtype == weight.dtype and kernel.shape[1] == self.length
            if same and torch.equal(taps[0], weight) and torch.equal(taps[1], position):
                return kernel
        kernel = delay_kernel(weight, self.within(), length=self.length, sigma=self.sigma)
        kernel = kernel.t().contiguous().t()  # contiguous channels, as the C kernels read them
        self._drawn = weight.detach().clone(), position.detach().clone(), self.sigma, kernel
        return kernel

    def within(self) -> Tensor:
        """The positions clamped to their range, for the gradient as if they were not: a tap at an end can return.

        While a CUDA graph is captured, they are taken as they are, to save launches: use `constrain_` there.
        """
        position = self.position
        if position.is_cuda and not torch.compiler.is_compiling() and torch.cuda.is_current_stream_capturing():
            return position
        return position.detach().clamp(0.0, self.last_position) + (position - position.detach())

    @property
    def last_position(self) -> float:
        """The largest allowed position: `length` - 1, or the largest whole number below it that its dtype has."""
        kind = torch.finfo(self.position.dtype)
        excess = max(0, (self.length - 1).bit_length() - (1 - round(math.log2(kind.eps))))
        return min(float((self.length - 1) >> excess << excess), kind.max)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> DelayConv:
        before = self.position.dtype
        super()._apply(fn, recurse)
        if self.position.dtype != before:  # which may have rounded the largest position up
            self.constrain_()
        return self

    @torch.no_grad()
    def constrain_(self) -> None:
        """Clamps positions to their range: call after every update, so that a tap at an end returns without delay."""
        self.position.clamp_(0.0, self.last_position)

    @torch.no_grad()
    def snap_(self) -> None:
        """Moves every tap to the nearest whole delay, with the total weight that it had over all delays; taps that meet
        are merged. The narrower the taps, the smaller the change. With `sigma` 0.1 or less a tap is one delay wide."""
        weight, lag = self.snapped()
        self.position.copy_(lag)
        self.weight.copy_(weight)

    def snapped(self) -> tuple[Tensor, Tensor]:
        """weight, lag (dim, taps) as `snap_` sets them, sorted by lag."""
        position, weight = self.within().detach(), self.weight.detach()
        reach = torch.arange(self.length, dtype=position.dtype, device=position.device)
        mass = torch.exp(-0.5 * ((reach - position[..., None]) / self.sigma) ** 2).sum(-1)
        lag, order = position.round().long().sort(dim=1, stable=True)
        weight = (weight * mass).gather(1, order)
        for tap in range(lag.shape[1] - 1):
            same = lag[:, tap] == lag[:, tap + 1]
            weight[:, tap + 1] += torch.where(same, weight[:, tap], 0)
            weight[:, tap] = torch.where(same, 0, weight[:, tap])
        return weight, lag

    def initial_state(self, batch: int) -> Tensor:
        """A delay line of zeros, (batch, length - 1, dim)."""
        return self.weight.new_zeros(batch, self.length - 1, self.weight.shape[0])


class DilatedConv(nn.Module):
    """Depthwise convolution with evenly spaced taps, as in a TCN. weight (dim, taps)."""

    def __init__(self, dim: int, taps: int, dilation: int, scale: float = 1.0):
        super().__init__()
        self.dilation = dilation
        self.weight = nn.Parameter(initialise.truncated_normal_(torch.empty(dim, taps), math.sqrt(scale / taps)))

    def forward(
        self,
        x: Tensor,
        state: Tensor | None = None,
        reset: Tensor | None = None,
        lengths: Tensor | None = None,
        skip: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """x (batch, time, dim) -> y (batch, time, dim), plus x itself if `skip`, and the delay line after it."""
        _check.channels(x, self.weight.shape[0])
        return dilated_conv(
            x, self.weight, dilation=self.dilation, history=state, reset=reset, lengths=lengths, skip=skip
        )

    def kernel(self) -> Tensor:
        """The weight of every tap, (dim, taps)."""
        return self.drawn().clone()

    def drawn(self) -> Tensor:
        """The kernel, read-only."""
        return self.weight

    def initial_state(self, batch: int) -> Tensor:
        """A delay line of zeros, (batch, (taps - 1) dilation, dim)."""
        dim, taps = self.weight.shape
        return self.weight.new_zeros(batch, (taps - 1) * self.dilation, dim)


def convolution(config: ModelConfig, layer: int) -> DelayConv | DilatedConv | None:
    """The convolution of `layer` by `config`."""
    if config.conv == "delay":
        return DelayConv(
            config.dim, config.taps, config.max_delay, config.sigma, config.position_init, config.conv_scale
        )
    if config.conv == "dilated":
        return DilatedConv(config.dim, config.taps, config.spacing(layer), config.conv_scale)
    return None
