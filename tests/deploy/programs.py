"""Models, programs and inputs for the tests of this folder: of every kind, with weights that training may lead to."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from mgrade import Model, ModelConfig
from mgrade.deploy import (
    Interpreter,
    Op,
    Program,
    calibrate,
    compile,
    from_model,
    optimise,
    print_c,
    quantise,
    quantise_input,
    save_program,
)
from mgrade.deploy.c.host import WARNINGS
from mgrade.deploy.check import NUMBER_RANGES
from mgrade.deploy.program import Unit
from mgrade.deploy.specs import BITS, SPECS, array_dtype

TOLERANCE = 1e-5
PRESETS = ("mgrade", "mingru", "dcls", "tcn", "lru", "lru_dcls")
READOUTS = ("every", "last", "mean", "sum")
PRECISIONS = ("int16", "int8")
QUICK = ("-O1",)
"""Flags of a compiler that has not much to do."""


# Models ---------------------------------------------------------------------------------------------------------------


@st.composite
def configs(draw: st.DrawFn) -> ModelConfig:
    """Any of the models that a configuration can describe, small enough to run step by step."""
    some = lambda *choices: draw(st.sampled_from(choices))  # noqa: E731
    out_of = lambda *choices: tuple(name for name in choices if draw(st.booleans()))  # noqa: E731
    parts = st.tuples(
        st.sampled_from(("delay", "dilated", "none")),
        st.sampled_from(("mingru", "lru", "none")),
        st.sampled_from(("gelu", "glu", "none")),
    ).filter(lambda three: set(three) != {"none"})
    conv, recurrence, mlp = draw(parts)
    dim, depth, expansion, projection = draw(st.integers(4, 9)), draw(st.integers(1, 3)), some(0.5, 1.0, 1.7), some(*TF)
    skips = out_of("conv", "recurrence", "mlp", "layer")
    if recurrence == "mingru" and round(expansion * dim) != dim:
        projection = projection or mlp == "none"
        skips = skips if projection else tuple(skip for skip in skips if skip not in ("recurrence", "mlp"))
    norms = [name for name, part in (("conv", conv), ("recurrence", recurrence), ("mlp", mlp)) if part != "none"]
    return ModelConfig(
        inputs=draw(st.integers(1, 9)),
        outputs=draw(st.integers(1, 5)),
        tokens=some(*TF),
        dim=dim,
        depth=depth,
        expansion=expansion,
        conv=conv,
        taps=draw(st.integers(1, 4)),
        max_delay=draw(st.integers(1, 14)),
        sigma=some(0.1, 0.5, 0.8, 3.0),
        dilation=some(None, 1, 3, tuple(range(depth, 0, -1))),
        position_init=some("even", "random"),
        recurrence=recurrence,
        gate_bias=some("zero", "open", "closed", "uniform", -0.7),
        projection=projection,
        mlp=mlp,
        norm=some("post", "pre", "none"),
        branch_norms=out_of(*norms),
        activations=out_of(*[name for name in norms if name != "mlp"], "head"),
        skips=skips,
        readout=some(*READOUTS),
    )


TF = (False, True)


def small(preset: str, **fields: object) -> ModelConfig:
    """A preset, small."""
    sizes = {"inputs": 3, "outputs": 4, "dim": 6, "depth": 2, "taps": 3, "max_delay": 11}
    return getattr(ModelConfig, preset)(**{**sizes, **fields})


def perturbed(config: ModelConfig, seed: int = 0) -> Model:
    """A model none of whose parameters is what it starts with: biases and norms at work, delays anywhere."""
    torch.manual_seed(seed)
    model = Model(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            size = 0.3 * config.max_delay if name.endswith("position") else 0.3
            parameter.add_(size * torch.randn_like(parameter))
    model.constrain_()
    return model


def inputs_of(config: ModelConfig | Program, streams: int, time: int, seed: int = 0) -> np.ndarray:
    """What a model or a float program reads: (streams, time, inputs), or token ids (streams, time)."""
    rng = np.random.default_rng(seed)
    if config.tokens:
        return rng.integers(0, config.inputs, (streams, time))
    return rng.standard_normal((streams, time, config.inputs)).astype(np.float32)


def by_steps(model: Model, x: np.ndarray) -> np.ndarray:
    """What a model gives one step at a time: (streams, time, outputs)."""
    state, outputs = model.initial_state(len(x)), []
    with torch.no_grad():
        for x_t in torch.from_numpy(x).unbind(1):
            y, state = model.step(x_t, state)
            outputs.append(y)
    return torch.stack(outputs, 1).numpy()


# Programs -------------------------------------------------------------------------------------------------------------


def program_of(preset: str = "mgrade", *, snap: bool = False, seed: int = 0, **fields: object) -> Program:
    """The optimised program of a small model."""
    return optimise(from_model(perturbed(small(preset, **fields), seed), snap=snap))


def integer(program: Program, precision: str = "int16", state_bits: int = 32, seed: int = 0) -> Program:
    """The same in whole numbers."""
    ranges = calibrate(program, [inputs_of(program, 4, 40, seed)])
    return quantise(program, ranges, precision=precision, state_bits=state_bits)


def integer_inputs(program: Program, streams: int, time: int, seed: int = 0) -> np.ndarray:
    """What an integer program reads; now and then the largest there is."""
    x = quantise_input(program, inputs_of(program, streams, time, seed))
    if not program.tokens:
        half = 1 << (BITS[program.precision] - 1)
        rng = np.random.default_rng(seed + 1)
        x = np.where(rng.random(x.shape) < 0.1, rng.choice([-half, 1 - half, -1, 0, 1, half - 1], x.shape), x)
    return x


def inputs_for(program: Program, streams: int, time: int, seed: int = 0) -> np.ndarray:
    """What a program reads, of either sort."""
    return (integer_inputs if program.integer else inputs_of)(program, streams, time, seed)


# Programs that no model leads to --------------------------------------------------------------------------------------

WIDTHS = (1, 2, 3, 4, 5, 8, 16, 17, 33, 70)


def random_program(seed: int, precision: str = "float32", operations: int = 10) -> Program:
    """Random operations on one another's values; an integer program's arrays and numbers are anything allowed."""
    return _RandomProgram(seed, precision).build(operations)


class _RandomProgram:
    """Guesses operations until enough of them are valid."""

    def __init__(self, seed: int, precision: str):
        self.rng = np.random.default_rng(seed)
        self.tokens, self.extreme = bool(self.rng.integers(2)), bool(self.rng.integers(2))
        self.inputs, self.precision = self._width(), precision
        self.integer = precision in BITS
        self.ops: tuple[Op, ...] = ()
        self.exponents: tuple[int, ...] = (self._whole(-30, 30),) if self.integer else ()
        self.widths: tuple[int, ...] = (1 if self.tokens else self.inputs,)

    def build(self, operations: int) -> Program:
        kinds = [kind for kind in SPECS if kind not in ("mean", "sum")]
        while len(self.ops) < operations:
            self._try(kinds[self.rng.integers(len(kinds))])
        while self.ops[-1].kind not in ("mean", "sum") and self.rng.random() < 0.5:
            self._try(("mean", "sum")[self.rng.integers(2)])
        program = self._program()
        if not self.integer or self.rng.random() < 0.5:
            return program
        into, out = ([self._unit() for _ in range(count)] for count in (program.inputs, program.outputs))
        return dataclasses.replace(program, input_units=() if self.tokens else tuple(into), output_units=tuple(out))

    def _unit(self) -> Unit:
        return Unit(float(np.float32(self.rng.normal(0, 100))), self._whole(-120, 120))

    def _program(self) -> Program:
        return Program(self.inputs, self.tokens, self.ops, self.precision, self.exponents)

    def _try(self, kind: str) -> None:
        """Adds an operation of this kind if the guess is a valid one."""
        before = self.ops, self.exponents
        if args := self._args(SPECS[kind].args):
            self.ops = (*self.ops, self._op(kind, args))
            self.exponents = (*self.exponents, self._exponent(args)) if self.integer else ()
            try:
                self.widths = self._program().widths
            except ValueError:
                self.ops, self.exponents = before

    def _op(self, kind: str, args: tuple[int, ...]) -> Op:
        spec = SPECS[kind]
        read = {letter: self.widths[value] for letter, value in zip(spec.args, args, strict=True)}
        sizes = {
            "o": self._width(),
            "k": self._whole(1, 5),
            "v": self.inputs,
            "h": read.get("p", 2) // 2,
            "2": 2,
            **read,
        }
        names = {**spec.arrays, **(spec.integer if self.integer else {})}
        arrays = {name: self._array(kind, name, [sizes[c] for c in letters]) for name, letters in names.items()}
        if not self.integer:
            return Op(kind, args, arrays, dict.fromkeys(spec.numbers, 0.01))
        return Op(kind, args, arrays, {name: self._whole(*NUMBER_RANGES[name]) for name in spec.integer_numbers})

    def _args(self, letters: tuple[str, ...]) -> tuple[int, ...]:
        """Values before, of equal width, rather late ones; nothing where there are none."""
        readable = range(1 if self.tokens else 0, len(self.widths))
        if letters == ("token",):
            return (0,) if self.tokens else ()
        if not readable:
            return ()
        first = readable[self._whole(max(0, len(readable) - 4), len(readable) - 1)]
        same = [value for value in readable if self.widths[value] == self.widths[first]]
        return (first, *(same[self._whole(0, len(same) - 1)] for _ in letters[1:]))

    def _exponent(self, args: tuple[int, ...]) -> int:
        kept = self.exponents[args[self._whole(0, len(args) - 1)]]
        return int(self.rng.choice([kept, kept + self._whole(-14, 14), self._whole(-30, 30)]))

    def _array(self, kind: str, name: str, shape: list[int]) -> np.ndarray:
        dtype = array_dtype(kind, name, self.integer)
        if name == "lag":
            return self.rng.integers(0, self._whole(1, 20), shape).astype(dtype)
        if np.dtype(dtype).kind == "f":
            values = self.rng.standard_normal(shape) / np.sqrt(shape[-1])
            return (np.tanh(values) / 1.5 if name == "decay" else values).astype(dtype)
        high = int(np.iinfo(dtype).max)
        low = 0 if name.endswith("multiplier") else -127 if dtype == "int8" else int(np.iinfo(dtype).min)
        if name == "bias" and self.rng.random() < 0.7:  # of which there may be too much
            low, high = low >> 10, high >> 10
        values = self.rng.integers(low, high, shape, endpoint=True)
        if self.extreme:
            values = np.where(self.rng.random(shape) < 0.5, self.rng.choice([low, high], shape), values)
        return values.astype(dtype)

    def _whole(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high, endpoint=True))

    def _width(self) -> int:
        return WIDTHS[self.rng.integers(len(WIDTHS))]


# C --------------------------------------------------------------------------------------------------------------------

COMPILERS = ("gcc", "clang-19")
every_compiler = pytest.mark.parametrize(
    "cc",
    [
        pytest.param(cc, marks=pytest.mark.skipif(shutil.which(cc) is None, reason=f"{cc} is not installed"))
        for cc in COMPILERS
    ],
)


def write_c(folder: Path, program: Program, name: str = "model", test: np.ndarray | None = None) -> Path:
    """The files of an export."""
    for file, text in print_c(program, name, test).items():
        (folder / file).write_text(text, encoding="utf-8")
    return folder


def run(folder: Path, *command: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """A command that must not fail."""
    done = subprocess.run(command, cwd=folder, input=data, capture_output=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr.decode()[-3000:]}"
    return done


def assert_close(actual: np.ndarray, expected: np.ndarray, tolerance: float = TOLERANCE) -> None:
    """Equal but for rounding, relative to the largest."""
    assert actual.shape == expected.shape, f"shape {actual.shape} is not {expected.shape}"
    error = float(np.abs(actual.astype(np.float64) - expected).max(initial=0))
    largest = float(np.abs(expected).max(initial=0))
    assert error <= tolerance * largest, f"error {error:.2e} is over {tolerance:.0e} of {largest:.2e}"


def assert_as_interpreted(program: Program, y: np.ndarray, expected: np.ndarray) -> None:
    """What C gives: the interpreter's bits for an integer program, its numbers but for rounding for a float one."""
    if not program.integer:
        return assert_close(y, expected)
    wrong = np.argwhere(y != expected)
    assert not len(wrong), f"{len(wrong)} of {expected.size} differ, first at {wrong[0]}"
    return None


# Files ----------------------------------------------------------------------------------------------------------------


def saved(program: Program) -> bytes:
    """The bytes of a program's file."""
    with tempfile.TemporaryDirectory() as folder:
        save_program(program, Path(folder) / "p")
        return (Path(folder) / "p").read_bytes()


def edited(program: Program, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> bytes:
    """The bytes of a file whose header, and the description of the program in it, `change` has altered."""
    return edit(saved(program), change)


def edit(data: bytes, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> bytes:
    """The same of a file that is there."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    written = header["__metadata__"]["program"]
    description = json.loads(written)
    change(header, description)
    if header["__metadata__"] and header["__metadata__"]["program"] == written:
        header["__metadata__"]["program"] = json.dumps(description)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[end:]


C99 = ("-std=c99", *WARNINGS, "-Werror")
DRIVER = """
#include <stdio.h>
#include <stdlib.h>
#include "model.h"
int main(void) {
    model_state *state = malloc(sizeof *state);
    model_input *x = malloc(sizeof *x * MODEL_INPUTS);
    model_output *y = malloc(sizeof *y * MODEL_OUTPUTS);
    model_init(state);
    while (fread(x, sizeof *x, MODEL_INPUTS, stdin) == MODEL_INPUTS) {
        model_step(state, x, y);
        fwrite(y, sizeof *y, MODEL_OUTPUTS, stdout);
    }
    free(state);
    free(x);
    free(y);
    return 0;
}
"""


def driven(folder, program, x, *command):
    """What a program of its own gives for inputs (time, inputs)."""
    write_c(folder, program)
    (folder / "driver.c").write_text(DRIVER)
    run(folder, *command, "model.c", "driver.c", "-o", "driver")
    kind = np.dtype("uint16" if program.tokens else program.precision)
    pooled = program.integer and program.ops[-1].kind in ("mean", "sum")
    y = run(folder, "./driver", data=x.astype(kind).tobytes()).stdout
    return np.frombuffer(y, "int32" if pooled else program.precision).reshape(len(x), program.outputs)


def assert_same(program, time=40, seed=0, flags=QUICK):
    x = inputs_for(program, 1, time, seed)
    assert_as_interpreted(program, compile(program, flags=flags).run(x[0]), Interpreter(program).run(x)[0])
