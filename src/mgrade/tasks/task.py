"""What a task is: data by split, what the model sees of it, and what counts as right.

A batch is a tuple of tensors with examples along the first axis; its first entry is what the model reads. Everything
that a task provides is a function of its options and a seed, so runs can stop anywhere and resume.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor

from mgrade._checks import check_whole, is_number
from mgrade.nn import Model

Batch: TypeAlias = tuple[Tensor, ...]
# A figure over a set: the sum over its examples, and its divisor. Both add up over batches and processes.
Part: TypeAlias = tuple[Tensor, Tensor]

SPLITS = ("train", "validation", "test")


def derive(seed: int, *path: str | int) -> int:
    """A seed for one purpose, such as derive(seed, "train", 3): independent of others, the same on every machine."""
    text = "/".join(map(str, (seed, *path)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def generator(seed: int, *path: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator on `device` for one purpose: see `derive`."""
    return torch.Generator(device).manual_seed(derive(seed, *path))


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """Base of all tasks: options are fields, checked on construction; methods provide data and judge models.

    Every split is a fixed set (`examples`), but an `endless` task draws new training examples for every step.
    """

    metric: ClassVar[str] = "accuracy"
    """The validation figure that selects the checkpoint."""
    higher_is_better: ClassVar[bool] = True
    test_prefix: ClassVar[str] = "test_"
    """The prefix of test figures in a result."""
    endless: ClassVar[bool] = False
    """Training examples are drawn anew for every step; otherwise the training set is fixed, and has epochs."""

    @property
    def classes(self) -> int | None:
        """The number of classes; None if targets are not classes."""
        return None

    @property
    def row(self) -> int | None:
        """Steps from a pixel to the one below, if sequences are images."""
        return None

    def __post_init__(self) -> None:  # noqa: B027  # the end of every chain of super() calls
        """Checks the options."""

    @abstractmethod
    def model_fields(self) -> dict[str, Any]:
        """The fields of a model that the task sets: `inputs`, `outputs`, `tokens`, `readout`, …"""

    def facts(self) -> dict[str, Any]:
        """What an export says of inputs and outputs: fields of `mgrade.deploy.about.About`."""
        return {"classes": self.classes is not None}

    @abstractmethod
    def examples(self, split: str, seed: int, device: torch.device) -> Batch:
        """The fixed set of a split on `device`; an `endless` task has none for training."""

    @abstractmethod
    def loss(self, model: Model, *batch: Tensor, weight: Tensor | None = None) -> Part:
        """The training loss, as a sum over the batch and its divisor.

        weight (classes): weights of the classes; only for tasks with `classes`.
        """

    @abstractmethod
    def judge(self, model: Model, *batch: Tensor) -> dict[str, Part]:
        """The figures of a batch by name, including `metric`; called without gradients."""

    def lengths(self, *batch: Tensor) -> Tensor | None:
        """The valid steps of each example, (examples), if they differ: the rest is padding."""
        return None

    def cut(self, steps: int, *batch: Tensor) -> Batch:
        """The batch cut to its first `steps` steps, for tasks with `lengths`."""
        return batch

    def watch(self, model: Model, *examples: Tensor) -> dict[str, float]:
        """Figures of a whole set that do not add up over batches; called without gradients."""
        return {}

    def examine(self, model: Model, seed: int, device: torch.device) -> dict[str, Any]:
        """Findings beyond the test figures, computed once at the end; as JSON can hold them."""
        return {}

    def check_test(self) -> None:  # noqa: B027
        """Refuses a test set that cannot be read, before training instead of after it."""

    def remark(self) -> str:
        """What readers of the figures must know about the data, if anything."""
        return ""


@dataclass(frozen=True, kw_only=True)
class Drawn(Task):
    """A task that draws any number of examples itself."""

    endless: ClassVar[bool] = True

    validation: int = 1000
    """Examples that select the checkpoint."""
    test: int = 10000
    """Examples evaluated once, at the end."""

    def __post_init__(self) -> None:
        whole(validation=self.validation, test=self.test)

    @abstractmethod
    def draw(self, split: str, count: int, source: torch.Generator) -> Batch:
        """`count` new examples of a split, on the generator's device."""

    def examples(self, split: str, seed: int, device: torch.device) -> Batch:
        """The fixed set of a split on `device`; drawn on the CPU, so it is the same for all devices."""
        batch = self.draw(split, self.sizes[split], self.source(split, seed))
        return tuple(part.to(device) for part in batch)

    def source(self, split: str, seed: int) -> torch.Generator:
        """The random source of a fixed set."""
        return generator(seed, split)

    @property
    @abstractmethod
    def numbers(self) -> int:
        """An upper bound on the random numbers drawn for an example; at least its number of steps."""

    @property
    def sizes(self) -> dict[str, int]:
        """Examples of each fixed split."""
        return {"validation": self.validation, "test": self.test}


def surprise(logits: Tensor, target: Tensor, where: Tensor | None = None, weight: Tensor | None = None) -> Part:
    """Sum of -log softmax(logits)[target] and the number of targets, where `where` is true; weighted by class."""
    wide = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    each = torch.logsumexp(wide, -1) - wide.gather(-1, target[..., None])[..., 0]
    if weight is None and where is None:
        return each.sum(), torch.full((), target.numel(), device=target.device)
    share = torch.ones_like(each) if weight is None else weight[target]
    share = share if where is None else torch.where(where, share, 0)
    return (share * each).sum(), share.sum()


def correct(logits: Tensor, target: Tensor, where: Tensor | None = None) -> Part:
    """How many targets (…) have the highest logits (…, classes), and how many there are, where `where` is true."""
    hit = logits.argmax(-1) == target
    if where is None:
        return hit.sum(), torch.full((), target.numel(), device=target.device)
    return (hit & where).sum(), where.sum()


def whole(least: int = 1, /, **numbers: int) -> None:
    """Refuses numbers, given by name, that are not whole or below `least`."""
    for name, value in numbers.items():
        check_whole(name, value, least=least)


def probability(**numbers: float) -> None:
    """Refuses numbers, given by name, that are not probabilities."""
    for name, value in numbers.items():
        if not is_number(value) or not 0 <= value <= 1:
            raise ValueError(f"{name} must be a probability from 0 to 1, got {value!r}")
