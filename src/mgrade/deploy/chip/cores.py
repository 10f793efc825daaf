"""The cores that can be emulated, and the tools that emulation needs."""

from __future__ import annotations

import functools
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


class ChipError(RuntimeError):
    """A model could not be built for a chip, or failed there. The message is one line that names the chip."""


@dataclass(frozen=True)
class Core:
    """A core, and the QEMU board that has it."""

    name: str
    flags: tuple[str, ...]
    """Compiler flags for the core."""
    machine: str
    """QEMU's name of the board."""
    board: str
    """The family of the board: the linker script of that name has its memories, harness.c its counter."""
    counter: int
    """Frequency of the board's counter, in hertz."""


def _core(name: str, fpu: tuple[str, ...], machine: str, board: str, counter: int) -> Core:
    return Core(name, ("-mthumb", f"-mcpu={name}", *fpu, "-mfloat-abi=hard"), machine, board, counter)


CORES = {
    core.name: core
    for core in (
        _core("cortex-m55", (), "mps3-an547", "mps3", 32_000_000),
        _core("cortex-m7", ("-mfpu=fpv5-d16",), "mps2-an500", "mps2", 25_000_000),
        _core("cortex-m4", ("-mfpu=fpv4-sp-d16",), "mps2-an386", "mps2", 25_000_000),
    )
}

QEMU, GCC = "qemu-system-arm", "arm-none-eabi-gcc"
COMPILERS = {"clang": ("clang-19", "clang"), "gcc": (GCC,)}
"""Compilers and the names of their executables, in order of preference: clang's code takes fewer instructions on all of
these cores. Linker and C library are always GCC's."""

_PACKAGES = {QEMU: "qemu-system-arm", GCC: "gcc-arm-none-eabi", "clang-19": "clang-19"}


def find_core(name: str) -> Core:
    """The core of that name."""
    if name not in CORES:
        raise ValueError(f"chip must be one of {', '.join(CORES)}, got {name!r}")
    return CORES[name]


def find_compiler(compiler: str | None) -> str:
    """Checks `compiler`; for None, picks the first that is installed, or the first of all if none is."""
    if compiler is None:
        return next((name for name in COMPILERS if program(name)), next(iter(COMPILERS)))
    if compiler not in COMPILERS:
        raise ValueError(f"compiler must be one of {', '.join(COMPILERS)}, got {compiler!r}")
    return compiler


def program(compiler: str) -> str | None:
    """The path of a compiler, if it is installed."""
    return next((path for name in COMPILERS[compiler] if (path := shutil.which(name))), None)


def available(chip: str = "cortex-m55", compiler: str | None = None) -> str | None:
    """None if this chip can be emulated here with this compiler; else one line that says what is missing."""
    wanted = find_compiler(compiler)
    find_core(chip)
    missing = [_PACKAGES[name] for name in (QEMU, GCC) if shutil.which(name) is None]
    gcc = shutil.which(GCC)
    if gcc is None or not _has_c_library(gcc):
        missing.append("libnewlib-arm-none-eabi")
    if program(wanted) is None and (package := _PACKAGES[COMPILERS[wanted][0]]) not in missing:
        missing.append(package)
    if not missing:
        return None
    return f"{chip} with {wanted} cannot be emulated here: sh scripts/tools.sh installs {' '.join(missing)}"


@functools.cache
def _has_c_library(gcc: str) -> bool:
    answer = subprocess.run([gcc, "-print-file-name=libc.a"], capture_output=True, text=True, check=False).stdout
    return Path(answer.strip()).is_absolute()
