"""What a deployed step computes, how far from it is still right, and how its times are summed up."""

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
"""As `mgrade export` names them: int8 has int16 activations."""
STEPS = 200
"""Steps of a run within C, and those over which outputs are compared."""
MOST_ERROR = 1e-4
"""Of a float32 contender, over the largest output: beyond it, something else is computed."""


def config(quick: bool) -> ModelConfig:
    """The model: 198,272 multiply-adds a step, or for a smoke run a few."""
    if quick:
        return ModelConfig(inputs=16, outputs=10, dim=16, depth=2, taps=8, max_delay=8, sigma=0.3, projection=True)
    return ModelConfig(inputs=16, outputs=10, dim=64, depth=6, taps=64, max_delay=64, sigma=0.3, projection=True)


class Subject:
    """One model with random weights, its programs, and what they are to give."""

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
        """The largest difference over the largest output: from the interpreter, and of integers from float32 too."""
        found = {"error": _distance(outputs, self.expected[precision])}
        if precision != "float32":
            found["error_to_float32"] = _distance(outputs, self.expected["float32"])
        return found

    def describe(self) -> dict[str, Any]:
        """Sizes."""
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
    """Why there is no result, in its place."""
    try:
        yield
    except UnavailableError as reason:
        results[name] = {"unavailable": str(reason)}
    except Exception as error:
        results[name] = {"failed": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"}


def checked(subject: Subject, outputs: Array, precision: str) -> dict[str, Any]:
    """The errors; a ValueError if another function is computed."""
    errors = subject.errors(outputs, precision)
    if not errors["error"] <= (MOST_ERROR if precision == "float32" else 0.0):
        raise ValueError(f"its outputs differ from the interpreter's by {errors['error']:.2g} of the largest")
    return {"precision": precision, **errors}


def timing(times: list[float]) -> dict[str, Any]:
    """`measure.summary`, and the 10th percentile: what a step takes where nothing comes between."""
    tenth = statistics.quantiles(times, n=10)[0] if len(times) > 9 else min(times)
    return {"tenth": tenth, **measure.summary(times)}
