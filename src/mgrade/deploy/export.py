"""Writes and reads exports: folders that hold the program itself beside the files that a back end printed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from mgrade._files import alone_in, read_description, replace
from mgrade.deploy import chip as chips
from mgrade.deploy import wasm
from mgrade.deploy.about import FILE as ABOUT
from mgrade.deploy.about import About
from mgrade.deploy.arduino import arduino_files
from mgrade.deploy.c import print_c
from mgrade.deploy.c.printer import RUNTIME, check_name
from mgrade.deploy.interpreter import Interpreter
from mgrade.deploy.onnx import to_onnx
from mgrade.deploy.program import Program
from mgrade.deploy.specs import BITS
from mgrade.deploy.storage import load_program, program_bytes
from mgrade.nn.storage import DESCRIPTION as MODEL

TARGETS = ("c", "arduino", "onnx", "wasm")
PROGRAM, DESCRIPTION = "program.safetensors", "export.json"
FORMAT, VERSION = "mgrade-export", 1
# The largest error of a float export against the interpreter, relative to the largest output.
TOLERANCE = 1e-5
# Steps of the test vector that comes with C, and of a verification.
TEST_STEPS, VERIFY_STEPS = 32, 200


def check_target(to: str, chip: str | None = None) -> None:
    """Before long work: refuses a target that is unknown or cannot be built here, and a chip that cannot run it."""
    if to not in TARGETS:
        raise ValueError(f"to must be one of {', '.join(TARGETS)}, got {to!r}")
    if to == "wasm" and (missing := wasm.available()):
        raise ValueError(missing)
    if chip is None:
        return
    if to != "c":
        raise ValueError(f"only an export to c runs on a chip, this one is to {to}")
    if missing := chips.available(chip):
        raise ValueError(missing)


def write_export(program: Program, name: str, to: str, folder: Path, known: About | None = None) -> dict[str, Any]:
    """Writes an export and what is `known` about its inputs and outputs to `folder`; returns its description.

    It replaces an earlier export there; if that had another name or target, `replaced` names it.
    """
    check_target(to)
    check_folder(folder, check_name(name), to)
    files = _printed(program, name, to, known)
    if known is not None:
        files[ABOUT] = known.to_bytes()
    description = {
        "format": FORMAT,
        "version": VERSION,
        "name": name,
        "to": to,
        "precision": "int8" if program.integer else "float32",
        "activations": program.precision,
        "inputs": program.inputs,
        "tokens": program.tokens,
        "outputs": program.outputs,
        "parameter_bytes": program.parameter_bytes,
        "state_bytes": program.state_bytes,
        "files": sorted([*files, PROGRAM]),
    }
    files[PROGRAM] = program_bytes(program)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone_in(folder):
            check_folder(folder, name, to)  # again: another process may have written an export meanwhile
            earlier = _earlier(folder) or {}
            _write(folder, files, description)
    except OSError as error:
        raise ValueError(f"{folder}: cannot be written: {error.strerror}") from None
    what = earlier.get("name", name), earlier.get("to", to)
    return description if what == (name, to) else {**description, "replaced": "{}, {}".format(*what)}


def _write(folder: Path, files: dict[str, bytes], description: dict[str, Any]) -> None:
    """Replaces an earlier export and removes those of its files that the new one does not have.

    Everything is staged before anything is moved. The description is removed first and moved last: if the moves are
    interrupted, what is left is not an export.
    """
    earlier = _files_of(folder) or set()
    staged = folder / f".export.{os.getpid()}.tmp"
    try:
        for path, content in (files | {DESCRIPTION: (json.dumps(description, indent=2) + "\n").encode()}).items():
            (staged / path).parent.mkdir(parents=True, exist_ok=True)
            replace(staged / path, content)
        (folder / DESCRIPTION).unlink(missing_ok=True)
        for path in earlier - files.keys():
            _remove(folder, path)
        for path in (*files, DESCRIPTION):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            os.replace(staged / path, folder / path)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _remove(folder: Path, path: str) -> None:
    """Removes a file of an earlier export, but never a folder or anything outside, whatever its description says."""
    with contextlib.suppress(OSError, ValueError):
        file = folder / path
        if file.is_file() and file.resolve().is_relative_to(folder.resolve()):
            file.unlink()


def _files_of(folder: Path) -> set[str] | None:
    """The files of the export in a folder, of any version; None if there is no export."""
    found = _earlier(folder)
    if found is None:
        return None
    named = found.get("files")
    return {path for path in named if isinstance(path, str) and _inside(path)} if isinstance(named, list) else set()


def _earlier(folder: Path) -> dict[str, Any] | None:
    """The description of the export in a folder, of any version; None if there is no export."""
    try:
        found = json.loads((folder / DESCRIPTION).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.get("format") == FORMAT else None


def _inside(path: str) -> bool:
    """Whether a path that a description names stays within its folder."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not PurePosixPath(path).is_absolute() and ".." not in parts


def check_folder(folder: Path, name: str, to: str) -> None:
    """Before long work: refuses to overwrite files that are not an export's, and paths that cannot be written."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: is not a folder")
    earlier = _files_of(folder)
    if earlier is None and (folder / MODEL).is_file():
        raise ValueError(f"{folder}: is the folder of a saved model: choose another")
    mine = set() if earlier is None else earlier | {DESCRIPTION}
    paths = [*_every_file(name, to), PROGRAM, ABOUT, DESCRIPTION]
    for path in paths:
        if paths.count(path) > 1:
            taken = f"name must not be {name!r}: {path} is another file of the export"
            raise ValueError(f"{taken}; if no name is given, it is the name of the folder")
        place = folder / path
        if place.is_dir() or any((folder / above).is_file() for above in PurePosixPath(path).parents):
            raise ValueError(f"{folder}: {path} cannot be written: something else is in its place")
        if path not in mine and place.exists():
            whose = "is not an export" if earlier is None else "it does not belong to the export there"
            raise ValueError(f"{folder}: already has a {path} and {whose}: choose another folder")


def _every_file(name: str, to: str) -> list[str]:
    """All files that a back end may write, for any program."""
    if to == "onnx":
        return [f"{name}.onnx"]
    if to == "wasm":
        return [f"{name}.wasm", f"{name}.relaxed.wasm", f"{name}.json", "package.json", "model.js"]
    sources = [f"{name}.c", f"{name}.h", *RUNTIME[False], *RUNTIME[True]]
    if to == "arduino":
        about = ["library.properties", "library.json", f"examples/{name}/{name}.ino"]
        return [*(f"src/{path}" for path in sources), *about]
    return [*sources, "main.c", f"{name}_test.h"]


def _printed(program: Program, name: str, to: str, known: About | None) -> dict[str, bytes]:
    """The files that a back end writes, by path."""
    if to == "onnx":
        return {f"{name}.onnx": to_onnx(program).SerializeToString()}
    if to == "wasm":
        return wasm.wasm_files(program, name)
    if to == "arduino":
        texts = arduino_files(program, name, known)
    else:
        texts = print_c(program, name, _test_inputs(program, TEST_STEPS), known=known)
    return {path: text.encode() for path, text in texts.items()}


def _test_inputs(program: Program, steps: int) -> npt.NDArray[Any]:
    """Inputs for a test vector: arbitrary, but always the same."""
    source = np.random.default_rng(0)
    if program.tokens:
        return source.integers(0, program.inputs, steps)
    x = source.standard_normal((steps, program.inputs)).astype(np.float32)
    return np.rint(x * (1 << (BITS[program.precision] - 3))).astype(np.int64) if program.integer else x


def verify(folder: Path, chip: str, steps: int = VERIFY_STEPS) -> dict[str, Any]:
    """Runs a C export on an emulated chip and compares every output with the interpreter."""
    description, program = read_export(folder)
    check_target(description["to"], chip)
    x = _test_inputs(program, steps)
    run = chips.run(folder, description["name"], x.astype(program.input_dtype), chip=chip)
    expected = Interpreter(program).run(x[None])[0]
    off = float(np.abs(run.outputs - expected).max(initial=0))
    largest = float(np.abs(expected).max(initial=0)) or 1.0
    return {
        "chip": chip,
        "compiler": run.compiler,
        "steps": steps,
        "error": off / largest,
        "equal": off == 0 if program.integer else off <= TOLERANCE * largest,
        "flash_bytes": run.flash,
        "ram_bytes": run.ram,
        "state_bytes": run.state_bytes,
        "stack_bytes": run.stack_bytes,
        "instructions": run.instructions,
        "instructions_least": run.instructions_min,
    }


def read_export(folder: Path) -> tuple[dict[str, Any], Program]:
    """Reads what `write_export` wrote: the description and the program."""
    inside = next((to for to in TARGETS if (folder / to / DESCRIPTION).is_file()), None)
    hint = f": is {folder} an export?" if inside is None else f": {folder / inside} is an export"
    description = read_description(folder / DESCRIPTION, FORMAT, VERSION, hint)
    return description, load_program(folder / PROGRAM)
