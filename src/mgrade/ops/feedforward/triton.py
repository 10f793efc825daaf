"""The Triton version: a tile of time with all its channels stays on chip through both products and the norm.

The gradient runs the first product again instead of keeping its result, and leaves to `linear` the sums over time
that make the gradients of the two matrices.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mgrade.ops import _triton
from mgrade.ops._backend import TRITON_INTERPRETED
from mgrade.ops.linear.triton import outer

_TIME, _INNER = (16, 16) if TRITON_INTERPRETED else (64, 64)
# Programs among which the tiles of a gradient are dealt out; fixed, so that sums do not depend on the device.
_PROGRAMS = 528


@triton.jit
def _gelu(u):
    """GELU in its sigmoid form, and its derivative."""
    s = tl.sigmoid(1.5957691216057308 * (u + 0.044715 * u * u * u))
    slope = 1.5957691216057308 * (1.0 + 0.134145 * u * u)
    return u * s, s + u * s * (1.0 - s) * slope


@triton.jit
def _statistics(z, D, wide, eps):
    """z (channels, time): mean and 1 / standard deviation of every step, over the channels inside `wide`."""
    mean = tl.sum(tl.where(wide, z, 0.0), 0) / D
    centred = tl.where(wide, z - mean[None, :], 0.0)
    return centred, 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / D + eps)


@triton.jit
def _feedforward(
    x, input, input_bias, output, output_bias, scale, shift, z, y, T, D, W, x_b, x_c, eps,
    HAS_NORM: tl.constexpr, PRECISION: tl.constexpr, BD: tl.constexpr, BT: tl.constexpr, BI: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(1).to(tl.int64)
    step = tl.program_id(0) * BT + tl.arange(0, BT)
    channel = tl.arange(0, BD)
    wide = channel < D
    mask = wide[:, None] & (step < T)[None, :]
    at = x + batch * x_b + channel[:, None].to(tl.int64) * x_c + step[None, :]
    signal = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    total = signal + tl.load(output_bias + channel, mask=wide, other=0.0).to(tl.float32)[:, None]
    for begin in range(0, W, BI):
        inner = begin + tl.arange(0, BI)
        some = inner < W
        at_input = input + inner[:, None] * D + channel[None, :]
        w = tl.load(at_input, mask=some[:, None] & wide[None, :], other=0.0).to(tl.float32)
        u = tl.dot(w, signal, input_precision=PRECISION)
        u += tl.load(input_bias + inner, mask=some, other=0.0).to(tl.float32)[:, None]
        active, _ = _gelu(u)
        at_output = output + channel[:, None] * W + inner[None, :]
        w = tl.load(at_output, mask=wide[:, None] & some[None, :], other=0.0).to(tl.float32)
        total = tl.dot(w, active, total, input_precision=PRECISION)
    out = (batch * D + channel[:, None]) * T + step[None, :]
    if HAS_NORM:
        tl.store(z + out, total.to(z.dtype.element_ty), mask=mask)
        centred, rstd = _statistics(total, D, wide[:, None], eps)
        total = centred * rstd[None, :] * tl.load(scale + channel, mask=wide, other=0.0).to(tl.float32)[:, None]
        total += tl.load(shift + channel, mask=wide, other=0.0).to(tl.float32)[:, None]
    tl.store(y + out, total.to(y.dtype.element_ty), mask=mask)


@triton.jit
def _feedforward_backward(
    grad, x, z, input, input_bias, output, scale, grad_x, grad_z, active, grad_u, sums, B, T, D, W, tiles,
    grad_b, grad_c, x_b, x_c, eps,
    HAS_NORM: tl.constexpr, PRECISION: tl.constexpr, BD: tl.constexpr, BT: tl.constexpr, BI: tl.constexpr,
):  # fmt: skip
    """Tiles are dealt out to the programs. sums (programs, 3 D): each one's part of the gradients of output bias,
    scale and shift."""
    channel = tl.arange(0, BD)
    wide = channel < D
    row = channel[:, None].to(tl.int64)
    sum_bias = tl.zeros((BD,), tl.float32)
    sum_scale = tl.zeros((BD,), tl.float32)
    sum_shift = tl.zeros((BD,), tl.float32)
    for tile in range(tl.program_id(0), B * tiles, tl.num_programs(0)):
        batch = tl.zeros((), tl.int64) + tile // tiles
        step = (tile % tiles) * BT + tl.arange(0, BT)
        mask = wide[:, None] & (step < T)[None, :]
        out = (batch * D + row) * T + step[None, :]
        pull = tl.load(grad + batch * grad_b + row * grad_c + step[None, :], mask=mask, other=0.0).to(tl.float32)
        if HAS_NORM:
            centred, rstd = _statistics(tl.load(z + out, mask=mask, other=0.0).to(tl.float32), D, wide[:, None], eps)
            normal = tl.where(mask, centred * rstd[None, :], 0.0)
            sum_scale += tl.sum(pull * normal, 1)
            sum_shift += tl.sum(pull, 1)
            pull *= tl.load(scale + channel, mask=wide, other=0.0).to(tl.float32)[:, None]
            level, lean = tl.sum(pull, 0) / D, tl.sum(pull * normal, 0) / D
            pull = tl.where(mask, (pull - level[None, :] - normal * lean[None, :]) * rstd[None, :], 0.0)
            tl.store(grad_z + out, pull.to(grad_z.dtype.element_ty), mask=mask)
        sum_bias += tl.sum(pull, 1)
        signal = tl.load(x + batch * x_b + row * x_c + step[None, :], mask=mask, other=0.0).to(tl.float32)
        total = pull
        for begin in range(0, W, BI):
            inner = begin + tl.arange(0, BI)
            some = inner < W
            at = input + inner[:, None] * D + channel[None, :]
            w = tl.load(at, mask=some[:, None] & wide[None, :], other=0.0).to(tl.float32)
            u = tl.dot(w, signal, input_precision=PRECISION)
            u += tl.load(input_bias + inner, mask=some, other=0.0).to(tl.float32)[:, None]
            value, slope = _gelu(u)
            at = output + channel[None, :] * W + inner[:, None]
            w = tl.load(at, mask=some[:, None] & wide[None, :], other=0.0).to(tl.float32)
            to_u = tl.dot(w, pull, input_precision=PRECISION) * slope
            at_inner = (batch * W + inner[:, None].to(tl.int64)) * T + step[None, :]
            here = some[:, None] & (step < T)[None, :]
            tl.store(active + at_inner, value.to(active.dtype.element_ty), mask=here)
            tl.store(grad_u + at_inner, to_u.to(grad_u.dtype.element_ty), mask=here)
            at = input + inner[None, :] * D + channel[:, None]
            w = tl.load(at, mask=wide[:, None] & some[None, :], other=0.0).to(tl.float32)
            total = tl.dot(w, to_u, total, input_precision=PRECISION)
        tl.store(grad_x + out, total.to(grad_x.dtype.element_ty), mask=mask)
    part = sums + tl.program_id(0) * 3 * D + channel
    tl.store(part, sum_bias, mask=wide)
    tl.store(part + D, sum_scale, mask=wide)
    tl.store(part + 2 * D, sum_shift, mask=wide)


def _blocks(dim: int) -> dict[str, int]:
    return {"BD": max(16, triton.next_power_of_2(dim)), "BT": _TIME, "BI": _INNER, "num_warps": 8 if dim > 64 else 4}


def forward(
    x: Tensor,
    input: Tensor,
    input_bias: Tensor,
    output: Tensor,
    output_bias: Tensor,
    scale: Tensor | None,
    shift: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor]:
    batch, time, dim = x.shape
    signal, input, output = _triton.time_last(x), input.contiguous(), output.contiguous()
    y = _triton.empty_time_last(batch, time, dim, x)
    z = torch.empty_like(y) if scale is not None else None
    if x.numel():
        _feedforward[(triton.cdiv(time, _TIME), batch)](
            signal, input, input_bias, output, output_bias, scale, shift, z, y, time, dim, input.shape[0],
            *signal.stride()[:2], eps, HAS_NORM=scale is not None, PRECISION=_triton.dot_precision(), **_blocks(dim),
        )  # fmt: skip
    return _triton.time_first(y), x.new_empty(0) if z is None else _triton.time_first(z)


def backward(
    grad: Tensor,
    x: Tensor,
    z: Tensor,
    input: Tensor,
    input_bias: Tensor,
    output: Tensor,
    scale: Tensor | None,
    eps: float,
) -> tuple[Tensor, ...]:
    batch, time, dim = x.shape
    inner = input.shape[0]
    pull, signal, input, output = _triton.time_last(grad), _triton.time_last(x), input.contiguous(), output.contiguous()
    grad_x = _triton.empty_time_last(batch, time, dim, x)
    grad_z = pull if scale is None else torch.empty_like(grad_x)
    active, grad_u = (_triton.empty_time_last(batch, time, inner, x) for _ in range(2))
    tiles = triton.cdiv(time, _TIME)
    programs = min(_PROGRAMS, max(1, batch * tiles))
    sums = torch.zeros(programs, 3, dim, dtype=torch.float32, device=x.device)
    if x.numel():
        _feedforward_backward[(programs,)](
            pull, signal, z if scale is None else _triton.time_last(z), input, input_bias, output, scale, grad_x,
            grad_z, active, grad_u, sums, batch, time, dim, inner, tiles, *pull.stride()[:2], *signal.stride()[:2],
            eps, HAS_NORM=scale is not None, PRECISION=_triton.dot_precision(), **_blocks(dim),
        )  # fmt: skip
    to_output_bias, to_scale, to_shift = (part.clone() for part in _triton.sum_parts(sums).to(x.dtype).unbind(0))
    to_input, to_input_bias = outer(_triton.time_first(grad_u), x, sums=True)
    none = x.new_empty(0)
    return (
        _triton.time_first(grad_x),
        to_input.to(input.dtype),
        to_input_bias.to(input.dtype),
        outer(_triton.time_first(grad_z), _triton.time_first(active))[0].to(output.dtype),
        to_output_bias,
        none if scale is None else to_scale,
        none.clone() if scale is None else to_shift,
    )
