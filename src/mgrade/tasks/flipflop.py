"""Flip-Flop strings (Liu et al. 2023): remember the last written bit through any amount of distraction.

A string alternates instructions and bits, as in `w1i0i1r1`: `w` writes the bit that follows, `i` ignores it, and `r`
reads, so the bit written last follows. The first instruction is `w`, the last is `r`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mgrade.nn import Model
from mgrade.tasks.task import Batch, Drawn, Part, correct, generator, probability, surprise, whole

SYMBOLS = "wri01"
WRITE, READ, IGNORE, ZERO, ONE = range(5)
# Recall is tested with these numbers of ignored pairs between a write and its read.
DISTANCES = (1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 1_000, 10_000)
MOST_RECALLS = 10_000


@dataclass(frozen=True, kw_only=True)
class FlipFlop(Drawn):
    """Predict the bit after every `r`; writes are near in training and far in the test."""

    length: int = 512
    """Symbols of a string."""
    ignore: float = 0.8
    """Share of ignored pairs in the training strings."""
    test_ignore: float = 0.98
    """Share of ignored pairs in validation and test: a read follows its write after about 70 pairs."""
    targets: str = "reads"
    """The loss covers the bits after `r` (`reads`), or every next symbol (`all`)."""
    recalls: int = 200
    """Strings per distance in the test of recall."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.length, int) or self.length < 4 or self.length % 2:
            raise ValueError(f"length must be an even number of at least 4, got {self.length!r}")
        probability(ignore=self.ignore, test_ignore=self.test_ignore)
        if self.targets not in ("reads", "all"):
            raise ValueError(f"targets must be one of reads, all, got {self.targets!r}")
        whole(2, recalls=self.recalls)
        if self.recalls > MOST_RECALLS:
            raise ValueError(f"recalls must be at most {MOST_RECALLS}, got {self.recalls}")

    @property
    def classes(self) -> int:
        """The symbols."""
        return len(SYMBOLS)

    @property
    def numbers(self) -> int:
        """Symbols of a string."""
        return self.length

    def model_fields(self) -> dict[str, Any]:
        """Symbols in, symbols out, at every step."""
        return {"inputs": len(SYMBOLS), "outputs": len(SYMBOLS), "tokens": True, "readout": "every"}

    def facts(self) -> dict[str, Any]:
        """What an export says of inputs and outputs."""
        return {"title": "Flip-Flop: the next symbol", "labels": tuple(SYMBOLS), "symbols": tuple(SYMBOLS)}

    def draw(self, split: str, count: int, source: torch.Generator) -> Batch:
        """Strings as token ids (count, length)."""
        ignore = self.ignore if split == "train" else self.test_ignore
        return (strings(count, self.length, ignore=ignore, generator=source),)

    def loss(self, model: Model, *batch: Tensor, weight: Tensor | None = None) -> Part:
        """Surprise at the next symbol, after `r` or everywhere."""
        (tokens,) = batch
        # reads the whole string, whose length is round; the output at the last symbol does not count
        logits, _ = model(tokens)
        asked = torch.ones_like(tokens, dtype=torch.bool) if self.targets == "all" else tokens == READ
        asked[:, -1] = False
        return surprise(logits, tokens.roll(-1, 1), asked, weight)

    def judge(self, model: Model, *batch: Tensor) -> dict[str, Part]:
        """accuracy: the share of reads whose bit is predicted."""
        (tokens,) = batch
        logits, _ = model(tokens[:, :-1])
        return {"accuracy": correct(logits, tokens[:, 1:], reads(tokens))}

    def examine(self, model: Model, seed: int, device: torch.device) -> dict[str, Any]:
        """Recall by distance: a write, that many ignored pairs, a read."""
        source = generator(seed, "recall")
        accuracy = {}
        for distance in DISTANCES:
            tokens = recall_strings(self.recalls, distance, generator=source).to(device)
            hits = sum(len(part) * recall(model(part[:, :-1])[0], part) for part in tokens.split(50))
            accuracy[str(distance)] = hits / self.recalls
        return {"recall_by_distance": accuracy}


def strings(count: int, length: int = 512, *, ignore: float, generator: torch.Generator) -> Tensor:
    """`count` random strings (count, length) of token ids; a pair's instruction is `i` with probability `ignore`.

    Otherwise it is `w` or `r`, equally often. Strings are drawn on the generator's device.
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


def recall_strings(count: int, distance: int, *, generator: torch.Generator) -> Tensor:
    """Strings (count, 2 distance + 4): a bit written first and read last, `distance` ignored pairs between."""
    device = generator.device
    bits = torch.randint(ZERO, ONE + 1, (count, distance + 2), generator=generator, device=device)
    bits[:, -1] = bits[:, 0]
    instruction = torch.full_like(bits, IGNORE)
    instruction[:, 0], instruction[:, -1] = WRITE, READ
    return torch.stack([instruction, bits], 2).flatten(1)


def reads(tokens: Tensor) -> Tensor:
    """The steps at which answers count: those of tokens[:, :-1] that hold `r`, (count, length - 1)."""
    return tokens[:, :-1] == READ


def recall(logits: Tensor, tokens: Tensor) -> float:
    """The share of reads whose bit has the highest of the logits (count, length - 1, symbols)."""
    where = reads(tokens)
    return float((logits.argmax(-1) == tokens[:, 1:])[where].double().mean())
