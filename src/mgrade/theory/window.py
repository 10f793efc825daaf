"""What a model without recurrence can see, and why it is not enough."""

from __future__ import annotations

import torch
from torch import Tensor

from mgrade._checks import check_whole
from mgrade.nn import ModelConfig
from mgrade.nn.config import LARGEST
from mgrade.tasks.flipflop import IGNORE, ONE, READ, WRITE, ZERO


def window(config: ModelConfig) -> int | None:
    """The number of latest inputs that can influence an output; None if all can (recurrence or pooling)."""
    if config.recurrence != "none" or config.readout in ("mean", "sum"):
        return None
    return 1 + sum(config.memory(layer) for layer in range(config.depth))


def twin_histories(size: int) -> tuple[Tensor, Tensor]:
    """Two Flip-Flop prefixes (1, time) that agree on their last `size` symbols and differ before them.

    Both end in `r`, but the bit to read, written outside the window, is 0 in one and 1 in the other: a model that sees
    `size` symbols gives both the same answer, and one is wrong.
    """
    check_whole("size", size, LARGEST)
    ignored = torch.tensor([IGNORE, ZERO]).repeat((size + 1) // 2)

    def prefix(bit: int) -> Tensor:
        return torch.cat([torch.tensor([WRITE, bit]), ignored, torch.tensor([READ])])[None]

    return prefix(ZERO), prefix(ONE)
