"""The Triton version: a tile of time with all its channels stays on chip; the gradient recomputes the statistics."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mgrade.ops import _triton
from mgrade.ops._backend import TRITON_INTERPRETED
from mgrade.ops._triton import dropped, piece

# Elements of a tile, few enough for registers, and its steps: at least 64 bytes per row.
_ELEMENTS, _STEPS, _MOST_STEPS = (256, 16, 16) if TRITON_INTERPRETED else (8192, 32, 128)


@triton.jit
def statistics(z, D, wide, eps):
    """z (channels, time) minus its mean over the channels in `wide`, and 1 / standard deviation of every step."""
    mean = tl.sum(tl.where(wide, z, 0.0), 0) / D
    centred = tl.where(wide, z - mean[None, :], 0.0)
    return centred, 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / D + eps)


@triton.jit
def norm_backward(pull, z, scale, channel, wide, mask, D, eps, HAS_SCALE: tl.constexpr):
    """The gradient of a layer norm's input, and this tile's part of the gradients of scale and shift."""
    centred, rstd = statistics(z, D, wide[:, None], eps)
    normal = tl.where(mask, centred * rstd[None, :], 0.0)
    to_scale, to_shift = tl.sum(pull * normal, 1), tl.sum(pull, 1)
    if HAS_SCALE:
        pull *= tl.load(scale + channel, mask=wide, other=0.0).to(tl.float32)[:, None]
    level, lean = tl.sum(pull, 0) / D, tl.sum(pull * normal, 0) / D
    pull = tl.where(mask, (pull - level[None, :] - normal * lean[None, :]) * rstd[None, :], 0.0)
    return pull, to_scale, to_shift


@triton.jit
def _tile(T, D, BD: tl.constexpr, BT: tl.constexpr):
    """This program's batch row, channels and steps, and which of them are within bounds."""
    batch, step = piece(T, BT)
    channel = tl.arange(0, BD)
    wide = channel < D
    return batch, channel, step, wide, wide[:, None] & (step < T)[None, :]


@triton.jit
def _layer_norm(
    x, scale, shift, base, keep, y, T, D, x_b, x_c, base_b, base_c, gain, eps,
    HAS_SCALE: tl.constexpr, HAS_SHIFT: tl.constexpr, HAS_BASE: tl.constexpr, DROPS: tl.constexpr,
    BD: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    batch, channel, step, wide, mask = _tile(T, D, BD, BT)
    row = channel[:, None].to(tl.int64)
    z = tl.load(x + batch * x_b + row * x_c + step[None, :], mask=mask, other=0.0).to(tl.float32)
    centred, rstd = statistics(z, D, wide[:, None], eps)
    total = centred * rstd[None, :]
    if HAS_SCALE:
        total *= tl.load(scale + channel, mask=wide, other=0.0).to(tl.float32)[:, None]
    if HAS_SHIFT:
        total += tl.load(shift + channel, mask=wide, other=0.0).to(tl.float32)[:, None]
    total = dropped(total, keep, gain, batch, channel, step, T, D, mask, DROPS)
    if HAS_BASE:
        total += tl.load(base + batch * base_b + row * base_c + step[None, :], mask=mask, other=0.0).to(tl.float32)
    tl.store(y + (batch * D + row) * T + step[None, :], total.to(y.dtype.element_ty), mask=mask)


@triton.jit
def _layer_norm_backward(
    grad, x, scale, keep, grad_x, sums, T, D, grad_b, grad_c, x_b, x_c, gain, eps,
    HAS_SCALE: tl.constexpr, DROPS: tl.constexpr, SUMS: tl.constexpr, BD: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """sums (B, tiles, 2, D): each tile's part of the gradients of scale and shift."""
    batch, channel, step, wide, mask = _tile(T, D, BD, BT)
    row = channel[:, None].to(tl.int64)
    pull = tl.load(grad + batch * grad_b + row * grad_c + step[None, :], mask=mask, other=0.0).to(tl.float32)
    pull = dropped(pull, keep, gain, batch, channel, step, T, D, mask, DROPS)
    z = tl.load(x + batch * x_b + row * x_c + step[None, :], mask=mask, other=0.0).to(tl.float32)
    pull, to_scale, to_shift = norm_backward(pull, z, scale, channel, wide, mask, D, eps, HAS_SCALE)
    tl.store(grad_x + (batch * D + row) * T + step[None, :], pull.to(grad_x.dtype.element_ty), mask=mask)
    if SUMS:
        part = sums + tl.program_id(0).to(tl.int64) * 2 * D + channel
        tl.store(part, to_scale, mask=wide)
        tl.store(part + D, to_shift, mask=wide)


def _blocks(dim: int) -> dict[str, int]:
    """The tile size, channels and steps, and the warps."""
    channels = max(16, triton.next_power_of_2(dim))
    steps = min(_MOST_STEPS, max(_STEPS, _ELEMENTS // channels))
    return {"BD": channels, "BT": steps, "num_warps": min(16, max(4, channels * steps // 2048))}


def forward(
    x: Tensor,
    scale: Tensor | None,
    shift: Tensor | None,
    base: Tensor | None,
    keep: Tensor | None,
    gain: float,
    eps: float,
) -> Tensor:
    batch, time, dim = x.shape
    signal, y = _triton.time_last(x), _triton.empty_time_last(batch, time, dim, x)
    over = signal if base is None else _triton.time_last(base)
    if x.numel():
        blocks, (keep, drops) = _blocks(dim), _triton.mask(keep)
        _layer_norm[(batch * triton.cdiv(time, blocks["BT"]),)](
            signal, _triton.dense(scale), _triton.dense(shift), over, keep, y, time, dim,
            *signal.stride()[:2], *over.stride()[:2], gain, eps, HAS_SCALE=scale is not None,
            HAS_SHIFT=shift is not None, HAS_BASE=base is not None, DROPS=drops, **blocks,
        )  # fmt: skip
    return _triton.time_first(y)


def backward(
    grad: Tensor, x: Tensor, scale: Tensor | None, keep: Tensor | None, gain: float, sums: bool, eps: float
) -> tuple[Tensor, Tensor]:
    batch, time, dim = x.shape
    pull, signal = _triton.time_last(grad), _triton.time_last(x)
    grad_x = _triton.empty_time_last(batch, time, dim, x)
    if not x.numel():
        return _triton.time_first(grad_x), torch.zeros(2 if sums else 0, dim, dtype=torch.float32, device=x.device)
    blocks, (keep, drops) = _blocks(dim), _triton.mask(keep)
    tiles = triton.cdiv(time, blocks["BT"])
    parts = torch.empty(batch, tiles, 2 if sums else 0, dim, dtype=torch.float32, device=x.device)
    _layer_norm_backward[(batch * tiles,)](
        pull, signal, _triton.dense(scale), keep, grad_x, parts, time, dim, *pull.stride()[:2],
        *signal.stride()[:2], gain, eps, HAS_SCALE=scale is not None, DROPS=drops, SUMS=sums,
        **blocks,
    )  # fmt: skip
    return _triton.time_first(grad_x), _triton.sum_parts(_triton.sum_parts(parts))
