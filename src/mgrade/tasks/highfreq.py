"""High-frequency features: tell apart fixed patterns whose symbols change more or less often.

A sequence holds a few of the possible features, each followed by a marker; the answer at a marker is the class of the
feature just seen. The higher the frequency, the less information is left for a recurrence that averages over time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from mgrade._checks import is_number
from mgrade.nn import Model
from mgrade.tasks.task import Batch, Drawn, Part, correct, generator, surprise, whole

ORDERS = ("shuffled", "free")
ENCODINGS = ("symbols", "level")


@lru_cache(maxsize=16)
def feature_table(
    features: int,
    length: int,
    *,
    symbols: int,
    repeats: int,
    seed: int,
    order: str = "shuffled",
    device: torch.device | str = "cpu",
) -> Tensor:
    """`features` distinct random features (features, length) of token ids; each symbol lasts `repeats` steps.

    Successive symbols differ; the last one is cut at the end of the feature. Features do not depend on `device`.
    """
    possible = _possible(_held(length, repeats), symbols, order)
    if features > possible:
        raise ValueError(f"features must be at most {possible}, got {features}")
    source = generator(seed, "highfreq", "features")
    draw = _shuffled if order == "shuffled" else _free
    found: dict[tuple[int, ...], None] = {}
    while len(found) < features:
        found[tuple(draw(_held(length, repeats), symbols, source))] = None
    return torch.tensor(list(found)).repeat_interleave(repeats, 1)[:, :length].contiguous().to(device)


def _possible(count: int, symbols: int, order: str) -> int:
    """A lower bound on the number of different features of `count` symbols."""
    if order == "free":
        return int(symbols * (symbols - 1) ** min(count - 1, 64))
    return math.perm(symbols, min(count, symbols))


def _shuffled(count: int, symbols: int, source: torch.Generator) -> list[int]:
    """Random permutations of the alphabet, one after another, cut to `count` symbols."""
    drawn: list[int] = []
    while len(drawn) < count:
        more = torch.randperm(symbols, generator=source).tolist()
        if not drawn or drawn[-1] != more[0]:
            drawn += more
    return drawn[:count]


def _free(count: int, symbols: int, source: torch.Generator) -> list[int]:
    """`count` random symbols, each different from the one before."""
    moves = torch.randint(1, symbols, (count,), generator=source)
    moves[0] = torch.randint(0, symbols, (), generator=source)
    return (moves.cumsum(0) % symbols).tolist()


@dataclass(frozen=True, kw_only=True)
class HighFrequency(Drawn):
    """Classify each of several features in a sequence; the marker after a feature is the token id `symbols`."""

    frequency: float = 0.33
    """How often symbols change: each lasts round(1 / frequency) steps."""
    symbols: int = 16
    """Size of the alphabet, without the marker."""
    features: int = 16
    """Number of possible features: the classes."""
    feature_length: int = 32
    """Steps of a feature."""
    per_sequence: int = 5
    """Features in a sequence, all different."""
    order: str = "shuffled"
    """A feature is the alphabet in random order (`shuffled`), or random symbols without repetitions in a row (`free`).

    Shuffled features that hold the whole alphabet differ only in the order of their symbols."""
    encoding: str = "symbols"
    """What the model reads: one-hot `symbols`, or their number as a single `level`, highest for the marker."""
    features_seed: int = 0
    """Seed of the features, which are the same in all splits and runs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(features=self.features, feature_length=self.feature_length, per_sequence=self.per_sequence)
        whole(2, symbols=self.symbols)
        if not is_number(self.frequency) or not 0 < self.frequency <= 1:
            raise ValueError(f"frequency must be above 0 and at most 1, got {self.frequency!r}")
        if not isinstance(self.features_seed, int) or isinstance(self.features_seed, bool):
            raise ValueError(f"features_seed must be a whole number, got {self.features_seed!r}")
        if self.per_sequence > self.features:
            raise ValueError(f"per_sequence must be at most features = {self.features}, got {self.per_sequence}")
        if self.order not in ORDERS:
            raise ValueError(f"order must be one of {', '.join(ORDERS)}, got {self.order!r}")
        if self.encoding not in ENCODINGS:
            raise ValueError(f"encoding must be one of {', '.join(ENCODINGS)}, got {self.encoding!r}")
        possible = _possible(_held(self.feature_length, self.repeats), self.symbols, self.order)
        if self.features > possible:
            raise ValueError(f"features must be at most {possible} at frequency {self.frequency}, got {self.features}")

    @property
    def repeats(self) -> int:
        """Steps that a symbol lasts."""
        return round(1 / self.frequency)

    @property
    def classes(self) -> int:
        """The features."""
        return self.features

    @property
    def numbers(self) -> int:
        """The steps of a sequence, or the random numbers that select its features if there are more of these."""
        return max(self.features, self.per_sequence * (self.feature_length + 1))

    def model_fields(self) -> dict[str, Any]:
        """Symbols and marker in, a class out, at every step."""
        one_hot = self.encoding == "symbols"
        inputs = self.symbols + 1 if one_hot else 1
        return {"inputs": inputs, "outputs": self.features, "tokens": one_hot, "readout": "every"}

    def draw(self, split: str, count: int, source: torch.Generator) -> Batch:
        """Tokens (count, time), `per_sequence` features with their markers; and classes (count, per_sequence)."""
        device = source.device
        table = feature_table(
            self.features,
            self.feature_length,
            symbols=self.symbols,
            repeats=self.repeats,
            seed=self.features_seed,
            order=self.order,
            device=device,
        )
        order = torch.rand(count, self.features, generator=source, device=device)
        labels = order.topk(self.per_sequence).indices
        marker = torch.full((count, self.per_sequence, 1), self.symbols, device=device)
        tokens = torch.cat([table[labels], marker], 2).flatten(1)
        if self.encoding == "symbols":
            return tokens, labels
        return (2 * tokens / self.symbols - 1)[..., None], labels

    def loss(self, model: Model, *batch: Tensor, weight: Tensor | None = None) -> Part:
        """Cross-entropy at the markers."""
        tokens, labels = batch
        return surprise(self._answers(model, tokens), labels, weight=weight)

    def judge(self, model: Model, *batch: Tensor) -> dict[str, Part]:
        """The share of features classified correctly."""
        tokens, labels = batch
        return {"accuracy": correct(self._answers(model, tokens), labels)}

    def _answers(self, model: Model, tokens: Tensor) -> Tensor:
        """Logits at the markers (count, per_sequence, features)."""
        logits: Tensor = model(tokens)[0]
        return logits[:, self.feature_length :: self.feature_length + 1]


def _held(length: int, repeats: int) -> int:
    """The number of symbols in a feature, not counting repeats."""
    return -(-length // repeats)
