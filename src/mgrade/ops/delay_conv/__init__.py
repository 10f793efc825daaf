"""`delay_conv`: causal depthwise convolution with learnable delays, its past in and out.

`delay_kernel` (registered in `kernel.py`) draws taps into a kernel, and `fir` (`fir.py`) filters with any kernel.
`delay_conv` is the two in turn; `dilated_conv` is `fir` with evenly spaced taps.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mgrade.ops import _check
from mgrade.ops._backend import accumulator, choose, is_one_step, is_plain
from mgrade.ops.delay_conv import fir as _fir
from mgrade.ops.delay_conv import kernel as _kernel
from mgrade.ops.delay_conv import reference

__all__ = ["delay_conv", "delay_kernel", "dilated_conv"]

_register = (_fir, _kernel)  # importing them registers the operators


def delay_kernel(weight: Tensor, position: Tensor, *, length: int, sigma: float = 0.8, backend: str = "auto") -> Tensor:
    """k[d, n] = sum_i weight[d, i] exp(-((n - position[d, i]) / sigma)^2 / 2): the weight of delay n.

    weight, position (channels, taps), with 0 <= position <= length - 1. Returns (channels, length).
    """
    _check.floating("weight", weight, (None, None), "(channels, taps)")
    _check.floating("position", position, tuple(weight.shape), "(channels, taps)")
    if not (isinstance(length, int) and length >= 1):
        raise ValueError(f"length must be a whole number of at least 1, got {length!r}")
    if not (isinstance(sigma, (int, float)) and 0 < sigma < math.inf):
        raise ValueError(f"sigma must be a positive number, got {sigma!r}")
    if sigma < _check.NARROWEST:
        raise ValueError(f"sigma must be at least {_check.NARROWEST:g}, got {sigma!r}")
    if position.numel() and _check.values_visible(position):
        low, high = (float(end) for end in torch.aminmax(position.detach()))
        if not (low >= 0 and high <= length - 1):
            worst = low if not low >= 0 else high
            raise ValueError(
                f"position must lie within 0 and length - 1 = {length - 1}, got {worst:g}: clamp it after every update"
            )
    if is_plain():
        return reference.kernel_forward(weight, position, length, float(sigma))
    kernel: Tensor = torch.ops.mgrade.delay_kernel(weight, position, length, float(sigma), choose(backend, weight))
    return kernel


def delay_conv(
    x: Tensor,
    weight: Tensor,
    position: Tensor,
    *,
    length: int,
    sigma: float = 0.8,
    history: Tensor | None = None,
    reset: Tensor | None = None,
    lengths: Tensor | None = None,
    skip: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """y_t = sum_n k[n] x_{t-n} per channel, with k = `delay_kernel(weight, position)` of `length` delays.

    x (batch, time, channels); weight, position (channels, taps).
    history (batch, length - 1, channels): the inputs before x, oldest first; silence if not given.
    reset (batch, time), boolean: where true, the past before that step is gone.
    lengths (batch): the number of valid steps per row, by default all; y is meaningless after them.
    skip: add x itself to y, as a skip connection does, at no extra cost.
    Returns y (batch, time, channels) and the history after the valid steps.
    """
    _check.floating("x", x, (None, None, None), "(batch, time, channels)")
    _check.floating("weight", weight, (x.shape[2], None), "(channels, taps)")
    kernel = delay_kernel(weight, position, length=length, sigma=sigma, backend=backend)
    return _filter(x, kernel, 1, history, reset, lengths, skip, backend)


def dilated_conv(
    x: Tensor,
    weight: Tensor,
    *,
    dilation: int = 1,
    history: Tensor | None = None,
    reset: Tensor | None = None,
    lengths: Tensor | None = None,
    skip: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """y_t = sum_i weight[:, i] x_{t - i dilation} per channel: the causal convolution of a TCN.

    x (batch, time, channels); weight (channels, taps); history (batch, (taps - 1) dilation, channels), and
    reset, lengths and skip as in `delay_conv`. Returns y (batch, time, channels) and the history after it.
    """
    _check.floating("x", x, (None, None, None), "(batch, time, channels)")
    _check.floating("weight", weight, (x.shape[2], None), "(channels, taps)")
    if not weight.shape[1]:
        raise ValueError(f"weight must have at least one tap a channel, got shape {tuple(weight.shape)}")
    if not (isinstance(dilation, int) and dilation >= 1):
        raise ValueError(f"dilation must be a whole number of at least 1, got {dilation!r}")
    return _filter(x, weight, dilation, history, reset, lengths, skip, backend)


def _filter(
    x: Tensor,
    kernel: Tensor,
    dilation: int,
    history: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
    skip: bool,
    backend: str,
) -> tuple[Tensor, Tensor]:
    batch, time, channels = x.shape
    past = (kernel.shape[1] - 1) * dilation
    if history is not None:
        _check.floating("history", history, (batch, past, channels), "(batch, past, channels)")
        history = history.to(x.dtype)
    _check.reset_mask(reset, batch, time)
    _check.row_lengths(lengths, batch, time)
    if backend == "auto" and reset is None and lengths is None and is_one_step(x):
        return _one_step(x, kernel.to(x.dtype), dilation, _older(x, history, past), skip)
    wide = kernel.to(accumulator(x.dtype))
    if is_plain():
        y = reference.fir_forward(x, wide, history, reset, dilation, skip)
    else:
        y = torch.ops.mgrade.fir(x, wide, history, reset, dilation, skip, choose(backend, x))
    return y, _remember(x, history, reset, lengths, past)


def _one_step(x: Tensor, kernel: Tensor, dilation: int, history: Tensor, skip: bool) -> tuple[Tensor, Tensor]:
    window = torch.cat([history, x], 1)
    y = (window[:, ::dilation] * kernel.t().flip(0)).sum(1, keepdim=True)
    return (x + y if skip else y), window[:, 1:]


def _remember(x: Tensor, history: Tensor | None, reset: Tensor | None, lengths: Tensor | None, past: int) -> Tensor:
    """The last `past` valid inputs, oldest first; zero before a restart or the beginning."""
    time = x.shape[1]
    if reset is None and lengths is None:
        return _ending(x, history, past)
    steps = torch.arange(time, device=x.device)
    step = torch.arange(-past, 0, device=x.device) + (time if lengths is None else lengths[:, None])
    rows = _ending(x, history, past) if lengths is None else _rows_at(step, x, history, past)
    if reset is not None and time:
        valid = reset if lengths is None else reset & (steps < lengths[:, None])
        latest = torch.where(valid, steps, -past).amax(1, keepdim=True)
        rows = torch.where((step < latest)[..., None], 0, rows)
    return rows


def _ending(x: Tensor, history: Tensor | None, past: int) -> Tensor:
    """The last `past` rows of (history, x)."""
    if torch.compiler.is_exporting():  # for any number of steps
        return torch.cat([_older(x, history, past), x], 1)[:, x.shape[1] :]
    kept = min(x.shape[1], past)
    recent = x[:, x.shape[1] - kept :]
    if kept < past:
        return torch.cat([_older(x, history, past)[:, kept:], recent], 1)
    # in training, x is kept anyway, so a view of its end will do
    training = torch.is_grad_enabled() and x.requires_grad
    return recent if training else recent.clone(memory_format=torch.contiguous_format)


def _rows_at(step: Tensor, x: Tensor, history: Tensor | None, past: int) -> Tensor:
    """The rows of x at `step` (batch, past), or of history where `step` is negative."""
    if not x.shape[1]:
        return _older(x, history, past)
    index = step[..., None].expand(-1, -1, x.shape[2])
    older = 0 if history is None else history.gather(1, (index + past).clamp(max=past - 1))
    return torch.where((step >= 0)[..., None], x.gather(1, index.clamp(min=0)), older)


def _older(x: Tensor, history: Tensor | None, past: int) -> Tensor:
    return x.new_zeros(x.shape[0], past, x.shape[2]) if history is None else history
