"""Training for int8 weights: passes compute with rounded weights, gradients move the exact ones behind them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

LEVELS = 127
"""A row of weights spans -127 to 127 steps of its own scale, as in an exported int8 program."""


def rounded(name: str, weight: Tensor) -> Tensor:
    """`weight` on the grid of int8, one scale per output channel."""
    axes = (0, 2) if name.endswith("recurrence.output") else (-1,)  # of an LRU, real and imaginary part together
    scale = (weight.abs().amax(axes, keepdim=True) / LEVELS).clamp_min(1e-30)
    return torch.round(weight / scale) * scale


def matrices(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters that an int8 program holds as int8: all but biases, norms, positions and decays."""
    named = model.named_parameters()
    return [(name, weight) for name, weight in named if weight.dim() > 1 and not name.endswith("position")]


@contextlib.contextmanager
def rounded_weights(model: nn.Module, active: bool = True) -> Iterator[None]:
    """Inside, the matrices of `model` are rounded; afterwards they are what they were. Gradients stay."""
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
