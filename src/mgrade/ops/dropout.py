"""`dropout`: values left out at random while training, one by one or a channel at a time."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def dropout(x: Tensor, share: float, whole: bool = False) -> Tensor:
    """x (batch, time, dim) without `share` of its values, or of its channels from end to end if `whole`, scaled up."""
    if whole:
        return x * F.dropout(x.new_ones(x.shape[0], 1, x.shape[2]), share)
    if x.stride(2) == 1:
        return F.dropout(x, share)
    return F.dropout(x.transpose(1, 2), share).transpose(1, 2)  # in the order of memory: fast, there and back


def kept(x: Tensor, share: float, whole: bool = False) -> Tensor:
    """What `dropout` of x keeps: 1 there, 0 elsewhere, (batch, time or 1, dim) with time contiguous."""
    batch, time, dim = x.shape
    mask = torch.empty(batch, dim, 1 if whole else time, dtype=torch.uint8, device=x.device)
    return mask.bernoulli_(1 - share).transpose(1, 2)
