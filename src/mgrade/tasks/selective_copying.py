"""Selective copying (Gu & Dao 2024): pick a few symbols out of a long row of distractors and repeat them in order.

Symbols are at random steps, all other steps hold the distractor, and the sequence ends in markers: the answer at the
first marker is the first symbol, at the second the second, and so on. As distances vary, fixed delays do not suffice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mgrade.nn import Model
from mgrade.tasks.task import Batch, Drawn, Part, correct, surprise, whole


def positions(count: int, size: int, among: int, *, generator: torch.Generator) -> Tensor:
    """`count` uniformly random sets (count, size) of distinct numbers below `among`, in ascending order.

    Floyd's algorithm: draw a number below among - size + 1, then one below among - size + 2, and so on. If a number is
    taken already, take the highest possible one instead, which is still free.
    """
    device = generator.device
    highest = torch.arange(among - size, among, device=device)
    draw = torch.rand(count, size, dtype=torch.float64, generator=generator, device=device)
    chosen = (draw * (highest + 1)).long()
    for index in range(1, size):
        taken = (chosen[:, :index] == chosen[:, index, None]).any(1)
        chosen[:, index] = torch.where(taken, highest[index], chosen[:, index])
    return chosen.sort(1).values


@dataclass(frozen=True, kw_only=True)
class SelectiveCopying(Drawn):
    """Remember `values` symbols; token ids are the symbols, then the distractor, then the marker."""

    length: int = 4096
    """Steps of a sequence."""
    values: int = 16
    """Symbols to remember."""
    symbols: int = 16
    """Size of the alphabet, without distractor and marker."""
    markers_within: bool = True
    """The markers are the last of the `length` steps; if false, they follow them, as in Mamba's code."""

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(length=self.length, values=self.values, symbols=self.symbols)
        if not isinstance(self.markers_within, bool):
            raise ValueError(f"markers_within must be true or false, got {self.markers_within!r}")
        if self.content < self.values:
            least = (2 if self.markers_within else 1) * self.values
            raise ValueError(f"length must be at least {least} for values = {self.values}, got {self.length}")

    @property
    def content(self) -> int:
        """Steps before the markers."""
        return self.length - self.values if self.markers_within else self.length

    @property
    def classes(self) -> int:
        """The symbols."""
        return self.symbols

    @property
    def numbers(self) -> int:
        """All steps, including markers."""
        return self.content + self.values

    def model_fields(self) -> dict[str, Any]:
        """Symbols, distractor and marker in, a symbol out, at every step."""
        return {"inputs": self.symbols + 2, "outputs": self.symbols, "tokens": True, "readout": "every"}

    def draw(self, split: str, count: int, source: torch.Generator) -> Batch:
        """Tokens (count, content + values), int32, and the symbols to repeat (count, values)."""
        device, distractor, marker = source.device, self.symbols, self.symbols + 1
        labels = torch.randint(0, self.symbols, (count, self.values), generator=source, device=device)
        where = positions(count, self.values, self.content, generator=source)
        tokens = torch.full((count, self.content + self.values), distractor, dtype=torch.int32, device=device)
        tokens[:, self.content :] = marker
        return tokens.scatter_(1, where, labels.int()), labels

    def loss(self, model: Model, *batch: Tensor, weight: Tensor | None = None) -> Part:
        """Cross-entropy at the markers."""
        tokens, labels = batch
        return surprise(self._answers(model, tokens), labels, weight=weight)

    def judge(self, model: Model, *batch: Tensor) -> dict[str, Part]:
        """The share of symbols repeated correctly, and of sequences without a mistake."""
        tokens, labels = batch
        answers = self._answers(model, tokens)
        whole = (answers.argmax(-1) == labels).all(1).sum()
        return {"accuracy": correct(answers, labels), "sequences": (whole, whole.new_full((), len(labels)))}

    def _answers(self, model: Model, tokens: Tensor) -> Tensor:
        """Logits at the markers (count, values, symbols)."""
        logits: Tensor = model(tokens, last=self.values)[0]
        return logits
