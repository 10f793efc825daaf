"""Runs a model on an emulated chip and measures its costs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mgrade.deploy.chip.build import build, model_flags, version
from mgrade.deploy.chip.cores import ChipError, available, find_compiler, find_core
from mgrade.deploy.chip.emulate import emulate


@dataclass(frozen=True, kw_only=True)
class ChipRun:
    """The result of a run. Bytes and instructions are exact and reproducible."""

    outputs: npt.NDArray[Any]
    """(steps, outputs), or (sequences, steps, outputs) if the inputs were sequences; exact to the bit."""
    counts: npt.NDArray[np.int64]
    """(steps,) or (sequences, steps): instructions of each step, from its first to its return."""
    code_bytes: int
    """Code of the model and of what it calls, as linked, without the harness."""
    constant_bytes: int
    """Weights and tables, likewise."""
    static_bytes: int
    """Static variables of the model, outside its state; 0 if there are none."""
    state_bytes: int
    """Size of the state's struct."""
    stack_bytes: int
    """The deepest stack use of a step; callers and interrupts come on top."""
    chip: str
    compiler: str
    """Version of the compiler."""
    flags: tuple[str, ...]
    """Flags that the model was compiled with."""

    @property
    def flash(self) -> int:
        """Bytes of flash: code and constants."""
        return self.code_bytes + self.constant_bytes

    @property
    def ram(self) -> int:
        """Bytes of RAM: the state, the stack of a step, and static variables."""
        return self.state_bytes + self.stack_bytes + self.static_bytes

    @property
    def instructions(self) -> int:
        """Instructions of the longest step, which must fit between two samples."""
        return int(self.counts.max())

    @property
    def instructions_min(self) -> int:
        """Instructions of the shortest step; fewer than the maximum if the time of a step depends on the data."""
        return int(self.counts.min())


def run(
    folder: str | Path,
    name: str,
    inputs: npt.NDArray[Any],
    *,
    chip: str = "cortex-m55",
    compiler: str | None = None,
    flags: Sequence[str] = (),
    timeout: float = 120.0,
) -> ChipRun:
    """Builds the model `name` in `folder` (NAME.h and all C files but main.c) and runs it on `inputs`.

    inputs    (steps, inputs), or (steps,) if a step has one input; or (sequences, steps, inputs), with the state
              initialised before each sequence. The dtype must be the one that the model's header declares.
    compiler  "gcc" or "clang"; None for the preferred one that is installed.
    flags     further flags for the model's files, after those of `build.model_flags`.
    timeout   seconds after which the emulation is aborted.
    """
    core, folder = find_core(chip), Path(folder).resolve()
    chosen = find_compiler(compiler)
    if not name.isidentifier() or not (folder / f"{name}.h").is_file():
        raise ValueError(f"name must be that of a header in {folder}, without the .h, got {name!r}")
    inputs = np.asarray(inputs)
    given = inputs[:, None] if inputs.ndim == 1 else inputs
    if given.ndim not in (2, 3) or given.size == 0:
        raise ValueError(f"inputs must be (steps, inputs) or (sequences, steps, inputs), got {inputs.shape}")
    if missing := available(chip, chosen):
        raise ChipError(missing)

    with tempfile.TemporaryDirectory(prefix="mgrade-chip-") as out:
        program = build(folder, name, core, chosen, flags, Path(out))
        outputs, counts, report = emulate(program, core, given if given.ndim == 3 else given[None], timeout)
    return ChipRun(
        outputs=outputs if given.ndim == 3 else outputs[0],
        counts=counts if given.ndim == 3 else counts[0],
        code_bytes=report.code_bytes,
        constant_bytes=report.constant_bytes,
        static_bytes=report.static_bytes,
        state_bytes=report.state_bytes,
        stack_bytes=report.stack_bytes,
        chip=chip,
        compiler=version(chosen),
        flags=(*core.flags, *model_flags(folder), *flags),
    )
