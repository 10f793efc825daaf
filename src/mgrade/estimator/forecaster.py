"""`StreamForecaster`: predicts how a series continues."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mgrade.estimator import series
from mgrade.estimator.base import StreamEstimator, fold_input, fold_output, whole, whole_or_not
from mgrade.estimator.series import Series
from mgrade.estimator.stream import ForecastStream
from mgrade.nn import Model

# Training cuts long series into pieces of this many steps, which overlap by half.
PIECE = 256
# With at least this many series, whole ones are held out; with fewer, the end of each.
MANY = 10
BATCH = 256


class StreamForecaster(StreamEstimator):
    """Predicts the next samples of series of any length and any number of channels.

    It learns to predict each sample from all before it. For further samples it reads its own predictions.
    X is as for `StreamClassifier`: (cases, channels, time), a list of (channels, time), or a table (cases, time) of one
    channel, here of any width. Pass a single series as a list of one. Forecasts have the axes of X.

    Parameters
    ----------
    horizon : default number of samples that `predict` gives.
    validation : share held out: of the series, or of the end of each with fewer than 10 series.

    The others, and the attributes, are those of `StreamClassifier`.
    """

    def __init__(
        self,
        *,
        horizon: int = 1,
        dim: int = 32,
        depth: int = 2,
        taps: int = 4,
        max_delay: int | None = None,
        dropout: float = 0.0,
        epochs: int | None = 100,
        batch: int = 16,
        rate: float = 0.005,
        validation: float = 0.15,
        patience: int = 30,
        budget: str | int | None = None,
        precision: str = "int8",
        layout: str = "cases_channels_time",
        random_state: Any = None,
        verbose: int = 0,
        device: str = "auto",
    ):
        super().__init__(
            dim=dim,
            depth=depth,
            taps=taps,
            max_delay=max_delay,
            dropout=dropout,
            epochs=epochs,
            batch=batch,
            rate=rate,
            validation=validation,
            patience=patience,
            budget=budget,
            precision=precision,
            layout=layout,
            random_state=random_state,
            verbose=verbose,
            device=device,
        )
        self.horizon = horizon

    @whole_or_not
    def fit(self, X: Any, y: Any = None) -> StreamForecaster:
        """X as above; y is ignored, since the series hold their own targets."""
        whole("horizon", self.horizon)
        cases, _ = self._read_training(X)
        longest = max(len(one) for one in cases.series)
        if longest < 2:
            raise ValueError("X must have a series of at least 2 steps, got 1 feature(s) or steps (n_features = 1)")
        self.mean_, self.scale_, still = series.statistics(cases.series)
        config = self._configure(longest, inputs=cases.channels, outputs=cases.channels, readout="every")
        with self._randomness() as source:
            self._keep_sample(cases, source)
            standard = [(one - self.mean_) / self.scale_ for one in cases.series]
            training, held = _split(standard, float(self.validation), source)
            batches = [series.pad(_pieces(part)) if part else None for part in (training, held)]
            assert batches[0] is not None
            model = self._train(config, _loss, batches[0], batches[1])
        fold_input(model, self.mean_, self.scale_, still)
        fold_output(model, self.mean_, self.scale_)
        self.model_ = model
        return self

    def predict(self, X: Any, horizon: int | None = None) -> npt.NDArray[np.float64]:
        """The next `horizon` samples of each series, with the axes of X.

        (cases, channels, horizon) or (cases, horizon, channels), depending on `layout`; (cases, horizon) for a table.
        """
        check_is_fitted(self)
        steps = whole("horizon", self.horizon if horizon is None else horizon)
        cases = self._read(X, any_length=True)
        ahead = np.concatenate([self._ahead(part, steps) for part in _parts(cases.series)])
        if cases.form == "table":
            return ahead[:, :, 0]
        return ahead.transpose(0, 2, 1) if self.layout == series.LAYOUTS[0] else ahead

    def score(self, X: Any, y: Any = None) -> float:
        """R^2 of predicting each sample, from the second on, from those before it; the mean over varying channels.

        If no channel varies, 1 for predictions without error, otherwise 0.
        """
        cases = self._read(X, any_length=True)
        model = self._double()
        predicted, targets = [], []
        with torch.no_grad():
            for one in cases.series:
                predicted.append(model(torch.tensor(one[None, :-1]))[0][0].numpy())
                targets.append(one[1:])
        target, error = np.concatenate(targets), np.concatenate(targets) - np.concatenate(predicted)
        if len(target) < 2:
            raise ValueError(f"X must have at least 2 samples to predict for a score, got {len(target)}")
        varies = target.std(0) > series.ROUNDING * np.abs(target.mean(0))
        if not varies.any():
            return float(not error.any())
        return float(np.mean(1 - (error[:, varies] ** 2).mean(0) / target[:, varies].var(0)))

    def stream(self) -> ForecastStream:
        """A new stream: `step(sample)` predicts the next sample, `forecast(horizon)` several."""
        check_is_fitted(self)
        return ForecastStream(self.model_)

    def _double(self) -> Model:
        return copy.deepcopy(self.model_).double().eval()

    @torch.no_grad()
    def _ahead(self, part: list[Series], horizon: int) -> Series:
        """Predictions after the end of each series, (cases, horizon, channels)."""
        model = self._double()
        values, lengths = series.pad(part, torch.float64)
        outputs, state = model(values, lengths=lengths)
        sample = outputs[torch.arange(len(part)), lengths - 1]
        samples = [sample]
        while len(samples) < horizon:
            sample, state = model.step(sample, state)
            samples.append(sample)
        return torch.stack(samples, 1).numpy()


def _loss(model: Model, values: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Summed squared errors of every next sample, and the number of predicted values."""
    y, _ = model(values[:, :-1], lengths=lengths - 1)
    valid = torch.arange(y.shape[1], device=y.device) < (lengths - 1)[:, None]
    error = torch.where(valid[..., None], y - values[:, 1:], 0)
    return (error**2).sum(), valid.sum() * y.shape[2]


def _split(standard: list[Series], share: float, source: np.random.RandomState) -> tuple[list[Series], list[Series]]:
    """Series for training and series for validation, all of at least 2 steps."""
    if len(standard) >= MANY:
        order = source.permutation(len(standard))
        held = min(max(1, round(share * len(order))), len(order) - 1) if share else 0
        parts = [standard[i] for i in order[held:]], [standard[i] for i in order[:held]]
    else:
        ends = [len(one) - round(share * len(one)) for one in standard]
        parts = (
            [one[:end] for one, end in zip(standard, ends, strict=True)],
            [one[end:] for one, end in zip(standard, ends, strict=True)],
        )
    training, held_out = ([one for one in part if len(one) > 1] for part in parts)
    return (training, held_out) if training else ([one for one in standard if len(one) > 1], [])


def _pieces(part: list[Series]) -> list[Series]:
    """Pieces of at most PIECE + 1 steps, each starting half a piece after the one before."""
    pieces = []
    for one in part:
        begins = range(0, max(1, len(one) - PIECE // 2 - 1), PIECE // 2)
        pieces += [one[begin : begin + PIECE + 1] for begin in begins]
    return pieces


def _parts(cases: list[Series]) -> list[list[Series]]:
    return [cases[begin : begin + BATCH] for begin in range(0, len(cases), BATCH)]
