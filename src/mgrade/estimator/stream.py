"""A fitted model fed one raw sample at a time; it outputs what `predict` gives for the samples so far."""

from __future__ import annotations

import copy

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mgrade.estimator import series
from mgrade.estimator.base import whole
from mgrade.nn import Model

Output = npt.NDArray[np.float64]


class Stream:
    """A model and its state, whose size does not depend on the number of samples."""

    def __init__(self, model: Model, frame: int = 1):
        self._model = copy.deepcopy(model).double().eval()
        self._frame = frame
        self.reset()

    def reset(self) -> None:
        """Starts a new series."""
        self._state = self._model.initial_state(1)
        self._waiting: list[Output] = []  # samples of an incomplete frame
        self._said = torch.empty(0)
        self.steps = 0

    @torch.no_grad()
    def _push(self, sample: npt.ArrayLike) -> Tensor:
        """sample (channels), or a number for one channel -> outputs (outputs) after the latest complete frame."""
        channels = self._model.config.inputs // self._frame
        try:
            x = np.atleast_1d(np.array(sample, np.float64))  # a copy: callers may reuse their array
        except (TypeError, ValueError):
            raise ValueError(f"sample must be {channels} finite numbers, got {sample!r:.60}") from None
        if x.shape != (channels,) or not np.isfinite(x).all():
            raise ValueError(f"sample must be {channels} finite numbers, got {np.array2string(x, threshold=8)}")
        self._waiting.append(series.within(x, "sample"))
        self.steps += 1
        if len(self._waiting) == self._frame:
            y, self._state = self._model.step(torch.tensor(np.concatenate(self._waiting))[None], self._state)
            self._said, self._waiting = y[0], []
        return self._said


class ClassStream(Stream):
    """Class probabilities after every sample; they change after every complete frame."""

    def __init__(self, model: Model, classes: npt.NDArray[np.generic], frame: int = 1):
        super().__init__(model, frame)
        self.classes = classes

    @torch.no_grad()
    def reset(self) -> None:
        """Starts a new series."""
        super().reset()
        nothing = torch.zeros(1, 1, self._model.config.inputs, dtype=torch.float64)
        self._said = self._model(nothing, lengths=torch.tensor([0]))[0][0]

    def step(self, sample: npt.ArrayLike) -> Output:
        """One raw sample (channels) -> probabilities (classes), as from `predict_proba` for the series so far."""
        return torch.softmax(self._push(sample), -1).numpy()


class ForecastStream(Stream):
    """A prediction of the next sample after every sample."""

    def reset(self) -> None:
        """Starts a new series."""
        super().reset()
        self._next: Output | None = None

    def step(self, sample: npt.ArrayLike) -> Output:
        """One raw sample (channels) -> the next one (channels), as from `predict` for the series so far."""
        self._next = self._push(sample).numpy()
        return self._next.copy()

    def forecast(self, horizon: int) -> Output:
        """Predictions of the next samples (horizon, channels), without advancing the stream."""
        if self._next is None:
            raise ValueError("a stream must have read a sample before it can forecast, got none")
        horizon = whole("horizon", horizon)
        kept = self._state, self.steps, self._next
        ahead = [self._next]
        while len(ahead) < horizon:
            ahead.append(self.step(ahead[-1]))
        self._state, self.steps, self._next = kept
        return np.stack(ahead[:horizon])
