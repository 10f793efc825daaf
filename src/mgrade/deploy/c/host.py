"""Compiles the C of a Program for this machine and calls it from Python."""

from __future__ import annotations

import copy
import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mgrade.deploy.c.printer import print_c
from mgrade.deploy.interpreter import checked
from mgrade.deploy.program import Program

# Generated C triggers none of these. Tests turn them into errors; elsewhere, unknown compilers may warn as they like,
# for instance about a machine newer than themselves.
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wdouble-promotion", "-Wfloat-conversion")
# The fastest code for this machine. With -std=c99 alone, GCC would not fuse products and sums.
FAST = ("-O3", "-march=native", "-ffp-contract=fast")
CACHE_LINE = 64
# Many steps in one call, for sequences that are already in memory.
RUN = """
#include "{name}.h"
unsigned {name}_size(void) {{ return (unsigned)sizeof({name}_state); }}
void {name}_run({name}_state *state, const {name}_input *x, {name}_output *y, long steps) {{
    for (long t = 0; t < steps; t++) {name}_step(state, x + t * {upper}_INPUTS, y + t * {upper}_OUTPUTS);
}}
"""


def compiler(name: str | None = None) -> str:
    """The path of a C compiler; raises a ValueError if there is none."""
    for candidate in [name] if name else ["gcc", "cc", "clang"]:
        if path := shutil.which(candidate):
            return path
    raise ValueError(f"no C compiler found: {name or 'gcc, cc or clang'} is not installed")


def compile(program: Program, *, cc: str | None = None, flags: tuple[str, ...] = FAST) -> Compiled:
    """Compiles and loads `program`; leaves no files behind."""
    return Compiled(program, cc, flags)


def compile_if_possible(program: Program) -> Compiled | None:
    """Like `compile`, but returns None if there is no C compiler that can build a library for this machine."""
    try:
        return compile(program)
    except (ValueError, RuntimeError, OSError):  # no compiler, it failed, or its library cannot be loaded
        return None


def _build(program: Program, folder: Path, cc: str, flags: tuple[str, ...]) -> Path:
    """Builds the library in `folder` and returns its path."""
    for name, text in print_c(program, "model").items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "run.c").write_text(RUN.format(name="model", upper="MODEL"), encoding="utf-8")
    library = folder / "model.so"
    command = [cc, "-std=c99", *WARNINGS, *flags, "-shared", "-fPIC", "-o", str(library)]
    done = subprocess.run([*command, "model.c", "run.c"], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{cc} failed: {done.stderr.strip()[:2000]}")
    return library


def _memory(size: int) -> ctypes.Array[ctypes.c_char]:
    """A buffer aligned to cache lines, so that no row of a delay line touches more of them than it must."""
    room = ctypes.create_string_buffer(size + CACHE_LINE)
    return (ctypes.c_char * size).from_buffer(room, -ctypes.addressof(room) % CACHE_LINE)


class Compiled:
    """One stream through the compiled program."""

    def __init__(self, program: Program, cc: str | None, flags: tuple[str, ...]):
        self.program = program
        with tempfile.TemporaryDirectory(prefix="mgrade-") as folder:
            self._library = ctypes.CDLL(str(_build(program, Path(folder), compiler(cc), flags)))
        self.state = _memory(self._library.model_size())
        self._library.model_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
        self.reset()

    def another(self) -> Compiled:
        """A new stream through the same library."""
        other = copy.copy(self)
        other.state = _memory(len(self.state))
        other.reset()
        return other

    def reset(self) -> None:
        """Restarts the stream."""
        self._library.model_init(self.state)

    def run(self, x: npt.ArrayLike) -> npt.NDArray[Any]:
        """x (time, inputs), or token ids (time) -> (time, outputs), continuing the stream."""
        x = np.asarray(x)
        x = np.ascontiguousarray(checked(self.program, x, len(x) if x.ndim else 1).astype(self.program.input_dtype))
        y = np.empty((len(x), self.program.outputs), self.program.output_dtype)
        self._library.model_run(self.state, x.ctypes.data, y.ctypes.data, len(x))
        return y

    def step(self, x: npt.ArrayLike) -> npt.NDArray[Any]:
        """One sample, (inputs) or a token id -> (outputs)."""
        return self.run(np.asarray(x)[None])[0]
