"""Flip-Flop strings (Liu et al. 2023): remember the last written bit through any amount of distraction.

A string alternates instructions and bits, as in `w1i0i1r1`: `w` writes the bit that follows it, `i` is followed
by a bit to ignore, and `r` is followed by the bit that was written last. It begins with `w` and ends with `r`.
"""

from __future__ import annotations

import torch
from torch import Tensor

SYMBOLS = "wri01"
WRITE, READ, IGNORE, ZERO, ONE = range(5)
# What may come next: {0, 1} after w and i; {w, r, i} after a bit; {0} or {1} after r.
PREDICTION_SETS = ("{0,1}", "{w,r,i}", "{0}", "{1}")


def strings(count: int, length: int = 512, *, ignore: float, generator: torch.Generator) -> Tensor:
    """`count` random strings (count, length) of token ids; a pair's instruction is `i` with probability `ignore`.

    The rest is shared by `w` and `r`. They are drawn on the generator's device.
    """
    if length < 4 or length % 2:
        raise ValueError(f"length must be an even number of at least 4, got {length}")
    if not 0 <= ignore <= 1:
        raise ValueError(f"ignore must be a probability from 0 to 1, got {ignore}")
    pairs, device = length // 2, generator.device
    draw = torch.rand(count, pairs, generator=generator, device=device)
    instruction = torch.where(draw < ignore, IGNORE, torch.where(draw < (1 + ignore) / 2, WRITE, READ))
    instruction[:, 0], instruction[:, -1] = WRITE, READ
    bit = torch.randint(0, 2, (count, pairs), generator=generator, device=device)
    index = torch.arange(pairs, device=device)
    written = torch.where(instruction == WRITE, index, 0).cummax(1).values
    bit = torch.where(instruction == READ, bit.gather(1, written), bit)
    return torch.stack([instruction, ZERO + bit], 2).flatten(1)


def recall_string(distance: int, bit: int, *, generator: torch.Generator) -> Tensor:
    """One string (1, 2 distance + 4): a bit written first and read last, `distance` ignored pairs between."""
    bits = torch.randint(ZERO, ONE + 1, (distance,), generator=generator, device=generator.device)
    ignored = torch.stack([torch.full_like(bits, IGNORE), bits], 1).flatten()
    ends = torch.tensor([WRITE, ZERO + bit, READ, ZERO + bit], device=generator.device)
    return torch.cat([ends[:2], ignored, ends[2:]])[None]


def prediction_set(tokens: Tensor) -> Tensor:
    """tokens (count, length) -> for every prefix, the index into `PREDICTION_SETS` of what may come next."""
    index = torch.arange(tokens.shape[1], device=tokens.device)
    follows_write = torch.zeros_like(tokens, dtype=torch.bool)
    follows_write[:, 1:] = tokens[:, :-1] == WRITE
    latest = torch.where(follows_write, index, 0).cummax(1).values
    stored = tokens.gather(1, latest) - ZERO
    return torch.where(tokens >= ZERO, 1, torch.where(tokens == READ, 2 + stored, 0))


def reads(tokens: Tensor) -> Tensor:
    """Where the answer is judged: the steps of tokens[:, :-1] that hold `r`, (count, length - 1)."""
    return tokens[:, :-1] == READ


def recall(logits: Tensor, tokens: Tensor) -> float:
    """Share of reads whose bit has the highest of all logits (count, length - 1, symbols)."""
    where = reads(tokens)
    return float((logits.argmax(-1) == tokens[:, 1:])[where].double().mean())
