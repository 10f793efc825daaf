"""The Triton version: a tile of time with all its classes stays on chip."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mgrade.ops import _triton
from mgrade.ops._backend import TRITON_INTERPRETED
from mgrade.ops._triton import piece

_ELEMENTS = 256 if TRITON_INTERPRETED else 4096


@triton.jit
def _surprise(logits, target, slope, losses, T, C, logits_b, logits_c, scale, BC: tl.constexpr, BT: tl.constexpr):
    """losses (programs): each program's part of the mean; slope (B, C, T): the gradient of the mean."""
    batch, step = piece(T, BT)
    label = tl.arange(0, BC)
    here = step < T
    mask = (label < C)[:, None] & here[None, :]
    at = logits + batch * logits_b + label[:, None].to(tl.int64) * logits_c + step[None, :]
    value = tl.load(at, mask=mask, other=float("-inf")).to(tl.float32)
    value = tl.where(here[None, :], value, 0.0)
    answer = tl.load(target + batch * T + step, mask=here, other=0)
    right = label[:, None] == answer[None, :]
    top = tl.max(value, 0)
    power = tl.exp(value - top[None, :])
    total = tl.sum(power, 0)
    surprise = top + tl.log(total) - tl.sum(tl.where(right, value, 0.0), 0)
    known = (answer >= 0) & (answer < C)
    surprise = tl.where(known, surprise, float("nan"))
    tl.store(losses + tl.program_id(0), tl.sum(tl.where(here, surprise, 0.0), 0) * scale)
    gradient = (power / total[None, :] - tl.where(right, 1.0, 0.0)) * scale
    tl.store(slope + (batch * C + label[:, None]) * T + step[None, :], gradient.to(slope.dtype.element_ty), mask=mask)


def forward(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    batch, time, classes = logits.shape
    values = _triton.time_last(logits)
    slope = _triton.empty_time_last(batch, time, classes, logits)
    wide = triton.next_power_of_2(classes)
    steps = max(16, _ELEMENTS // wide)
    losses = torch.empty(batch * triton.cdiv(time, steps), 1, dtype=torch.float32, device=logits.device)
    _surprise[(len(losses),)](
        values, target.contiguous(), slope, losses, time, classes, *values.stride()[:2], 1 / (batch * time),
        BC=wide, BT=steps,
    )  # fmt: skip
    return _triton.sum_parts(losses).reshape(()), _triton.time_first(slope)
