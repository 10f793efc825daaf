"""What may come next in a Flip-Flop string."""

import torch

from mgrade.tasks.flipflop import READ, WRITE, ZERO

# {0, 1} after w and i; {w, r, i} after a bit; {0} or {1} after r.
PREDICTION_SETS = ("{0,1}", "{w,r,i}", "{0}", "{1}")


def prediction_set(tokens):
    """tokens (count, length) -> for every prefix, the index into `PREDICTION_SETS` of what may come next."""
    index = torch.arange(tokens.shape[1], device=tokens.device)
    follows_write = torch.zeros_like(tokens, dtype=torch.bool)
    follows_write[:, 1:] = tokens[:, :-1] == WRITE
    latest = torch.where(follows_write, index, 0).cummax(1).values
    stored = tokens.gather(1, latest) - ZERO
    return torch.where(tokens >= ZERO, 1, torch.where(tokens == READ, 2 + stored, 0))
