"""A model on a chip: what it computes there, and what that costs."""

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
    """What a run brought back. Bytes and instructions are exact, and the same on every run."""

    outputs: npt.NDArray[Any]
    """(steps, outputs), or (sequences, steps, outputs) as the inputs were; to the bit."""
    counts: npt.NDArray[np.int64]
    """(steps,) or (sequences, steps): instructions of each call of the step, from its first to its return."""
    code_bytes: int
    """Instructions of the model and of what it calls, as linked, without the harness."""
    constant_bytes: int
    """Weights and tables, likewise."""
    static_bytes: int
    """Memory that the model has for itself, outside its state; 0 where it has no variables of its own."""
    state_bytes: int
    """The state's struct."""
    stack_bytes: int
    """How far down the step wrote into its stack, at the deepest; what calls it and interrupts come on top."""
    chip: str
    compiler: str
    """What the compiler says of its version."""
    flags: tuple[str, ...]
    """What the model was compiled with."""

    @property
    def flash(self) -> int:
        """Bytes that do not change: code and constants."""
        return self.code_bytes + self.constant_bytes

    @property
    def ram(self) -> int:
        """Bytes that do: the state, the step's stack, and static variables if there are any."""
        return self.state_bytes + self.stack_bytes + self.static_bytes

    @property
    def instructions(self) -> int:
        """Of the longest step: what has to fit between two samples."""
        return int(self.counts.max())

    @property
    def instructions_min(self) -> int:
        """Of the shortest step; equal to the maximum where a step's time does not depend on the data."""
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

    inputs    (steps, inputs), or (steps,) where a step has one; or (sequences, steps, inputs), with the state
              initialised before each sequence. Of the type that the model's header declares.
    compiler  "gcc" or "clang"; None for the chip's preferred one that is here.
    flags     for the model's files, after those of `build.model_flags`.
    timeout   seconds of emulation, before the run is given up.
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
