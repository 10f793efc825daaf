"""What a task is: data by split, what the model sees of it, and what counts as right.

A batch is a tuple of tensors with the examples first; its first entry is what the model reads. Everything a task
gives is a function of its options and a seed, so a run can be cut anywhere and resumed.
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
# A figure over a set: the sum over its examples, and what to divide it by. Both add up over batches and processes.
Part: TypeAlias = tuple[Tensor, Tensor]

SPLITS = ("train", "validation", "test")


def derive(seed: int, *path: str | int) -> int:
    """A seed for one purpose, such as derive(seed, "train", 3): independent of every other, the same everywhere."""
    text = "/".join(map(str, (seed, *path)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def generator(seed: int, *path: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator on `device` for one purpose: see `derive`."""
    return torch.Generator(device).manual_seed(derive(seed, *path))


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """Base of all tasks: options are fields, checked when made; methods say where data comes from and how to judge.

    Every split is a fixed set (`examples`), except that a task which is `endless` draws its training examples afresh.
    """

    metric: ClassVar[str] = "accuracy"
    """The figure by which validation chooses the checkpoint."""
    higher_is_better: ClassVar[bool] = True
    test_prefix: ClassVar[str] = "test_"
    """What stands before the names of the test set's figures in a result."""
    endless: ClassVar[bool] = False
    """Training examples are drawn afresh for every step; otherwise the training set is fixed, and epochs count."""

    @property
    def classes(self) -> int | None:
        """How many classes the targets have; None where they are not classes."""
        return None

    @property
    def row(self) -> int | None:
        """Steps from a pixel to the one below, where sequences are images."""
        return None

    def __post_init__(self) -> None:  # noqa: B027  # where checks begin: every subclass adds its own to super's
        """Checks the options."""

    @abstractmethod
    def model_fields(self) -> dict[str, Any]:
        """What the task settles about a model: `inputs`, `outputs`, `tokens`, `readout`, …"""

    @abstractmethod
    def examples(self, split: str, seed: int, device: torch.device) -> Batch:
        """The whole fixed set of a split on `device`: of every split, or of all but the training set if `endless`."""

    @abstractmethod
    def loss(self, model: Model, *batch: Tensor, weight: Tensor | None = None) -> Part:
        """What training makes small, as a sum over the batch and what to divide it by.

        weight (classes): how much each class counts; only for tasks that have `classes`.
        """

    @abstractmethod
    def judge(self, model: Model, *batch: Tensor) -> dict[str, Part]:
        """The figures of a batch by name, among them `metric`; without gradients."""

    def lengths(self, *batch: Tensor) -> Tensor | None:
        """How many steps of each example count, (examples), where they differ: the rest is padding."""
        return None

    def cut(self, steps: int, *batch: Tensor) -> Batch:
        """The batch without what lies behind its first `steps` steps, for tasks with `lengths`."""
        return batch

    def watch(self, model: Model, *examples: Tensor) -> dict[str, float]:
        """Further figures of a whole set, which do not add up over batches; without gradients."""
        return {}

    def examine(self, model: Model, seed: int, device: torch.device) -> dict[str, Any]:
        """What is looked at once, at the end, beyond the figures of the test set; as JSON can hold it."""
        return {}

    def check_test(self) -> None:  # noqa: B027
        """Refuses a test set that cannot be read: before the first step, not after the last."""

    def remark(self) -> str:
        """What a reader of the figures must know of the data, if anything."""
        return ""


@dataclass(frozen=True, kw_only=True)
class Drawn(Task):
    """A task that makes its own examples, as many as asked for."""

    endless: ClassVar[bool] = True

    validation: int = 1000
    """Examples that choose the checkpoint."""
    test: int = 10000
    """Examples that are looked at once, at the end."""

    def __post_init__(self) -> None:
        whole(validation=self.validation, test=self.test)

    @abstractmethod
    def draw(self, split: str, count: int, source: torch.Generator) -> Batch:
        """`count` fresh examples as the split has them, on the generator's device."""

    def examples(self, split: str, seed: int, device: torch.device) -> Batch:
        """The whole fixed set of a split on `device`; drawn on the CPU, so that it is the same on all devices."""
        batch = self.draw(split, self.sizes[split], self.source(split, seed))
        return tuple(part.to(device) for part in batch)

    def source(self, split: str, seed: int) -> torch.Generator:
        """What a fixed set is drawn from."""
        return generator(seed, split)

    @property
    @abstractmethod
    def numbers(self) -> int:
        """How many are drawn for an example, at most: as many as it has steps, or more."""

    @property
    def sizes(self) -> dict[str, int]:
        """Examples of each fixed split."""
        return {"validation": self.validation, "test": self.test}


def surprise(logits: Tensor, target: Tensor, where: Tensor | None = None, weight: Tensor | None = None) -> Part:
    """Sum of -log softmax(logits)[target], and the number of targets; only `where` true, by the `weight` of classes."""
    wide = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    each = torch.logsumexp(wide, -1) - wide.gather(-1, target[..., None])[..., 0]
    if weight is None and where is None:
        return each.sum(), torch.full((), target.numel(), device=target.device)
    share = torch.ones_like(each) if weight is None else weight[target]
    share = share if where is None else torch.where(where, share, 0)
    return (share * each).sum(), share.sum()


def correct(logits: Tensor, target: Tensor, where: Tensor | None = None) -> Part:
    """How many targets (…) have the highest of the logits (…, classes), and how many there are; only `where` true."""
    hit = logits.argmax(-1) == target
    if where is None:
        return hit.sum(), torch.full((), target.numel(), device=target.device)
    return (hit & where).sum(), where.sum()


def whole(least: int = 1, /, **numbers: int) -> None:
    """Refuses a number that is not whole and at least `least`, by its name."""
    for name, value in numbers.items():
        check_whole(name, value, least=least)


def probability(**numbers: float) -> None:
    """Refuses a number that is not a probability, by its name."""
    for name, value in numbers.items():
        if not is_number(value) or not 0 <= value <= 1:
            raise ValueError(f"{name} must be a probability from 0 to 1, got {value!r}")
