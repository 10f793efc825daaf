"""The batch of every step, a function of the seed and the step alone: there is no state to save."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mgrade.tasks import Batch, Drawn, Task, generator
from mgrade.train.lengths import alike, width
from mgrade.train.processes import Processes

# Endless examples are drawn in chunks of at most this many steps and input values.
_MOST_STEPS, _MOST_VALUES = 256, 2**24
# Examples are sorted by length within this many batches.
_POOL = 32


class Feed:
    """This process's share of every batch, on the device.

    Every epoch goes through a fixed training set in a new order and in whole batches; leftover examples are skipped.
    With `by_length`, the examples of a batch are about equally long, which saves padding.
    """

    def __init__(
        self, task: Task, seed: int, batch: int, device: torch.device, processes: Processes, by_length: bool = False
    ):
        self.task, self.seed, self.size, self.device = task, seed, batch, device
        self.rows = processes.share(batch)
        self._held: tuple[int, Batch] | None = None  # number and content: a drawn chunk, or an epoch's order and widths
        self.lengths: Tensor | None = None
        if task.endless:
            assert isinstance(task, Drawn)
            one = task.draw("train", 1, generator(seed, "probe", device=device))
            self.chunk = max(1, min(_MOST_STEPS, _MOST_VALUES // (batch * max(1, one[0].numel()))))
            self.steps_per_epoch: int | None = None
            return
        self.examples = task.examples("train", seed, device)
        count = len(self.examples[0])
        if count < batch:
            raise ValueError(f"train.batch must be at most the {count} training examples, got {batch}")
        self.steps_per_epoch = count // batch
        if by_length:
            lengths = task.lengths(*self.examples)
            if lengths is not None and lengths.min() < lengths.max():
                self.lengths = lengths.cpu()

    def __call__(self, step: int) -> Batch:
        """This process's rows of the batch of `step`, counted from 0."""
        if self.steps_per_epoch is None:
            number, index = divmod(step, self.chunk)
            drawn = self._hold(number)
            begin = index * self.size
            return tuple(t[begin + self.rows.start : begin + self.rows.stop] for t in drawn)
        number, index = divmod(step, self.steps_per_epoch)
        order, *widths = self._hold(number)
        chosen = order[index * self.size :][self.rows]
        examples = self.task.cut(int(widths[0][index]), *self.examples) if widths else self.examples
        return tuple(t.index_select(0, chosen) for t in examples)

    def class_weights(self, given: str | Sequence[float]) -> Tensor | None:
        """The weight of each class, for the option `class_weights` of `Training`."""
        classes = self.task.classes
        if given == "none" or classes is None:
            return None
        if not isinstance(given, str):
            return torch.tensor(given, device=self.device)
        shares = torch.bincount(self.examples[1].flatten(), minlength=classes) / self.examples[1].numel()
        return torch.where(shares > 0, 1 / (classes * shares), 0.0)

    def _hold(self, number: int) -> Batch:
        if self._held is None or self._held[0] != number:
            self._held = None  # freed first, so that two never take memory at once
            self._held = number, self._make(number)
        return self._held[1]

    def _make(self, number: int) -> Batch:
        if isinstance(self.task, Drawn) and self.task.endless:
            source = generator(self.seed, "train", number, device=self.device)
            return self.task.draw("train", self.chunk * self.size, source)
        # drawn on the CPU: the same order on every device
        order = torch.randperm(len(self.examples[0]), generator=generator(self.seed, "order", number))
        if self.lengths is None:
            return (order.to(self.device),)
        whole, longest = order[: len(order) // self.size * self.size], int(self.lengths.max())
        batches = alike(whole, self.lengths, self.size, _POOL, generator(self.seed, "batches", number))
        widths = [width(int(self.lengths[rows].max()), longest) for rows in batches]
        return torch.cat(batches).to(self.device), torch.tensor(widths)
