"""What a playground shows: a program, its module, what is known about them and, if asked for, test data."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from mgrade.deploy import Choices, Program, build, load_program, open_source, read_export, wasm
from mgrade.deploy.about import About, about, read_about
from mgrade.deploy.c.printer import check_name
from mgrade.deploy.export import DESCRIPTION, TARGETS
from mgrade.deploy.source import Array, Sequence
from mgrade.nn.storage import DESCRIPTION as MODEL
from mgrade.train.finished import RECIPE


@dataclass(frozen=True)
class Exhibit:
    """A program, its module, what is known about them, and test sequences."""

    name: str
    program: Program
    module: bytes
    about: About
    examples: tuple[Sequence, ...] = ()

    def __post_init__(self) -> None:
        self.about.fit(self.program)


def open_exhibit(
    path: Path, *, run: Path | None = None, test: int = 0, labels: tuple[str, ...] = (), rate: int | None = None
) -> Exhibit:
    """Opens the folder of an export, a finished run or a saved model, or a program file.

    `run`, the run that an export was made from, provides names, rates and test data; `test` is the number of test
    sequences to include. `labels` and `rate`, in sound samples per second, override what is known.
    """
    if test < 0:
        raise ValueError(f"--test must be at least 0, got {test}")
    shown = _opened(path)
    origin = run or (path if (path / RECIPE).is_file() else None)
    if test and origin is None:
        raise ValueError(f"--test takes sequences of a run, and {path} is not a run: add --run RUN")
    known = shown.about
    if run is not None:
        source = open_source(run)
        if source.task is None:
            raise ValueError(f"--run must be the folder of a run, and {run} is that of a saved model")
        sizes = [(one.inputs, one.outputs) for one in (source.model.config, shown.program)]
        if sizes[0] != sizes[1]:
            read = [f"{inputs} inputs and {outputs} outputs" for inputs, outputs in sizes]
            raise ValueError(f"--run must be the run that {path} was made from: {run} has {read[0]}, not {read[1]}")
        known = about(source.task)
    if labels:
        known = dataclasses.replace(known, labels=labels, classes=True)
    if rate is not None:
        known = dataclasses.replace(known, samples_per_second=rate)
    examples = open_source(origin).test_sequences(test) if test and origin else []
    for x, label in examples:
        if misfit := _misfit(shown.program, x, label):
            raise ValueError(f"--test: {misfit}: --run must be the run that {path} was made from, got {origin}")
    return dataclasses.replace(shown, about=known, examples=tuple(examples))


def _misfit(program: Program, x: Array, label: int | None) -> str | None:
    """Why a test sequence does not fit `program`; None if it does."""
    if program.tokens and x.ndim > 1:
        return f"a sample of the run has {x.shape[1]} values, and the model reads tokens"
    if not program.tokens and x.shape[1:] != (program.inputs,):
        have = f"has {x.shape[1]} values" if x.ndim > 1 else "is a token"
        return f"a sample of the run {have}, and the model reads {program.inputs} values"
    if program.tokens and x.size and not 0 <= x.min() <= x.max() < program.inputs:
        return f"the run has tokens from {x.min()} to {x.max()}, and the model reads 0 to {program.inputs - 1}"
    if label is not None and not 0 <= label < program.outputs:
        return f"the run has a class {label}, and the model has outputs 0 to {program.outputs - 1}"
    return None


def _opened(path: Path) -> Exhibit:
    if path.is_file():
        program = load_program(path)
        return Exhibit(path.stem, program, wasm.to_wasm(program), _unknown(program))
    if (path / DESCRIPTION).is_file():
        return _from_export(path)
    if not any((path / file).is_file() for file in (RECIPE, MODEL)):
        here = [path / name for name in (*TARGETS, "model") if (path / name).is_dir()]
        hint = f": {' and '.join(map(str, here))} may be" if here else ""
        raise ValueError(f"{path}: is not an export ({DESCRIPTION}), a finished run or a saved model{hint}")
    source = open_source(path)
    program = build(source, Choices(source.precision))
    known = source.known or _unknown(program)
    return Exhibit(source.name, program, wasm.to_wasm(program, source.name), known)


def _unknown(program: Program) -> About:
    """What to assume without a description: a single output is hardly a class."""
    return About(classes=program.outputs > 1)


def _from_export(folder: Path) -> Exhibit:
    """An export to wasm brings its own module; for others, one is built from the program."""
    description, program = read_export(folder)
    try:
        name = check_name(str(description.get("name")))
    except ValueError as error:
        raise ValueError(f"{folder / DESCRIPTION}: {error}") from None
    known = read_about(folder, program) or _unknown(program)
    if description.get("to") != "wasm":
        return Exhibit(name, program, wasm.to_wasm(program, name), known)
    path = folder / f"{name}.wasm"
    try:
        module = path.read_bytes()
        said = wasm.metadata(module)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    for field in ("inputs", "outputs", "tokens", "precision"):
        there, here = said.get(field), getattr(program, field)
        if there != here:
            raise ValueError(f"{path}: {field} must be {here!r} as in program.safetensors, got {there!r:.40}")
    return Exhibit(name, program, module, known)
