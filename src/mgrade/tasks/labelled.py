"""Labelled sequences: the common part of all classification tasks over a fixed set.

A task reads its sets from files in the data folder (`--data DIR` or MGRADE_DATA). On the device they stay as compact as
in the files (bytes remain bytes); `prepare` turns a batch into what the model reads.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mgrade._checks import is_number
from mgrade.nn import DelayConv, Model
from mgrade.tasks.folder import reading_folder
from mgrade.tasks.rows import at_rows, at_rows_by_chance
from mgrade.tasks.task import Batch, Part, Task, correct, generator, surprise


class Sequences(NamedTuple):
    """A set: values (count, time[, channels]), labels (count), and lengths (count) if they differ."""

    values: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    lengths: npt.NDArray[Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Labelled(Task):
    """A fixed set of labelled sequences; subclasses say how to read it, its classes, and the inputs of a model."""

    @abstractmethod
    def read(self, split: str, folder: Path) -> Sequences:
        """Reads a split of the distribution from the data folder."""

    def prepare(self, values: Tensor) -> Tensor:
        """Turns a batch of values into what the model reads; on the device, without host synchronisation."""
        return values

    def examples(self, split: str, seed: int, device: torch.device) -> Batch:
        """Values, labels and, if they differ, lengths."""
        return _batch(self.read(split, reading_folder()), device)

    def loss(self, model: Model, *batch: Tensor, weight: Tensor | None = None) -> Part:
        """Cross-entropy of the pooled outputs."""
        return surprise(self._logits(model, *batch), batch[1], weight=weight)

    def judge(self, model: Model, *batch: Tensor) -> dict[str, Part]:
        """Share of sequences classified correctly, and the mean surprise."""
        logits = self._logits(model, *batch)
        return {"accuracy": correct(logits, batch[1]), "surprise": surprise(logits, batch[1])}

    def lengths(self, *batch: Tensor) -> Tensor | None:
        """The valid steps of each sequence, (examples), if they differ."""
        return batch[2] if len(batch) > 2 else None

    def cut(self, steps: int, *batch: Tensor) -> Batch:
        """The batch cut to its first `steps` steps."""
        return batch[0][:, :steps], *batch[1:]

    def examine(self, model: Model, seed: int, device: torch.device) -> dict[str, Any]:
        """For images: the share of learned delays that are whole rows, and the share expected by chance."""
        delays = [module.position.detach().flatten() for module in model.modules() if isinstance(module, DelayConv)]
        if self.row is None or not delays:
            return {}
        chance = at_rows_by_chance(model.config.max_delay - 1, self.row)
        return {"delays_at_rows": at_rows(torch.cat(delays).cpu(), self.row), "delays_at_rows_by_chance": chance}

    def check_test(self) -> None:
        """Reads the test set and discards it."""
        self.read("test", reading_folder())

    def _logits(self, model: Model, values: Tensor, labels: Tensor, lengths: Tensor | None = None) -> Tensor:
        logits: Tensor = model(self.prepare(values), lengths=lengths)[0]
        return logits


@dataclass(frozen=True, kw_only=True)
class HeldOut(Labelled):
    """A set whose distribution has no validation split: a share of its training split serves as one."""

    held_out: float = 0.1
    """Share of the training set held out for validation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.held_out) or not 0 < self.held_out < 1:
            raise ValueError(f"held_out must be above 0 and below 1, got {self.held_out!r}")

    def examples(self, split: str, seed: int, device: torch.device) -> Batch:
        """As in `Labelled`. The examples held out depend on the task alone, not on the seed."""
        if split == "test":
            return super().examples(split, seed, device)
        whole = self.read("train", reading_folder())
        count = len(whole.labels)
        order = torch.randperm(count, generator=generator(0, "held out", count)).numpy()
        held = max(1, round(self.held_out * count))
        if held >= count:
            raise ValueError(f"task.held_out must leave some of {count} examples for training, got {self.held_out}")
        chosen = np.sort(order[:held] if split == "validation" else order[held:])
        lengths = None if whole.lengths is None else whole.lengths[chosen]
        return _batch(Sequences(whole.values[chosen], whole.labels[chosen], lengths), device)


def _batch(found: Sequences, device: torch.device) -> Batch:
    tensors = [torch.from_numpy(np.ascontiguousarray(found.values)), torch.from_numpy(found.labels.astype(np.int64))]
    if found.lengths is not None:
        tensors.append(torch.from_numpy(found.lengths.astype(np.int64)))
    return tuple(tensor.to(device) for tensor in tensors)
