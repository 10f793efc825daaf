"""The common part of both estimators: hyperparameters, a fitted model for raw samples, and its exports."""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from mgrade._checks import check_whole
from mgrade.deploy import (
    Choices,
    Interpreter,
    Program,
    dequantise_output,
    from_model,
    quantise_input,
    write_export,
)
from mgrade.deploy.about import About
from mgrade.deploy.choices import program_of
from mgrade.deploy.source import as_name, together
from mgrade.estimator import budget, learn, series
from mgrade.estimator.series import Cases, Series
from mgrade.nn import Model, ModelConfig

# The sample of training data kept to calibrate int8 exports: number of series, and steps of each.
SAMPLE_SERIES, SAMPLE_STEPS = 32, 512
# The longest default delay; shorter series get half their length.
LONGEST_DELAY = 32
# Exports warn if their outputs deviate by more than this share of their spread.
MOST_DEVIATION = 0.25
# The default number of epochs: the most, the fewest, and in between as many as read this many steps in all, which takes
# about a minute on one core.
MOST_EPOCHS, FEWEST_EPOCHS, STEPS_IN_ALL = 100, 15, 4_000_000
WHOLE = ("dim", "depth", "taps", "batch", "patience")
OPTIONAL = ("max_delay", "epochs")
Self = TypeVar("Self", bound="StreamEstimator")
Arguments = ParamSpec("Arguments")
Fit = Callable[Concatenate[Self, Arguments], Self]


def whole_or_not(fit: Fit[Self, Arguments]) -> Fit[Self, Arguments]:
    """Makes a failing `fit` leave the estimator as it was before."""

    @functools.wraps(fit)
    def fitted(self: Self, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> Self:
        before = dict(self.__dict__)
        try:
            return fit(self, *arguments, **named)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    return fitted


class StreamEstimator(BaseEstimator):  # type: ignore[misc]
    """The common part of `StreamClassifier` and `StreamForecaster`."""

    model_: Model
    """Takes raw samples: the standardisation is folded into its weights."""
    config_: ModelConfig
    mean_: Series
    scale_: Series
    frame_: int = 1
    """Consecutive samples that the model reads per step."""
    n_channels_: int
    n_features_in_: int
    history_: list[learn.Epoch]
    best_epoch_: int
    sample_: list[Series]
    about_: About
    """What exports say about inputs and outputs; set names of channels and labels here beforehand."""
    _form: str

    def __init__(
        self,
        *,
        dim: int,
        depth: int,
        taps: int,
        max_delay: int | None,
        dropout: float,
        epochs: int | None,
        batch: int,
        rate: float,
        validation: float,
        patience: int,
        budget: str | int | None,
        precision: str,
        layout: str,
        random_state: Any,
        verbose: int,
        device: str,
    ):
        self.dim = dim
        self.depth = depth
        self.taps = taps
        self.max_delay = max_delay
        self.dropout = dropout
        self.epochs = epochs
        self.batch = batch
        self.rate = rate
        self.validation = validation
        self.patience = patience
        self.budget = budget
        self.precision = precision
        self.layout = layout
        self.random_state = random_state
        self.verbose = verbose
        self.device = device

    def footprint(self, precision: str | None = None) -> dict[str, Any]:
        """Bytes of the exported program: `parameter_bytes`, `state_bytes` of one stream, and their sum, `bytes`."""
        program = self.program(precision)
        return {
            "precision": precision or self.precision,
            "parameter_bytes": program.parameter_bytes,
            "state_bytes": program.state_bytes,
            "bytes": program.bytes,
        }

    def program(self, precision: str | None = None) -> Program:
        """The fitted model as a `mgrade.deploy.Program` for raw samples; `precision` defaults to the constructor's."""
        check_is_fitted(self)
        sample, apart = [together(self._sample_steps())], not self._about().classes
        return program_of(self.model_, Choices(precision or self.precision), sample, apart=apart, smallest=True)

    def export(
        self, to: str, path: str | Path, precision: str | None = None, name: str | None = None
    ) -> dict[str, Any]:
        """Writes the folder `path`: a program in `c`, `arduino`, `onnx` or `wasm` that takes raw samples.

        int8 is calibrated on the training series kept in `sample_`; `onnx` is always float32. `name` is the program's
        name in C. Returns the content of `export.json` and `deviation`: the error of the outputs on `sample_` relative
        to the model's, as a share of their spread. A large deviation gives a warning.
        """
        program = self.program(precision or ("float32" if to == "onnx" else None))
        off = deviation(program, self.model_, self._sample_steps())
        if off > MOST_DEVIATION:
            warnings.warn(
                f"outputs of the {program.precision} program are off by {off:.0%} of their spread: a larger budget"
                " may help; otherwise export float32",
                stacklevel=2,
            )
        called = name or as_name(Path(path).absolute().name)
        description = write_export(program, called, to, Path(path), self.about_)
        return {**description, "deviation": off}

    def save(self, path: str | Path) -> None:
        """Writes the folder `path`: JSON and safetensors, no pickle. `mgrade.load` also reads the model in it."""
        from mgrade.estimator import storage

        check_is_fitted(self)
        storage.save(self, Path(path))

    @classmethod
    def load(cls: type[Self], path: str | Path) -> Self:
        """The fitted estimator that `save` wrote."""
        from mgrade.estimator import storage

        return storage.load(cls, Path(path))

    def _about(self) -> About:
        """What a fit knows about inputs and outputs."""
        return About(classes=False)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _read_training(self, X: Any, y: Any = "no_validation") -> tuple[Cases, Any]:
        """X as series, and y as checked by scikit-learn; sets n_features_in_ and n_channels_."""
        self._check_parameters()
        series.check_present(X)
        if series.is_table(X):
            checked = validate_data(self, X, y, dtype=np.float64)
            table, y = (checked, None) if isinstance(y, str) else checked
            cases = series.from_table(table)
        else:
            cases = series.read(X, self.layout)
            self.n_features_in_ = cases.channels
        self._form = cases.form
        self.n_channels_ = cases.channels
        return cases, y

    def _read(self, X: Any, any_length: bool = False) -> Cases:
        """X after the fit. A table must have as many columns as the fitted one, unless `any_length`."""
        check_is_fitted(self)
        series.check_present(X)
        if series.is_table(X):
            strict = self._form == "table" and not any_length
            table = (
                validate_data(self, X, reset=False, dtype=np.float64) if strict else check_array(X, dtype=np.float64)
            )
            cases = series.from_table(table)
        else:
            cases = series.read(X, self.layout)
        series.check_channels(cases, self.n_channels_, self.layout)
        return cases

    def _check_parameters(self) -> None:
        for name in WHOLE:
            whole(name, getattr(self, name))
        series.check_layout(self.layout)
        budget.check_precision(self.precision)
        if not (isinstance(self.rate, (int, float, np.floating)) and 0 < self.rate < math.inf):
            raise ValueError(f"rate must be a finite number above 0, got {self.rate!r}")
        if not (isinstance(self.validation, (int, float, np.floating)) and 0 <= self.validation < 1):
            raise ValueError(f"validation must be at least 0 and below 1, got {self.validation!r}")
        if not isinstance(self.verbose, (int, np.integer)) or self.verbose < 0:
            raise ValueError(f"verbose must be a whole number of at least 0, got {self.verbose!r}")
        for name in OPTIONAL:
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))

    def _configure(self, longest: int, **fields: Any) -> ModelConfig:
        """The model for series of `longest` steps, as large as the budget allows or as the parameters say."""
        delay = self.max_delay or max(2, min(LONGEST_DELAY, longest // 2))
        config = ModelConfig.mgrade(
            dim=whole("dim", self.dim),
            depth=whole("depth", self.depth),
            taps=min(whole("taps", self.taps), int(delay)),
            max_delay=int(delay),
            dropout=self.dropout,
            **fields,
        )
        return config if self.budget is None else budget.within(config, self.budget, self.precision)

    def _train(
        self, config: ModelConfig, loss: learn.Loss, training: learn.Batch, held_out: learn.Batch | None
    ) -> Model:
        """A model trained on standardised series; sets `history_` and `best_epoch_`."""
        model = Model(config).to(_device(self.device))
        self.history_, self.best_epoch_ = learn.learn(model, loss, training, held_out, self._plan(training))
        self.config_, self.about_ = config, self._about()
        return model.cpu().eval()

    def _plan(self, training: learn.Batch) -> learn.Plan:
        """The length and the speed of training on these series."""
        steps = int(training[1].sum()) // self.frame_
        return learn.Plan(
            epochs=_epochs(steps) if self.epochs is None else whole("epochs", self.epochs),
            batch=whole("batch", self.batch),
            rate=float(self.rate),
            patience=whole("patience", self.patience),
            verbose=int(self.verbose),
        )

    def _keep_sample(self, cases: Cases, source: np.random.RandomState) -> None:
        enough = [one for one in cases.series if len(one) >= self.frame_]
        chosen = source.permutation(len(enough))[:SAMPLE_SERIES]
        steps = SAMPLE_STEPS * self.frame_
        self.sample_ = [enough[index][:steps].astype(np.float32).astype(np.float64) for index in chosen]

    def _sample_steps(self) -> list[Series]:
        """`sample_` as the model reads it."""
        return series.framed(self.sample_, self.frame_)

    @contextlib.contextmanager
    def _randomness(self) -> Iterator[np.random.RandomState]:
        """Random numbers from `random_state`; leaves PyTorch's own generator unchanged."""
        source = check_random_state(self.random_state)
        with torch.random.fork_rng():
            torch.manual_seed(int(source.randint(np.iinfo(np.int32).max)))
            yield source


def whole(name: str, value: Any) -> int:
    """`value`, of any integer type, as an int of at least 1; `name` is for the message."""
    with contextlib.suppress(TypeError):
        value = value if isinstance(value, bool) else operator.index(value)
    check_whole(name, value)
    return int(value)


def _epochs(steps: int) -> int:
    """The default number of epochs for series with this many steps in total."""
    return max(FEWEST_EPOCHS, min(MOST_EPOCHS, STEPS_IN_ALL // max(steps, 1)))


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be 'auto', 'cpu' or 'cuda', got {name!r}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device must be available, got {name!r}")
    return device


def deviation(program: Program, model: Model, sample: list[Series]) -> float:
    """The RMS error of a program's outputs on `sample` over the spread of the model's; the largest of all outputs."""
    x = together(sample)
    expected, got = (_outputs(one, x) for one in (from_model(model), program))
    spread = expected.std(0)
    return float((np.sqrt(((got - expected) ** 2).mean(0)) / np.where(spread > 0, spread, 1)).max())


def _outputs(program: Program, x: npt.NDArray[np.float32]) -> Series:
    """Outputs at all steps of all series, (steps, outputs)."""
    y = dequantise_output(program, Interpreter(program, len(x)).run(quantise_input(program, x)))
    return y.reshape(-1, program.outputs).astype(np.float64)


@torch.no_grad()
def fold_input(model: Model, mean: Series, scale: Series, still: npt.NDArray[np.bool_]) -> None:
    """Makes the encoder take raw samples x, or frames of them, instead of (x - mean) / scale.

    Drops channels that were `still` (constant) in training: nothing was learned from them, and later they may change.
    """
    frame = model.config.inputs // len(mean)
    model.encoder.weight[:, torch.tensor(still).repeat(frame)] = 0
    model.encoder.weight.copy_(model.encoder.weight.double() / torch.tensor(scale).repeat(frame))
    middle = model.encoder.weight.double() @ torch.tensor(mean).repeat(frame)  # with the rounded weights
    model.encoder.bias.copy_(model.encoder.bias.double() - middle)


@torch.no_grad()
def fold_output(model: Model, mean: Series, scale: Series) -> None:
    """Makes the head output raw values, y * scale + mean instead of y."""
    head = model.readout.head
    assert isinstance(head, torch.nn.Linear)
    width = torch.tensor(scale)
    head.bias.copy_(head.bias.double() * width + torch.tensor(mean))
    head.weight.copy_(head.weight.double() * width[:, None])
