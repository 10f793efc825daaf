"""Examples of unequal length: which share a batch, and how much of their padding the batch needs."""

from __future__ import annotations

import torch
from torch import Tensor

# Examples are sorted among so many batches at a time: enough to be alike, too few to be the same ones every epoch.
_POOL = 32
# Batches have no more than so many lengths, each a captured step of its own, all of them what vectors like.
_WIDTHS, _VECTOR = 32, 16


def width(steps: int, longest: int) -> int:
    """How long a batch is whose longest example has `steps`, in a set whose longest has `longest`."""
    grain = _VECTOR * max(1, -(-longest // (_WIDTHS * _VECTOR)))
    return grain * -(-steps // grain)


def alike(order: Tensor, lengths: Tensor, batch: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Whole batches out of a random `order`, in random order, each of examples about equally long; and their widths.

    order (batches times batch), lengths (examples) -> order of the same shape, and steps (batches).
    """
    pools = [pool[lengths[pool].argsort(stable=True)] for pool in order.split(_POOL * batch)]
    batches = torch.cat(pools).view(-1, batch)
    batches = batches[torch.randperm(len(batches), generator=source)]
    longest = int(lengths.max())
    widths = [width(steps, longest) for steps in lengths[batches].amax(1).tolist()]
    return batches.flatten(), torch.tensor(widths)
