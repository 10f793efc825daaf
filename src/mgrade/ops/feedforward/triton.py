"""The Triton version: a tile of time with all its channels stays on chip through both products and the norm.

The gradient recomputes the first product instead of keeping its result. The sums over time for the gradients of the two
matrices are made by `linear`, except for narrow layers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mgrade.ops import _triton
from mgrade.ops._backend import TRITON_INTERPRETED
from mgrade.ops._triton import dot, dropped, piece
from mgrade.ops.layer_norm.triton import norm_backward, statistics
from mgrade.ops.linear.triton import outer, product

# Up to this width a tile of the gradient stays on chip as well; above it the products run one by one.
_FUSED_BACKWARD = 64
# Up to this inner width (and half of it outside) the gradients of the matrices are summed on chip too.
_FUSED_WEIGHTS = 16 if TRITON_INTERPRETED else 64
# Bytes of a tile of the widest layers in bfloat16: a T4 has less.
_SHORT = 81_920
# Programs that share the tiles of a gradient; a constant, so that sums do not depend on the device.
_PROGRAMS = 264


@triton.jit
def _gelu(u):
    """GELU in its sigmoid form, and its derivative."""
    s = tl.sigmoid(1.5957691216057308 * (u + 0.044715 * u * u * u))
    slope = 1.5957691216057308 * (1.0 + 0.134145 * u * u)
    return u * s, s + u * s * (1.0 - s) * slope


@triton.jit
def _feedforward(
    x, input, input_bias, output, output_bias, scale, shift, base, keep, z, y, T, D, W, x_b, x_c, base_b, base_c,
    gain, eps,
    HAS_NORM: tl.constexpr, HAS_BASE: tl.constexpr, DROPS: tl.constexpr, PRECISION: tl.constexpr,
    BD: tl.constexpr, BT: tl.constexpr, BI: tl.constexpr,
):  # fmt: skip
    batch, step = piece(T, BT)
    channel = tl.arange(0, BD)
    wide = channel < D
    mask = wide[:, None] & (step < T)[None, :]
    row = channel[:, None].to(tl.int64)
    signal = tl.load(x + batch * x_b + row * x_c + step[None, :], mask=mask, other=0.0).to(tl.float32)
    total = signal
    LATE: tl.constexpr = HAS_BASE or DROPS != "nothing"
    if LATE:
        total = tl.zeros((BD, BT), tl.float32)
    total += tl.load(output_bias + channel, mask=wide, other=0.0).to(tl.float32)[:, None]
    for begin in range(0, W, BI):
        inner = begin + tl.arange(0, BI)
        some = inner < W
        at_input = input + inner[:, None] * D + channel[None, :]
        w = tl.load(at_input, mask=some[:, None] & wide[None, :], other=0.0)
        u = dot(w, signal, tl.zeros((BI, BT), tl.float32), PRECISION)
        u += tl.load(input_bias + inner, mask=some, other=0.0).to(tl.float32)[:, None]
        active, _ = _gelu(u)
        at_output = output + channel[:, None] * W + inner[None, :]
        w = tl.load(at_output, mask=wide[:, None] & some[None, :], other=0.0)
        total = dot(w, active, total, PRECISION)
    out = (batch * D + row) * T + step[None, :]
    total = dropped(total, keep, gain, batch, channel, step, T, D, mask, DROPS)
    if LATE:  # loaded late: kept from the beginning, it would leave no room for what comes between
        at = base + batch * base_b + row * base_c + step[None, :]
        total += tl.load(at, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
    if HAS_NORM:
        tl.store(z + out, total.to(z.dtype.element_ty), mask=mask)
        centred, rstd = statistics(total, D, wide[:, None], eps)
        total = centred * rstd[None, :] * tl.load(scale + channel, mask=wide, other=0.0).to(tl.float32)[:, None]
        total += tl.load(shift + channel, mask=wide, other=0.0).to(tl.float32)[:, None]
    tl.store(y + out, total.to(y.dtype.element_ty), mask=mask)


@triton.jit
def _feedforward_backward(
    grad, x, z, input, input_bias, output, scale, keep, grad_x, grad_z, grad_branch, active, grad_u, sums, size,
    B, T, D, W, tiles, grad_b, grad_c, x_b, x_c, gain, eps,
    HAS_NORM: tl.constexpr, APART: tl.constexpr, DROPS: tl.constexpr, PRODUCTS: tl.constexpr, WEIGHTS: tl.constexpr,
    PRECISION: tl.constexpr, BD: tl.constexpr, BT: tl.constexpr, BI: tl.constexpr,
):  # fmt: skip
    """Each program takes a share of the tiles. sums (programs, size) ends with its part of the gradients of output
    bias, scale and shift. Without PRODUCTS, only these, grad_z and grad_branch (zero where dropped) are computed. With
    WEIGHTS, for narrow layers (W <= BI), sums begins with the gradients of input, its bias and output; then active,
    grad_u and grad_branch are not stored, nor is grad_z, unless the base is APART from x."""
    channel = tl.arange(0, BD)
    wide = channel < D
    row = channel[:, None].to(tl.int64)
    sum_bias = tl.zeros((BD,), tl.float32)
    sum_scale = tl.zeros((BD,), tl.float32)
    sum_shift = tl.zeros((BD,), tl.float32)
    sum_input = tl.zeros((BI, BD), tl.float32)
    sum_output = tl.zeros((BD, BI), tl.float32)
    sum_input_bias = tl.zeros((BI,), tl.float32)
    for tile in range(tl.program_id(0), B * tiles, tl.num_programs(0)):
        batch = tl.zeros((), tl.int64) + tile // tiles
        step = (tile % tiles) * BT + tl.arange(0, BT)
        mask = wide[:, None] & (step < T)[None, :]
        out = (batch * D + row) * T + step[None, :]
        pull = tl.load(grad + batch * grad_b + row * grad_c + step[None, :], mask=mask, other=0.0).to(tl.float32)
        if HAS_NORM:
            before = tl.load(z + out, mask=mask, other=0.0).to(tl.float32)
            pull, to_scale, to_shift = norm_backward(pull, before, scale, channel, wide, mask, D, eps, True)
            sum_scale += to_scale
            sum_shift += to_shift
            if APART or not WEIGHTS:
                tl.store(grad_z + out, pull.to(grad_z.dtype.element_ty), mask=mask)
        total = pull
        if APART:
            total = tl.zeros((BD, BT), tl.float32)
        pull = dropped(pull, keep, gain, batch, channel, step, T, D, mask, DROPS)
        if DROPS != "nothing" and not WEIGHTS:
            tl.store(grad_branch + out, pull.to(grad_branch.dtype.element_ty), mask=mask)
        sum_bias += tl.sum(pull, 1)
        if PRODUCTS:
            signal = tl.load(x + batch * x_b + row * x_c + step[None, :], mask=mask, other=0.0).to(tl.float32)
            for begin in range(0, W, BI):
                inner = begin + tl.arange(0, BI)
                some = inner < W
                at = input + inner[:, None] * D + channel[None, :]
                w = tl.load(at, mask=some[:, None] & wide[None, :], other=0.0)
                u = dot(w, signal, tl.zeros((BI, BT), tl.float32), PRECISION)
                u += tl.load(input_bias + inner, mask=some, other=0.0).to(tl.float32)[:, None]
                value, slope = _gelu(u)
                at = output + channel[None, :] * W + inner[:, None]
                w = tl.load(at, mask=some[:, None] & wide[None, :], other=0.0)
                to_u = dot(w, pull, tl.zeros((BI, BT), tl.float32), PRECISION) * slope
                at_inner = (batch * W + inner[:, None].to(tl.int64)) * T + step[None, :]
                here = some[:, None] & (step < T)[None, :]
                if WEIGHTS:
                    to_u = tl.where(here, to_u, 0.0)
                    sum_input = dot(to_u, tl.trans(signal), sum_input, PRECISION)
                    sum_output = dot(pull, tl.trans(value), sum_output, PRECISION)
                    sum_input_bias += tl.sum(to_u, 1)
                else:
                    tl.store(active + at_inner, value.to(active.dtype.element_ty), mask=here)
                    tl.store(grad_u + at_inner, to_u.to(grad_u.dtype.element_ty), mask=here)
                at = input + inner[None, :] * D + channel[:, None]
                w = tl.load(at, mask=wide[:, None] & some[None, :], other=0.0)
                total = dot(w, to_u, total, PRECISION)
            tl.store(grad_x + out, total.to(grad_x.dtype.element_ty), mask=mask)
    part = sums + tl.program_id(0) * size
    if WEIGHTS:
        inner = tl.arange(0, BI)
        some = inner < W
        at = part + inner[:, None] * D + channel[None, :]
        tl.store(at, sum_input, mask=some[:, None] & wide[None, :])
        tl.store(part + W * D + inner, sum_input_bias, mask=some)
        at = part + W * D + W + channel[:, None] * W + inner[None, :]
        tl.store(at, sum_output, mask=wide[:, None] & some[None, :])
    part += size - 3 * D
    tl.store(part + channel, sum_bias, mask=wide)
    tl.store(part + D + channel, sum_scale, mask=wide)
    tl.store(part + 2 * D + channel, sum_shift, mask=wide)


@triton.jit
def _gelu_backward(u, bias, grad, active, W, T, size, BLOCK: tl.constexpr):
    """u (B, W, T) without its bias. In place, grad of gelu(u + bias) becomes grad of u; stores gelu(u + bias)."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    value = tl.load(u + at, mask=mask, other=0.0).to(tl.float32)
    value += tl.load(bias + (at // T) % W, mask=mask, other=0.0).to(tl.float32)
    value, slope = _gelu(value)
    tl.store(active + at, value.to(active.dtype.element_ty), mask=mask)
    pull = tl.load(grad + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(grad + at, (pull * slope).to(grad.dtype.element_ty), mask=mask)


def _blocks(x: Tensor, backward: bool) -> dict[str, int]:
    """The sizes of tiles: channels, steps and inner channels at a time, and warps, as measured on an H200."""
    dim = x.shape[2]
    channels = {"BD": max(16, triton.next_power_of_2(dim))}
    if TRITON_INTERPRETED:
        return channels | {"BT": 16, "BI": 16, "num_warps": 4}
    short = _triton.dot_precision(x) == "bf16"
    room = _triton.room(x)
    small = not short and room < _triton.LARGE
    if backward and small:
        return channels | {"BT": 32, "BI": 32, "num_warps": 4, "num_stages": 2}
    if backward:
        return channels | {"BT": 64, "BI": 32, "num_warps": 4}
    if short and dim > 64:
        return channels | {"BT": 128 if room >= _SHORT else 64, "BI": 32, "num_warps": 4}
    if short:
        return channels | {"BT": 128, "BI": 64, "num_warps": 4}
    if dim <= 64:
        return channels | {"BT": 64, "BI": 32, "num_warps": 4}
    if small:
        return channels | {"BT": 64, "BI": 16, "num_warps": 8, "num_stages": 2}
    return channels | {"BT": 128, "BI": 32, "num_warps": 8}


def forward(
    x: Tensor,
    input: Tensor,
    input_bias: Tensor,
    output: Tensor,
    output_bias: Tensor,
    scale: Tensor | None,
    shift: Tensor | None,
    base: Tensor | None,
    keep: Tensor | None,
    gain: float,
    eps: float,
) -> tuple[Tensor, Tensor]:
    batch, time, dim = x.shape
    signal, input, output = _triton.time_last(x), input.contiguous(), output.contiguous()
    if dim > _FUSED_BACKWARD and _triton.dot_precision(x) == "bf16":  # rounded once, not in every tile
        input, output = input.to(torch.bfloat16), output.to(torch.bfloat16)
    input_bias, output_bias = input_bias.contiguous(), output_bias.contiguous()
    scale, shift, (keep, drops) = _triton.dense(scale), _triton.dense(shift), _triton.mask(keep)
    apart = signal if base is None else _triton.time_last(base)
    y = _triton.empty_time_last(batch, time, dim, x)
    z = torch.empty_like(y) if scale is not None else None
    blocks = _blocks(x, backward=False)
    if x.numel():
        _feedforward[(batch * triton.cdiv(time, blocks["BT"]),)](
            signal, input, input_bias, output, output_bias, scale, shift, apart, keep, z, y, time, dim, input.shape[0],
            *signal.stride()[:2], *apart.stride()[:2], gain, eps, HAS_NORM=scale is not None,
            HAS_BASE=base is not None, DROPS=drops, PRECISION=_triton.dot_precision(x), **blocks,
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
    keep: Tensor | None,
    apart: bool,
    gain: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, time, dim = x.shape
    inner, fused = input.shape[0], dim <= _FUSED_BACKWARD
    pull, signal = _triton.time_last(grad), _triton.time_last(x)
    input, output = input.contiguous(), output.contiguous()
    input_bias, scale, (keep, drops) = input_bias.contiguous(), _triton.dense(scale), _triton.mask(keep)
    if not x.numel():
        to_x, to_base = (_triton.time_first(torch.empty_like(signal)) for _ in range(2))
        parameters = input.new_zeros(2 * inner * dim + inner + 3 * dim)
        return to_x, parameters, to_base if apart and scale is not None else x.new_empty(0)
    sums_weights = fused and inner <= _FUSED_WEIGHTS and dim <= _FUSED_WEIGHTS // 2
    size = 3 * dim + (2 * inner * dim + inner if sums_weights else 0)
    blocks = _blocks(x, backward=True) | ({"BI": max(16, triton.next_power_of_2(inner))} if sums_weights else {})
    tiles = triton.cdiv(time, blocks["BT"])
    programs = min(_PROGRAMS, batch * tiles)
    sums = torch.empty(programs, size, dtype=torch.float32, device=x.device)
    grad_x = _triton.empty_time_last(batch, time, dim, x) if fused else None
    grad_z = pull if scale is None or (sums_weights and not apart) else _triton.empty_time_last(batch, time, dim, x)
    grad_branch = grad_z if keep is None else _triton.empty_time_last(batch, time, dim, x)
    dtype = torch.bfloat16 if _triton.dot_precision(x) == "bf16" else x.dtype
    active = None if sums_weights else torch.empty(batch, inner, time, dtype=dtype, device=x.device)
    grad_u = torch.empty_like(active) if fused and active is not None else None
    _feedforward_backward[(programs,)](
        pull, signal, z if scale is None else _triton.time_last(z), input, input_bias, output, scale, keep,
        grad_x, grad_z, grad_branch, active, grad_u, sums, size, batch, time, dim, inner, tiles,
        *pull.stride()[:2], *signal.stride()[:2], gain, eps, HAS_NORM=scale is not None, APART=apart,
        DROPS=drops, PRODUCTS=fused, WEIGHTS=sums_weights, PRECISION=_triton.dot_precision(x), **blocks,
    )  # fmt: skip
    total = _triton.sum_parts(sums).to(input.dtype)
    to_base = _triton.time_first(grad_z) if apart and scale is not None else x.new_empty(0)
    if sums_weights:
        return _triton.time_first(grad_x), total, to_base
    if not fused:
        u = product(x, input).transpose(1, 2)
        grad_u = product(_triton.time_first(grad_branch), output.t()).transpose(1, 2)
        elements = u.numel()
        _gelu_backward[(triton.cdiv(elements, 1024),)](u, input_bias, grad_u, active, inner, time, elements, BLOCK=1024)
        past = None if apart else _triton.time_first(grad_z)
        grad_x = product(_triton.time_first(grad_u), input.t(), past).transpose(1, 2)
    to_input = outer(_triton.time_first(grad_u), x, sums=True).to(input.dtype)
    to_output = outer(_triton.time_first(grad_branch), _triton.time_first(active)).to(output.dtype)
    return _triton.time_first(grad_x), torch.cat([to_input, to_output.flatten(), total]), to_base
