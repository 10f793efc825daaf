"""Losses that are quick in every layout."""

from __future__ import annotations

import torch
from torch import Tensor


def cross_entropy(logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean over all targets of -log softmax(logits)[target], with one weight per class if given.

    logits (…, classes), target (…). As `torch.nn.functional.cross_entropy`, whose reduction over many targets runs
    in a single block of a CUDA device, and which copies logits that are not contiguous.
    """
    wide = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    surprise = torch.logsumexp(wide, -1) - wide.gather(-1, target[..., None])[..., 0]
    if weight is None:
        return surprise.mean()
    each = weight[target]
    return (each * surprise).sum() / each.sum()
