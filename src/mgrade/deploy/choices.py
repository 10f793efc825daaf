"""From a trained model to a program, given a few choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from mgrade.deploy.convert import check_exportable, from_model
from mgrade.deploy.passes import optimise, prune, trim
from mgrade.deploy.program import Program
from mgrade.deploy.quantise import STATES, calibrate, quantise
from mgrade.deploy.source import Source
from mgrade.deploy.specs import BITS
from mgrade.nn import Model

PRECISIONS = ("float32", "int8")


@dataclass(frozen=True)
class Choices:
    """How to turn a model into a program."""

    precision: str = "float32"
    activations: str = "int16"
    state_bits: int = 32
    snap: bool = False

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}")
        if self.activations not in BITS:
            raise ValueError(f"activations must be one of {', '.join(BITS)}, got {self.activations!r}")
        if self.state_bits not in STATES:
            raise ValueError(f"state_bits must be 16 or 32, got {self.state_bits!r}")
        if self.precision == "float32" and (self.activations, self.state_bits) != ("int16", 32):
            raise ValueError("activations and state_bits require precision int8, got precision float32")


def build(source: Source, choices: Choices, samples: Path | None = None) -> Program:
    """The program of a trained model; int8 is calibrated on `samples`, or on the task's training set.

    For a saved estimator, this is the program that the estimator itself exports.
    """
    if samples is not None and choices.precision == "float32":
        raise ValueError("calibration samples require precision int8, got precision float32")
    check_exportable(source.model)  # before the model runs on sequences
    sequences = source.calibration(samples) if choices.precision == "int8" else []
    return program_of(source.model.eval(), choices, sequences, apart=source.apart, smallest=bool(source.sample))


def program_of(
    model: Model, choices: Choices, sequences: Sequence[npt.NDArray[Any]], *, apart: bool, smallest: bool
) -> Program:
    """The program of a model; int8 is calibrated on `sequences`.

    apart: outputs are values, see `quantise`. smallest: choose the form with the fewest bytes, whatever a step costs.
    """
    plain = from_model(model, snap=choices.snap)
    # short delay lines; short and narrow ones; neither
    forms = [prune(trim(plain)), optimise(plain), plain] if smallest else [optimise(plain)]
    if choices.precision == "int8":
        options: dict[str, Any] = {"precision": choices.activations, "state_bits": choices.state_bits, "apart": apart}
        forms = [quantise(form, calibrate(form, sequences), **options) for form in forms]
    return min(forms, key=lambda form: form.bytes)
