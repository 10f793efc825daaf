"""Examples of unequal length: which share a batch, and how much of their padding the batch needs."""

from __future__ import annotations

import torch
from torch import Tensor

# A batch has one of at most so many lengths, each a captured step of its own, and all of them what vectors like.
_WIDTHS, _VECTOR = 32, 16


def alike(order: Tensor, lengths: Tensor, batch: int, pool: int, source: torch.Generator | None = None) -> list[Tensor]:
    """The examples of a random `order` in batches of about equally long ones, these in random order again.

    lengths (examples). Examples are sorted among `pool` batches at a time: enough of them to be alike, too few to meet
    the same ones every epoch.
    """
    pools = [some[lengths[some].argsort(stable=True)] for some in order.split(pool * batch)]
    batches = [rows for some in pools for rows in some.split(batch)]
    return [batches[place] for place in torch.randperm(len(batches), generator=source)]


def width(steps: int, longest: int) -> int:
    """How long a batch is whose longest example has `steps`, in a set whose longest has `longest`."""
    grain = _VECTOR * max(1, -(-longest // (_WIDTHS * _VECTOR)))
    return grain * -(-steps // grain)
