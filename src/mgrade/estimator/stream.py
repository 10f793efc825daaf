"""One raw sample after the other through a fitted model, with the outputs of `predict` on what has come so far."""

from __future__ import annotations

import copy

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mgrade.nn import Model

Output = npt.NDArray[np.float64]


class Stream:
    """A model and its state. It keeps the same few bytes whatever the number of samples."""

    def __init__(self, model: Model):
        self._model = copy.deepcopy(model).double().eval()
        self.reset()

    def reset(self) -> None:
        """A new series begins."""
        self._state = self._model.initial_state(1)
        self.steps = 0

    @torch.no_grad()
    def _push(self, sample: npt.ArrayLike) -> Tensor:
        """sample (channels), or a number for one channel -> outputs (outputs)."""
        x = np.atleast_1d(np.asarray(sample, np.float64))
        channels = self._model.config.inputs
        if x.shape != (channels,) or not np.isfinite(x).all():
            raise ValueError(f"sample must be {channels} finite numbers, got {np.array2string(x, threshold=8)}")
        y, self._state = self._model.step(torch.tensor(x)[None], self._state)
        self.steps += 1
        return y[0]


class ClassStream(Stream):
    """Class probabilities after every sample."""

    def __init__(self, model: Model, classes: npt.NDArray[np.generic]):
        super().__init__(model)
        self.classes = classes

    def step(self, sample: npt.ArrayLike) -> Output:
        """One raw sample (channels) -> probabilities (classes), as `predict_proba` gives of the series so far."""
        return torch.softmax(self._push(sample), -1).numpy()


class ForecastStream(Stream):
    """The next sample after every sample."""

    def reset(self) -> None:
        """A new series begins."""
        super().reset()
        self._next: Output | None = None

    def step(self, sample: npt.ArrayLike) -> Output:
        """One raw sample (channels) -> the next one (channels), as `predict` gives of the series so far."""
        self._next = self._push(sample).numpy()
        return self._next

    def forecast(self, horizon: int) -> Output:
        """The next samples (horizon, channels) if none came in between: the stream itself stays where it is."""
        if self._next is None:
            raise ValueError("a stream must have taken a sample before it can forecast, got none")
        kept = self._state, self.steps, self._next
        ahead = [self._next]
        while len(ahead) < horizon:
            ahead.append(self.step(ahead[-1]))
        self._state, self.steps, self._next = kept
        return np.stack(ahead[:horizon])
