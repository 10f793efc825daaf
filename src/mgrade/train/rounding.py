"""Training for int8 weights: passes use rounded weights, and gradients update the exact ones behind them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

LEVELS = 127
"""A row of weights spans -127 to 127 times its own scale, as in an exported int8 program."""
SPREAD = 15
"""The smallest scale of a matrix is at most this many bits below the largest."""


def rounded(name: str, weight: Tensor) -> Tensor:
    """`weight` rounded to the int8 grid, with a scale per output channel; weights on the grid do not change.

    Scales have five binary digits. From the smallest sufficient scale to twice that, each row takes the one with the
    smallest error, as in `deploy.quantise`.
    """
    axes = (-3, -1) if name.endswith("recurrence.output") else (-1,)  # real and imaginary parts of an LRU together
    needed = weight.abs().amax(axes, keepdim=True) / LEVELS
    needed = torch.maximum(needed, _split(needed.amax().clamp_min(2.0**-60))[1] * 2.0**-SPREAD)
    part, power = _split(needed)
    more = torch.arange(16, device=weight.device).view(-1, *[1] * weight.dim())
    digits = torch.ceil(32 * part) + more  # 16 and up; above 32, in steps of two
    scales = torch.where(digits < 32, digits, 2 * digits - 32) * (power / 32)
    near = torch.round(weight / scales) * scales
    error = torch.where(scales < 2 * needed, ((near - weight) ** 2).sum(axes, keepdim=True), torch.inf)
    scale = scales.gather(0, error.argmin(0, keepdim=True))[0]
    return torch.round(weight / scale) * scale


def _split(size: Tensor) -> tuple[Tensor, Tensor]:
    """Exact factors of `size`: a number from 1/2 to 1, and a power of two. `ldexp` may be inexact."""
    part = torch.frexp(size)[0]
    return part, size / part


def matrices(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters that an int8 program holds as int8: all but biases, norms, positions and decays."""
    named = model.named_parameters()
    return [(name, weight) for name, weight in named if weight.dim() > 1 and not name.endswith("position")]


@contextlib.contextmanager
def rounded_weights(model: nn.Module, active: bool = True) -> Iterator[None]:
    """Rounds the matrices of `model` inside the block and restores them afterwards; gradients stay."""
    if not active:
        yield
        return
    with torch.no_grad():
        chosen = matrices(model)
        exact = [weight.clone() for _, weight in chosen]
        for name, weight in chosen:
            weight.copy_(rounded(name, weight))
    try:
        yield
    finally:
        with torch.no_grad():
            for (_, weight), before in zip(chosen, exact, strict=True):
                weight.copy_(before)
