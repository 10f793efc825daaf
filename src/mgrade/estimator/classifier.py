"""`StreamClassifier`: which class a series belongs to, as a scikit-learn classifier."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d
from torch import Tensor

from mgrade.deploy.about import LONGEST, About
from mgrade.estimator import series
from mgrade.estimator.base import StreamEstimator, fold_input, whole, whole_or_not
from mgrade.estimator.learn import Batch, Loss
from mgrade.estimator.stream import ClassStream
from mgrade.footprint.measure import MAX_INTEGER_TERMS
from mgrade.nn import Model

BATCH = 256
# A series is read in about this many steps: in longer ones, a step reads several samples.
STEPS = 100
# Label smoothing, against overconfidence on few cases.
SMOOTHING = 0.1


class StreamClassifier(ClassifierMixin, StreamEstimator):  # type: ignore[misc]
    """Classifies series, whole or sample by sample.

    X is an array (cases, channels, time) or a list of arrays (channels, time), whose lengths may differ: aeon's and
    sktime's order of axes. With layout="cases_time_channels", time comes before channels in both. A table (cases, time)
    or a list of series (time) of any lengths has one channel. As usual in scikit-learn, later tables must be as wide as
    the fitted one; lists and arrays need not be.

    Parameters
    ----------
    dim, depth, taps : width, layers, and taps per channel of the convolution.
    max_delay : reach of the convolution in steps; None takes half the median length, at most 32.
    frame : samples read per step; outputs change after every frame. None takes 1 for a median of less than 200 samples,
        otherwise as many as give about 100 steps.
    dropout : share of values dropped in training.
    readout : "mean" averages the outputs of all steps, "last" takes the latest.
    epochs, batch, rate : passes over the data, cases per update, peak learning rate. None for epochs takes 100, or
        fewer for much data, down to 15.
    validation : share of the cases held out; the weights with the lowest loss on them are kept. 0 trains on all cases,
        to the end.
    patience : with cases held out, epochs without a better validation loss before training stops.
    budget : bytes, such as "64KB", for parameters and the state of one stream together, exported at `precision`; the
        largest `dim` that fits replaces the given one. None keeps the given one.
    precision : "int8" or "float32": for the budget, and the default for exports.
    layout : "cases_channels_time" or "cases_time_channels".
    random_state : seed, for reproducible models.
    verbose : 0 is silent, 1 prints every tenth epoch, 2 every epoch.
    device : where to train; "auto" takes CUDA if available. Predictions run on the CPU, in double precision.

    Attributes
    ----------
    classes_, n_channels_, n_features_in_ (columns of a table, channels otherwise), model_ (reads raw samples),
    config_, frame_ (samples per step), mean_ and scale_ (of the channels), history_ (losses by epoch), best_epoch_,
    sample_ (series that calibrate int8 exports).
    """

    classes_: npt.NDArray[Any]

    def __init__(
        self,
        *,
        dim: int = 48,
        depth: int = 2,
        taps: int = 4,
        max_delay: int | None = None,
        frame: int | None = None,
        dropout: float = 0.2,
        readout: str = "mean",
        epochs: int | None = None,
        batch: int = 16,
        rate: float = 0.005,
        validation: float = 0.0,
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
        self.frame = frame
        self.readout = readout

    @whole_or_not
    def fit(self, X: Any, y: Any) -> StreamClassifier:
        """X as above, y (cases): any labels."""
        cases, labels = self._read_training(X, y)
        if labels is None:
            raise ValueError("StreamClassifier requires y to be passed, but the target y is None")
        labels = column_or_1d(labels, warn=True)
        check_consistent_length(cases.series, labels)
        check_classification_targets(labels)
        self.classes_, targets = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must have at least 2 classes, got 1 class: {self.classes_.tolist()[0]!r}")
        if self.readout not in ("mean", "last"):
            raise ValueError(f"readout must be one of mean, last, got {self.readout!r}")
        self.mean_, self.scale_, still = series.statistics(cases.series)
        self.frame_, steps = self._frames([len(one) for one in cases.series], self.n_channels_)
        config = self._configure(
            steps,
            inputs=self.frame_ * cases.channels,
            outputs=len(self.classes_),
            readout=self.readout,
            norm="pre",
        )
        with self._randomness() as source:
            self._keep_sample(cases, source)
            held = _held_out(targets, float(self.validation), source)
            if self.validation and not held.any():
                raise ValueError(f"validation must hold out at least one case, got {self.validation} of {len(targets)}")
            standard = [(one - self.mean_) / self.scale_ for one in cases.series]
            training = _batch(standard, targets, ~held)
            model = self._train(
                config, _loss(self.frame_), training, _batch(standard, targets, held) if held.any() else None
            )
        fold_input(model, self.mean_, self.scale_, still)
        self.model_ = model
        return self

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Probabilities (cases, classes), in the order of `classes_`."""
        return torch.softmax(self._logits(X), -1).numpy()

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most likely class of each case (cases)."""
        best = self._logits(X).argmax(1).numpy()
        return self.classes_[best]

    def stream(self) -> ClassStream:
        """A new stream: `step(sample)` gives `predict_proba` for the samples so far."""
        check_is_fitted(self)
        return ClassStream(self.model_, self.classes_, self.frame_)

    def _frames(self, lengths: list[int], channels: int) -> tuple[int, int]:
        """Samples per step, and steps of the median series."""
        if self.precision != "float32" and channels > MAX_INTEGER_TERMS:
            raise ValueError(f"channels must be at most {MAX_INTEGER_TERMS} at int8, got {channels}: use float32")
        median, most = int(np.median(lengths)), MAX_INTEGER_TERMS // channels
        frame = max(1, min(median // STEPS, most)) if self.frame is None else whole("frame", self.frame)
        if self.precision != "float32" and frame > most:
            raise ValueError(f"frame must be at most {most} for {channels} channels at int8, got {frame}")
        if frame > max(lengths):
            raise ValueError(f"frame must be at most the length of the longest series, {max(lengths)}, got {frame}")
        return frame, median // frame

    def _about(self) -> About:
        """The classes, in the order of the outputs; long names are cut."""
        return About(labels=tuple(str(label)[:LONGEST] for label in self.classes_), frame=self.frame_)

    @torch.no_grad()
    def _logits(self, X: Any) -> Tensor:
        cases = self._read(X).series
        model = copy.deepcopy(self.model_).double().eval()
        parts = []
        for begin in range(0, len(cases), BATCH):
            values, lengths = series.pad(series.framed(cases[begin : begin + BATCH], self.frame_), torch.float64)
            parts.append(model(values, lengths=lengths)[0])
        return torch.cat(parts)


def _loss(frame: int) -> Loss:
    """Summed cross-entropy, and the number of cases. In training, frames start anywhere within the first one."""

    def loss(model: Model, values: Tensor, lengths: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        if frame > 1:
            skip = torch.zeros_like(lengths)
            if model.training:
                skip = torch.randint_like(lengths, frame).minimum((lengths - frame).clamp_min(0))
            values, lengths = series.cut(values, lengths, frame, skip)
        y, _ = model(values, lengths=lengths)
        return F.cross_entropy(y, targets, reduction="sum", label_smoothing=SMOOTHING), torch.ones_like(targets).sum()

    return loss


def _batch(standard: list[series.Series], targets: npt.NDArray[np.int64], chosen: npt.NDArray[np.bool_]) -> Batch:
    values, lengths = series.pad([one for one, wanted in zip(standard, chosen, strict=True) if wanted])
    return values, lengths, torch.tensor(targets[chosen])


def _held_out(targets: npt.NDArray[np.int64], share: float, source: np.random.RandomState) -> npt.NDArray[np.bool_]:
    """The cases to validate on, as a mask (cases): the same share of every class, which keeps at least one case."""
    shuffled = source.permutation(len(targets))
    order = shuffled[np.argsort(targets[shuffled], kind="stable")]
    place = np.arange(len(order))
    chosen = np.floor((place + 1) * share) > np.floor(place * share)
    chosen[np.unique(targets[order], return_index=True)[1]] = False
    held = np.zeros(len(targets), bool)
    held[order[chosen]] = True
    return held
