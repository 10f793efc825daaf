"""Builds WebAssembly from a Program: its generated C, compiled by clang without a C library."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import mgrade
from mgrade._files import replace
from mgrade.deploy.c.host import WARNINGS
from mgrade.deploy.c.printer import check_name, print_c
from mgrade.deploy.c.slots import Slots
from mgrade.deploy.program import Program, Unit
from mgrade.deploy.wasm.module import FORMAT, VERSION, described

HERE = Path(__file__).parent
TOOLS = {"clang-19": ("clang-19", "clang"), "lld-19": ("wasm-ld-19", "wasm-ld")}
"""Debian and Ubuntu packages, and the names of their executables in order of preference."""
FLAGS = (
    # -O3 unrolls more, which doubles the code of integer programs and makes it no faster
    *("--target=wasm32", "-std=c99", "-O2", "-msimd128", "-mbulk-memory"),
    *("-ffreestanding", "-nostdlib", "-nostdlibinc"),
    *WARNINGS,
    *("-Wl,--no-entry", "-Wl,--strip-all", "-Wl,--export=__heap_base", "-Wl,--stack-first"),
)
RELAXED = ("-mrelaxed-simd",)
PANEL = 32
"""Outputs in eight WebAssembly vectors, which browsers keep in registers."""
# Bytes of stack for the operations themselves, beyond the values of a step.
_SPARE = 16384


def available() -> str | None:
    """None if modules can be built here; else one line that says what is missing."""
    missing = [package for package in TOOLS if _tool(package) is None]
    return f"WebAssembly cannot be built here: apt-get install {' '.join(missing)}" if missing else None


def to_wasm(program: Program, name: str = "model", relaxed: bool = False) -> bytes:
    """The module. `exports.c.in` has its exports; its section `mgrade` describes inputs and outputs.

    `relaxed`: use fused multiply-add, which not every engine supports; outputs differ by rounding.
    """
    check_name(name)
    if missing := available():
        raise ValueError(missing)
    with tempfile.TemporaryDirectory(prefix="mgrade-") as temporary:
        folder = Path(temporary)
        for file, text in {**print_c(program, name, panel=PANEL), "mgrade_exports.c": _exports(name)}.items():
            (folder / file).write_text(text, encoding="utf-8")
        target = ["-isystem", str(HERE / "include"), "-o", "out.wasm", f"{name}.c", "mgrade_exports.c"]
        linking = [f"-fuse-ld={_tool('lld-19')}", f"-Wl,-z,stack-size={_stack(program)}"]
        command = [str(_tool("clang-19")), *FLAGS, *(RELAXED if relaxed else ()), *linking, *target]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()[:2000]}")
        return described((folder / "out.wasm").read_bytes(), _metadata(program, name))


def save_wasm(program: Program, folder: str | Path, name: str = "model") -> None:
    """Writes the module, the script that runs it and its description to a folder, each file atomically."""
    folder, files = Path(folder), wasm_files(program, name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{folder}: no folder can be made there: {error.strerror}") from None
    for file, content in files.items():
        replace(folder / file, content)


def wasm_files(program: Program, name: str = "model") -> dict[str, bytes]:
    """The files that `save_wasm` writes, by name."""
    if name == "package":
        raise ValueError("name must not be 'package': package.json is another file of the package")
    modules = {f"{name}.wasm": to_wasm(program, name)}
    if not program.integer:
        modules[f"{name}.relaxed.wasm"] = to_wasm(program, name, relaxed=True)
    package = {"name": name.replace("_", "-"), "version": mgrade.__version__, "type": "module", "main": "model.js"}
    return {
        **modules,
        f"{name}.json": _text(_metadata(program, name)),
        "package.json": _text({**package, "files": ["model.js", *modules, f"{name}.json"]}),
        "model.js": (HERE / "model.js").read_bytes(),
    }


def _tool(package: str) -> str | None:
    return next((path for name in TOOLS[package] if (path := shutil.which(name))), None)


def _exports(name: str) -> str:
    text = (HERE / "exports.c.in").read_text(encoding="utf-8")
    return text.replace("@NAME@", name).replace("@UPPER@", name.upper())


def _stack(program: Program) -> int:
    """Bytes of stack: the values of a step, and a reserve."""
    return (sum(Slots(program).sizes) * 4 + _SPARE + 15) // 16 * 16


def _metadata(program: Program, name: str) -> dict[str, Any]:
    """Describes a module. `input_units` and `output_units` have an offset and fraction bits for every channel:

    input = round((real - offset) 2**bits), real = offset + output / 2**bits.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": name,
        "inputs": program.inputs,
        "outputs": program.outputs,
        "tokens": program.tokens,
        "precision": program.precision,
        "input_type": program.input_dtype,
        "output_type": program.output_dtype,
        "input_units": None if program.tokens else _units(program, program.input_units, 0, program.inputs),
        "output_units": _units(program, program.output_units, -1, program.outputs),
    }


def _units(program: Program, units: tuple[Unit, ...], value: int, width: int) -> list[list[float]] | None:
    if not program.integer:
        return None
    return [list(unit) for unit in units or [Unit(0.0, program.exponents[value])] * width]


def _text(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
