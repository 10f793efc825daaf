"""The accuracy and the bytes of a model after every stage, from the trained model to an int8 program."""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mgrade._provenance import commit, hardware, versions
from mgrade.deploy.choices import Choices, build
from mgrade.deploy.convert import from_model
from mgrade.deploy.export import verify, write_export
from mgrade.deploy.passes import optimise
from mgrade.deploy.program import Program
from mgrade.deploy.quantise import calibrate, quantise
from mgrade.deploy.source import Source, open_source


@dataclass(frozen=True)
class Stage:
    """One form of the model: its figures on the test set and its bytes."""

    name: str
    figures: dict[str, float]
    parameter_bytes: int
    state_bytes: int


def forms(source: Source) -> Iterator[tuple[str, Program]]:
    """The program after each pass, down to the int8 program that is exported."""
    model = source.model.eval()
    yield "as a program, step by step", from_model(model)
    snapped = from_model(model, snap=True)
    yield "taps snapped to whole delays", snapped
    small = optimise(snapped)
    yield "delay lines trimmed", small
    yield "int8 weights, int16 activations", quantise(small, calibrate(small, source.calibration()), apart=source.apart)


def others(source: Source) -> Iterator[tuple[str, Program]]:
    """Further forms, which show the cost of unsnapped taps and the precision that states and activations need."""
    exact = optimise(from_model(source.model.eval()))
    yield "int8 without snapping taps", quantise(exact, calibrate(exact, source.calibration()), apart=source.apart)
    small = optimise(from_model(source.model.eval(), snap=True))
    whole = functools.partial(quantise, small, calibrate(small, source.calibration()), apart=source.apart)
    yield "with a 16-bit recurrent state", whole(state_bits=16)
    yield "int8 weights and activations", whole(precision="int8")
    yield "and a 16-bit recurrent state", whole(precision="int8", state_bits=16)


def judged(source: Source, name: str, program: Program, examples: int | None = None) -> Stage:
    """Evaluates a form of the model on the task's test set."""
    return Stage(name, source.judge(program, examples), program.parameter_bytes, program.state_bytes)


def tensors(source: Source, examples: int | None = None) -> list[dict[str, Any]]:
    """The cost of rounding one matrix to int8 while all others stay exact: figures per matrix, worst first."""
    program = optimise(from_model(source.model.eval(), snap=True))
    found = []
    for index, op in enumerate(program.ops):
        for name in ("weight", "table", "mix"):
            if name not in op.arrays or op.kind == "scale":
                continue
            weight = op.arrays[name]
            axis = 0 if op.kind == "filter" or name == "table" else 1
            scale = np.maximum(np.abs(weight).max(axis, keepdims=True) / 127, 1e-30)
            rounded = (np.rint(weight / scale) * scale).astype(np.float32)
            ops = list(program.ops)
            ops[index] = op.with_arrays(**{name: rounded})
            changed = dataclasses.replace(program, ops=tuple(ops))
            figures = source.judge(changed, examples)
            found.append({"op": index, "kind": op.kind, "array": name, "shape": list(weight.shape), **figures})
    return sorted(found, key=lambda entry: -entry.get("surprise", -entry.get("accuracy", 0.0)))


def stage_report(
    run: Path, *, examples: int | None = None, with_tensors: bool = False, chip: str | None = None
) -> dict[str, Any]:
    """All stages of a finished run, as stored in a result file."""
    if examples is not None and examples < 1:
        raise ValueError(f"examples must be at least 1, got {examples}")
    source = open_source(run)
    found = [judged(source, name, program, examples) for name, program in (*forms(source), *others(source))]
    report: dict[str, Any] = {
        "run": "/".join(run.absolute().parts[-3:]),
        "examples": examples,
        "stages": [dataclasses.asdict(stage) for stage in found],
        "commit": commit(),
        "hardware": hardware(torch.device("cpu")),
        "versions": versions(),
    }
    if with_tensors:
        report["tensors"] = tensors(source, examples)
    if chip is not None:
        report["chips"] = [_on_chip(source, chip, precision) for precision in ("float32", "int8")]
    return report


def _on_chip(source: Source, chip: str, precision: str) -> dict[str, Any]:
    """The default export, run on an emulated chip."""
    program = build(source, Choices(precision=precision, snap=True))
    with tempfile.TemporaryDirectory(prefix="mgrade-") as folder:
        write_export(program, source.name, "c", Path(folder))
        return {"precision": precision, **verify(Path(folder), chip)}
