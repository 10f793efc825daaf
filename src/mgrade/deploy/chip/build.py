"""Builds a folder of C into a program for a core: the model's files, the harness, and a linker script."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from mgrade.deploy.c.host import WARNINGS
from mgrade.deploy.chip.cores import GCC, ChipError, Core, program

FLAGS = (
    *("-std=c99", "-O3", "-fomit-frame-pointer", "-fopenmp-simd", "-ffunction-sections", "-fdata-sections"),
    *WARNINGS,
)
"""Flags for a model's files, after those of the core. Without -fomit-frame-pointer, clang reserves a register."""
INTEGER_FLAGS = ("-fno-unroll-loops",)
"""Further flags for integer programs: unrolling would double their code and make it no faster."""

# The harness must not pull in the C library, nor use the FPU before it is enabled.
_HARNESS_FLAGS = ("-std=gnu11", "-O1", "-ffreestanding", "-fno-tree-loop-distribute-patterns", "-mgeneral-regs-only")
_TELLING = ("error:", "undefined reference", "multiple definition", "overflowed", "unplaced orphan")
_HERE = Path(__file__).parent


def build(folder: Path, name: str, core: Core, compiler: str, flags: Sequence[str], out: Path) -> Path:
    """Compiles all C files of `folder` except main.c, links them with the harness, and returns the program's path."""
    objects, flags = out / "model", (*model_flags(folder), *flags)
    objects.mkdir()
    sources = sorted(path for path in folder.glob("*.c") if path.name != "main.c")
    for source in sources:
        target = ["-c", source.name, "-o", str(objects / f"{source.stem}.o")]
        _run(core, [*_command(core, compiler), "-g1", *flags, *target], folder)

    gcc = [GCC, *core.flags]
    harness, linked = out / "mgrade_harness.o", out / "program.elf"
    target = ["-I.", "-c", str(_HERE / "harness.c"), "-o", str(harness)]
    _run(core, [*gcc, *_HARNESS_FLAGS, *_definitions(name, core), *target], folder)
    script = ["-nostartfiles", "-Wl,--gc-sections,--orphan-handling=error", "-L", str(_HERE), "-T", f"{core.board}.ld"]
    inputs = [str(harness), *(str(objects / f"{source.stem}.o") for source in sources)]
    _run(core, [*gcc, *script, *inputs, "-o", str(linked)], folder)
    return linked


def model_flags(folder: Path) -> tuple[str, ...]:
    """The flags for the files of `folder`."""
    return (*FLAGS, *(INTEGER_FLAGS if (folder / "mgrade_integer.h").is_file() else ()))


def version(compiler: str) -> str:
    """The first line of the compiler's version."""
    path = program(compiler)
    assert path is not None, "available() was to be asked first"
    return _call([path, "--version"]).stdout.splitlines()[0]


def _command(core: Core, compiler: str) -> list[str]:
    """The command that compiles for a core."""
    path = program(compiler)
    assert path is not None, "available() was to be asked first"
    if compiler == "gcc":
        return [path, *core.flags]
    # loops that cannot be vectorised for this core are not errors
    return [path, "--target=arm-none-eabi", *core.flags, *_c_library_headers(), "-Wno-pass-failed"]


@functools.cache
def _c_library_headers() -> tuple[str, ...]:
    """Flags that let clang find the headers of GCC's C library."""
    lines = _call([GCC, "-E", "-v", "-x", "c", "/dev/null"]).stderr.splitlines()
    begin, end = lines.index("#include <...> search starts here:"), lines.index("End of search list.")
    folders = [Path(line.strip()).resolve() for line in lines[begin + 1 : end]]
    return tuple(word for path in folders if (path / "string.h").is_file() for word in ("-isystem", str(path)))


def _definitions(name: str, core: Core) -> list[str]:
    """Definitions that map the names in the harness to the model's."""
    names = {f"MODEL_{word}": f"{name}_{word}" for word in ("input", "output", "state", "init", "step")}
    sizes = {f"MODEL_{word}": f"{name.upper()}_{word}" for word in ("INPUTS", "OUTPUTS")}
    defined = {"MODEL_HEADER": f'"{name}.h"', f"BOARD_{core.board.upper()}": "1", **names, **sizes}
    return [f"-D{key}={value}" for key, value in defined.items()]


def _run(core: Core, words: list[str], folder: Path) -> None:
    """Runs a compiler or the linker; raises a ChipError with the first line that tells what is wrong."""
    done = _call(words, folder)
    if done.returncode:
        lines = done.stderr.splitlines() or [f"{words[0]} ended with status {done.returncode}"]
        first = next((line for line in lines if any(word in line for word in _TELLING)), lines[0])
        # compilers start with file and line; the linker starts with its own path and those of libraries
        said = first if "error:" in first and "ld: error:" not in first else first.rsplit(": ", 1)[-1]
        raise ChipError(f"{core.name}: {said}")


def _call(words: list[str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C"}  # its output is parsed
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
