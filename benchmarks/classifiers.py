"""Ways to classify series: mgrade's estimator, aeon's MiniRocket and ROCKET, and a GRU in PyTorch.

Each fits series (channels, time), predicts, and provides the work of an answer after every new sample of a stream.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from benchmarks.measure import Run, UnavailableError
from mgrade import StreamClassifier
from mgrade.deploy import compile, dequantise_output, quantise_input
from mgrade.deploy.c.host import compiler
from mgrade.estimator import learn, series
from mgrade.nn import ModelConfig

Array = npt.NDArray[Any]
GET = "pip install -c constraints.txt aeon"
# Layers and units of the GRU.
LAYERS, UNITS = 2, 64
# aeon's classifiers are compiled on about this many cases before timing, which also predicts the time for all.
FEW = 20


class Contender(ABC):
    """A way to classify series."""

    how: str
    """How an answer after a new sample is computed."""
    samples_per_step = 1
    """Samples per answer."""

    def prepare(self, X: list[Array], y: Array, longest: int) -> None:
        """Untimed work before fitting; longest: steps of the longest series, to fit or to predict."""
        self.longest = longest

    @abstractmethod
    def fit(self, X: list[Array], y: Array, seed: int) -> None:
        """Learns from series (channels, time)."""

    @abstractmethod
    def predict(self, X: list[Array]) -> Array:
        """The class of each series."""

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """`parameters`, `parameter_bytes` as stored, and `state_bytes` of one stream."""

    @abstractmethod
    def step(self, one: Array) -> tuple[Run, int]:
        """What to time on a series `one` (channels, time), and the number of answers that it gives."""


class Estimator(Contender):
    """`StreamClassifier` with its defaults, as the C program it exports."""

    def __init__(self, precision: str, fitted: dict[int, StreamClassifier]):
        try:
            compiler()
        except ValueError as error:
            raise UnavailableError(str(error)) from None
        self.precision, self.fitted = precision, fitted
        self.how = "compiled C, one core"

    def fit(self, X: list[Array], y: Array, seed: int) -> None:
        """Fits once for both precisions: the first of them fits, the other reuses it."""
        if seed not in self.fitted:
            self.fitted[seed] = StreamClassifier(random_state=seed, device="cpu").fit(X, y)
        self.classifier = self.fitted[seed]
        self.samples_per_step = self.classifier.frame_
        self.program = self.classifier.program(self.precision)
        self.compiled = compile(self.program)

    def predict(self, X: list[Array]) -> Array:
        """Runs the compiled program, sample by sample."""
        last = []
        for one in X:
            self.compiled.reset()
            last.append(dequantise_output(self.program, self.compiled.run(self._steps(one)))[-1])
        return self.classifier.classes_[np.argmax(last, 1)]

    def sizes(self) -> dict[str, int]:
        """The sizes of the program; its state includes the samples of an incomplete frame."""
        waiting = self.program.inputs if self.samples_per_step > 1 else 0
        return {
            "parameters": sum(parameter.numel() for parameter in self.classifier.model_.parameters()),
            "parameter_bytes": self.program.parameter_bytes,
            "state_bytes": self.program.state_bytes + waiting * np.dtype(self.program.precision).itemsize,
        }

    def step(self, one: Array) -> tuple[Run, int]:
        """All steps of a series in one call, so that the overhead of Python does not count."""
        steps = self._steps(one).astype(self.program.precision)
        return lambda: self.compiled.run(steps), len(steps)

    def _steps(self, one: Array) -> Array:
        (steps,) = series.framed([one.T], self.samples_per_step)
        return quantise_input(self.program, steps.astype(np.float32))


class Kernels(Contender):
    """A classifier of aeon with its defaults: thousands of kernels over a whole window, then a ridge classifier."""

    how = "a whole predict over the window, one core"

    def __init__(self, name: str, most_minutes: float):
        try:
            from aeon.classification import convolution_based
            from aeon.transformations.collection.unequal_length import Padder
        except ImportError as error:
            raise UnavailableError(f"aeon's classifiers cannot be imported ({error}): {GET}") from None
        self.kind, self.padder, self.most_minutes = getattr(convolution_based, name), Padder, most_minutes

    def prepare(self, X: list[Array], y: Array, longest: int) -> None:
        """Compiles on few cases, and refuses if all cases would take too long."""
        super().prepare(X, y, longest)
        few = slice(None, None, max(1, len(X) // FEW))
        for _ in range(2):  # the first compiles
            begin = time.perf_counter()
            self.fit(X[few], y[few], seed=0)
            seconds = time.perf_counter() - begin
        minutes = seconds / len(X[few]) * len(X) / 60
        if minutes > self.most_minutes:
            raise UnavailableError(f"a fit would take about {minutes:.0f} minutes: --minutes is {self.most_minutes:g}")

    def fit(self, X: list[Array], y: Array, seed: int) -> None:
        """Fits series padded to one length, as aeon does."""
        windows = self._window(X)
        self.window_bytes = windows[0].nbytes
        self.classifier = self.kind(random_state=seed, n_jobs=1).fit(windows, y)

    def predict(self, X: list[Array]) -> Array:
        """Predicts padded series, as in `fit`."""
        return self.classifier.predict(self._window(X))

    def sizes(self) -> dict[str, int]:
        """The sizes of the arrays that predictions read; the state is the window in single precision."""
        transform, scaler, ridge = (step for _, step in self.classifier.pipeline_.steps)
        kernels = transform.parameters if hasattr(transform, "parameters") else transform.kernels
        arrays = [*kernels, scaler.scale_, scaler.mean_, ridge.coef_, ridge.intercept_]
        arrays = [np.asarray(array) for array in arrays if array is not None]
        return {
            "parameters": sum(array.size for array in arrays),
            "parameter_bytes": sum(array.nbytes for array in arrays),
            "state_bytes": self.window_bytes,
        }

    def step(self, one: Array) -> tuple[Run, int]:
        """One window, which is padded beforehand."""
        window = self._window([one])
        return lambda: self.classifier.predict(window), 1

    def _window(self, X: list[Array]) -> Array:
        return np.asarray(self.padder(padded_length=self.longest).fit_transform(X), np.float32)


class GRU(nn.Module):
    """Linear, `torch.nn.GRU`, the mean of its outputs over valid steps, linear; called like a `Model`."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.encoder = nn.Linear(config.inputs, UNITS)
        self.gru = nn.GRU(UNITS, UNITS, LAYERS, batch_first=True, dropout=config.dropout)
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(UNITS, config.outputs)

    def forward(self, x: Tensor, *, lengths: Tensor) -> tuple[Tensor, None]:
        """x (batch, time, inputs), lengths (batch) -> (batch, outputs)."""
        features, _ = self.gru(self.encoder(x))
        valid = torch.arange(x.shape[1]) < lengths[:, None]
        mean = torch.where(valid[..., None], features, 0).sum(1) / lengths.clamp_min(1)[:, None]
        return self.head(self.dropout(mean)), None

    def step(self, x_t: Tensor, hidden: Tensor, total: Tensor, count: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One step of one stream: x_t (1, inputs) -> outputs (outputs) and the next state."""
        y, hidden = self.gru(self.encoder(x_t), hidden)
        total, count = total + y[0], count + 1
        return self.head(total / count), hidden, total, count

    def constrain_(self) -> None:
        """Does nothing: no parameter has a range."""


class GRUClassifier(StreamClassifier):
    """`StreamClassifier` with a `GRU` as its model."""

    def _train(self, config: ModelConfig, loss: learn.Loss, training: learn.Batch, held_out: learn.Batch | None) -> Any:
        model: Any = GRU(config)
        self.history_, self.best_epoch_ = learn.learn(model, loss, training, held_out, self._plan(training))
        self.config_ = config
        return model


class Recurrent(Contender):
    """A GRU fitted exactly as `StreamClassifier` fits its model: frames, batches, epochs, schedule, loss."""

    how = "one step in eager PyTorch, one core"

    def fit(self, X: list[Array], y: Array, seed: int) -> None:
        """Fits with the code of the estimator, whose model is replaced."""
        self.classifier = GRUClassifier(random_state=seed, device="cpu").fit(X, y)
        self.samples_per_step = self.classifier.frame_

    def predict(self, X: list[Array]) -> Array:
        """Predicts in PyTorch."""
        return self.classifier.predict(X)

    def sizes(self) -> dict[str, int]:
        """In single precision; the state is both hidden states, the sum of outputs, and a partial frame."""
        count = sum(parameter.numel() for parameter in self.classifier.model_.parameters())
        waiting = self.classifier.config_.inputs if self.samples_per_step > 1 else 0
        kept = (LAYERS + 1) * UNITS + 1 + waiting
        return {"parameters": count, "parameter_bytes": 4 * count, "state_bytes": 4 * kept}

    @torch.no_grad()
    def step(self, one: Array) -> tuple[Run, int]:
        """The first step of a stream; all steps take equally long."""
        model = self.classifier.model_
        (steps,) = series.framed([one.T], self.samples_per_step)
        x = torch.tensor(steps[:1], dtype=torch.float32)
        state = torch.zeros(LAYERS, UNITS), torch.zeros(UNITS), torch.zeros(())

        def run() -> object:
            with torch.inference_mode():
                return model.step(x, *state)

        return run, 1
