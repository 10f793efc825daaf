"""The deployed step: what it computes, the tolerance for its outputs, and the summary of its times."""

from __future__ import annotations

import contextlib
import statistics
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks import measure
from benchmarks.measure import UnavailableError
from mgrade import Model, ModelConfig
from mgrade.deploy import (
    Interpreter,
    Program,
    calibrate,
    dequantise_output,
    from_model,
    optimise,
    quantise,
    quantise_input,
)

Array = npt.NDArray[Any]

PRECISIONS = ("float32", "int8")
"""As in `mgrade export`: int8 has int16 activations."""
STEPS = 200
"""Steps of one run in C, and steps over which outputs are compared."""
MOST_ERROR = 1e-4
"""The largest error of a float32 contender, relative to the largest output."""


def config(quick: bool) -> ModelConfig:
    """The model: 198,272 multiply-adds a step, or only a few for a smoke run."""
    if quick:
        return ModelConfig(inputs=16, outputs=10, dim=16, depth=2, taps=8, max_delay=8, sigma=0.3, projection=True)
    return ModelConfig(inputs=16, outputs=10, dim=64, depth=6, taps=64, max_delay=64, sigma=0.3, projection=True)


class Subject:
    """One model with random weights, its programs, and their expected outputs."""

    def __init__(self, quick: bool):
        torch.manual_seed(0)
        self.model = Model(config(quick)).eval()
        random = np.random.default_rng(0)
        self.x = random.standard_normal((STEPS, self.model.config.inputs)).astype(np.float32)
        program = optimise(from_model(self.model))
        calibration = random.standard_normal((1, 500, self.model.config.inputs)).astype(np.float32)
        small = quantise(program, calibrate(program, [calibration]), precision="int16")
        self.programs: dict[str, Program] = {"float32": program, "int8": small}
        self.inputs = {name: quantise_input(each, self.x) for name, each in self.programs.items()}
        self.expected = {name: self._expected(name) for name in self.programs}

    def _expected(self, precision: str) -> Array:
        program = self.programs[precision]
        return dequantise_output(program, Interpreter(program).run(self.inputs[precision][None])[0])

    def errors(self, outputs: Array, precision: str) -> dict[str, float]:
        """The largest error relative to the largest output: against the interpreter, for int8 also against float32."""
        found = {"error": _distance(outputs, self.expected[precision])}
        if precision != "float32":
            found["error_to_float32"] = _distance(outputs, self.expected["float32"])
        return found

    def describe(self) -> dict[str, Any]:
        """The sizes of the model."""
        c, programs = self.model.config, self.programs
        names = ("inputs", "outputs", "dim", "depth", "taps", "max_delay", "sigma", "projection", "readout")
        return {
            **{name: getattr(c, name) for name in names},
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "weight_bytes": {name: program.parameter_bytes for name, program in programs.items()},
            "state_bytes": {name: program.state_bytes for name, program in programs.items()},
        }


def _distance(y: Array, expected: Array) -> float:
    return float(np.abs(y - expected).max() / np.abs(expected).max())


@contextlib.contextmanager
def noted(results: dict[str, dict[str, Any]], name: str) -> Any:
    """Records the reason in place of a result if there is none."""
    try:
        yield
    except UnavailableError as reason:
        results[name] = {"unavailable": str(reason)}
    except Exception as error:
        results[name] = {"failed": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"}


def checked(subject: Subject, outputs: Array, precision: str) -> dict[str, Any]:
    """The errors; raises a ValueError if they are too large."""
    errors = subject.errors(outputs, precision)
    if not errors["error"] <= (MOST_ERROR if precision == "float32" else 0.0):
        raise ValueError(f"its outputs differ from the interpreter's by {errors['error']:.2g} of the largest")
    return {"precision": precision, **errors}


def timing(times: list[float]) -> dict[str, Any]:
    """`measure.summary` plus the 10th percentile: the time of an undisturbed step."""
    tenth = statistics.quantiles(times, n=10)[0] if len(times) > 9 else min(times)
    return {"tenth": tenth, **measure.summary(times)}
