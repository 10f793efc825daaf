"""The C version: tiles of time by channels held in registers, half precision computed in float32."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mgrade.ops import _c, _memory
from mgrade.ops._backend import accumulator
from mgrade.ops.delay_conv.reference import with_skip

# A Gaussian is dropped where it falls below exp(-x) of its peak: under the rounding of the sum.
_NEGLIGIBLE = {torch.float32: 32.0, torch.float64: 80.0}
# Groups of batch rows with separate sums of the kernel gradient; does not depend on the number of threads.
_PARTS = 8


def _reach(sigma: float, dtype: torch.dtype) -> float:
    return sigma * math.sqrt(2 * _NEGLIGIBLE[dtype])


def kernel_forward(weight: Tensor, position: Tensor, length: int, sigma: float) -> Tensor:
    dtype = accumulator(weight.dtype)
    w, p = weight.to(dtype).contiguous(), position.to(dtype).contiguous()
    kernel = torch.zeros(w.shape[0], length, dtype=dtype)
    _c.call("delay_kernel_forward", dtype, w, p, kernel, *w.shape, length, sigma, _reach(sigma, dtype))
    return kernel.to(weight.dtype)


def kernel_backward(grad_kernel: Tensor, weight: Tensor, position: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
    dtype = accumulator(weight.dtype)
    grad = grad_kernel.to(dtype).contiguous()
    w, p = weight.to(dtype).contiguous(), position.to(dtype).contiguous()
    grad_weight, grad_position = torch.empty_like(w), torch.empty_like(p)
    _c.call(
        "delay_kernel_backward",
        dtype,
        *(grad, w, p, grad_weight, grad_position),
        *(*w.shape, grad.shape[1], sigma, _reach(sigma, dtype)),
    )
    return grad_weight.to(weight.dtype), grad_position.to(position.dtype)


def fir_forward(
    x: Tensor, kernel: Tensor, history: Tensor | None, reset: Tensor | None, dilation: int, skip: bool
) -> Tensor:
    kernel = with_skip(kernel, skip)
    dtype = accumulator(x.dtype)
    rows, taps = _c.rows(x, dtype), kernel.to(dtype).t().contiguous()
    history, reset = _c.contiguous(history, dtype), _c.contiguous(reset, torch.bool)
    y = _memory.empty(x.shape, dtype)
    _c.call(
        "fir_forward",
        dtype,
        *(rows, taps, history, reset, y),
        *(*x.shape, taps.shape[0], dilation, *rows.stride()[:2], _c.threads(y.numel() * taps.shape[0])),
    )
    return y.to(x.dtype)


def fir_backward(
    grad: Tensor, x: Tensor, kernel: Tensor, history: Tensor | None, reset: Tensor | None, dilation: int, skip: bool
) -> tuple[Tensor, Tensor, Tensor]:
    kernel = with_skip(kernel, skip)
    dtype = accumulator(x.dtype)
    batch, _, channels = x.shape
    pull, rows, taps = _c.rows(grad, dtype), _c.rows(x, dtype), kernel.to(dtype).t().contiguous()
    history, reset = _c.contiguous(history, dtype), _c.contiguous(reset, torch.bool)
    grad_x = _memory.empty(x.shape, dtype)
    grad_history = torch.empty(batch, 0 if history is None else history.shape[1], channels, dtype=dtype)
    parts = max(1, min(batch, _PARTS))
    grad_taps = torch.zeros(parts, *taps.shape, dtype=dtype)
    _c.call(
        "fir_backward",
        dtype,
        *(pull, rows, taps, history, reset, grad_x, None if history is None else grad_history, grad_taps),
        *(parts, *x.shape, taps.shape[0], dilation, *pull.stride()[:2], *rows.stride()[:2]),
        _c.threads(grad_x.numel() * taps.shape[0]),
    )
    return grad_x.to(x.dtype), grad_taps.sum(0).t().to(kernel.dtype).contiguous(), grad_history.to(x.dtype)
