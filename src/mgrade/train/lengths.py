"""Examples of unequal length: which ones share a batch, and how far the batch is padded."""

from __future__ import annotations

import torch
from torch import Tensor

# Padded lengths take at most this many values, each with a CUDA graph of its own; all are multiples of `_VECTOR`.
_WIDTHS, _VECTOR = 32, 16


def alike(order: Tensor, lengths: Tensor, batch: int, pool: int, source: torch.Generator | None = None) -> list[Tensor]:
    """Splits examples in random `order` into batches of similar length, and shuffles the batches.

    lengths (examples). Examples are sorted within `pool` batches at a time: enough to be similar, too few for the same
    examples to meet every epoch.
    """
    pools = [some[lengths[some].argsort(stable=True)] for some in order.split(pool * batch)]
    batches = [rows for some in pools for rows in some.split(batch)]
    return [batches[place] for place in torch.randperm(len(batches), generator=source)]


def width(steps: int, longest: int) -> int:
    """The padded length of a batch whose longest example has `steps` steps; `longest` is that of the whole set."""
    grain = _VECTOR * max(1, -(-longest // (_WIDTHS * _VECTOR)))
    return grain * -(-steps // grain)
