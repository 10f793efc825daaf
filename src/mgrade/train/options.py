"""How a model is trained: the `train` table of a recipe; and the check that turns a table into options."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from mgrade._checks import check_whole, is_number

T = TypeVar("T")

SCHEDULES = ("cosine", "constant")
PRECISIONS = ("float32", "tf32", "bfloat16")
MOST = {"steps": 10**8, "epochs": 10**8, "batch": 2**20, "evaluations": 10**8}


@dataclass(frozen=True, kw_only=True)
class Training:
    """AdamW, with decay on weights but not on biases, norms and delay positions; positions learn five times as fast."""

    steps: int | None = None
    """Number of batches; set this or `epochs`."""
    epochs: int | None = None
    """Passes over a fixed training set."""
    batch: int = 64
    """Examples per step, over all processes."""
    by_length: bool = False
    """Batches hold examples of similar length, padded to the longest of them: less padding to compute."""
    rate: float = 0.001
    """Peak learning rate."""
    decay: float = 0.0
    """Weight decay."""
    recurrence_rate: float = 1.0
    """Learning rate of gates and candidates, or of an LRU's recurrent parameters, relative to the others [beta]."""
    recurrence_decay: float = 0.0
    """Weight decay on an LRU's recurrent parameters: pulls its magnitudes towards 1/e, a memory of one step."""
    schedule: str = "cosine"
    """`cosine` down to 0 at the last step, or `constant`."""
    warmup: float = 0.0
    """Share of the steps over which the rate rises linearly."""
    clip_value: float | None = None
    """Largest magnitude of a gradient's entry."""
    clip_norm: float | None = None
    """Largest norm of all gradients together."""
    class_weights: str | Sequence[float] = "none"
    """Weights of the classes in the loss: `none`, `inverse` to their shares of the training set, or a list."""
    sigma_from: float | None = None
    """Width of a tap at the start; it narrows to the model's `sigma`."""
    sigma_until: float = 0.25
    """Share of the steps after which taps have their final width."""
    snap: bool = False
    """Taps keep the width `sigma_from` until `sigma_until`; then each becomes one whole delay. Needs a `sigma` of 0.1
    or less. An export then has no taps left to snap."""
    int8: bool = False
    """Weights are rounded as in an int8 export, in every pass and in the saved model."""
    average: float = 0.0
    """Evaluates and saves a moving average of the weights, of which each step keeps this share; with 0, the weights
    themselves."""
    precision: str = "float32"
    """Exact `float32`, `tf32` matrix products, or `bfloat16` activations (on CUDA; the CPU computes in float32)."""
    evaluations: int = 50
    """Number of evaluations on the validation set."""

    def __post_init__(self) -> None:
        if isinstance(self.class_weights, list):
            object.__setattr__(self, "class_weights", tuple(self.class_weights))
        if (self.steps is None) == (self.epochs is None):
            raise ValueError(f"needs either steps or epochs, got steps {self.steps!r} and epochs {self.epochs!r}")
        for name, most in MOST.items():
            value = getattr(self, name)
            if value is not None or name in ("batch", "evaluations"):
                check_whole(name, value, most)
        for name in ("rate", "recurrence_rate", "clip_value", "clip_norm", "sigma_from"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and value > 0):
                raise ValueError(f"{name} must be a number above 0, got {value!r}")
        for name in ("decay", "recurrence_decay"):
            value = getattr(self, name)
            if not (is_number(value) and value >= 0):
                raise ValueError(f"{name} must be a number of at least 0, got {value!r}")
        for name in ("warmup", "sigma_until"):
            value = getattr(self, name)
            if not (is_number(value) and 0 <= value <= 1):
                raise ValueError(f"{name} must be a share from 0 to 1, got {value!r}")
        if not (is_number(self.average) and 0 <= self.average < 1):
            raise ValueError(f"average must be at least 0 and below 1, got {self.average!r}")
        for name, choices in (("schedule", SCHEDULES), ("precision", PRECISIONS)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")
        for name in ("by_length", "snap", "int8"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be true or false, got {getattr(self, name)!r}")
        if self.sigma_from is None and self.sigma_until != type(self).sigma_until:
            raise ValueError(f"sigma_until needs sigma_from: the width from which taps narrow, got {self.sigma_until}")
        if self.snap and self.sigma_from is None:
            raise ValueError("snap needs sigma_from: the width of a tap before it snaps")
        if self.clip_value is not None and self.clip_norm is not None:
            raise ValueError("takes clip_value or clip_norm, not both")
        self._check_class_weights()

    def _check_class_weights(self) -> None:
        given: Any = self.class_weights
        if isinstance(given, str):
            fine = given in ("none", "inverse")
        else:
            fine = isinstance(given, Sequence) and all(is_number(w) and w >= 0 for w in given) and any(given)
        if not fine:
            raise ValueError(
                f"class_weights must be none, inverse or a list of numbers of at least 0, not all 0, got {given!r}"
            )

    @property
    def clip(self) -> tuple[str, float] | None:
        """The bound on gradients, as `TrainingStep` takes it."""
        if self.clip_value is not None:
            return "value", self.clip_value
        return ("norm", self.clip_norm) if self.clip_norm is not None else None


def checked(cls: type[T], table: Any, where: str) -> T:
    """The dataclass `cls` from a table; an error is one line that begins with `where`."""
    if not isinstance(table, dict):
        raise ValueError(f"{where} must be a table, got {table!r}")
    known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for name in table:
        if name not in known:
            raise ValueError(f"{where} has no option {name!r}" + nearest(name, known))
    try:
        return cls(**table)
    except ValueError as error:
        raise ValueError(f"{where}.{error}" if str(error).split(" ")[0] in known else f"{where} {error}") from None
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from None


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint: the known name that was probably meant, or else all known names."""
    known = list(known)
    if not known:
        return "; there are none"
    near = difflib.get_close_matches(str(name), known, 1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(known)}"
