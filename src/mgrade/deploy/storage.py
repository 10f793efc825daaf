"""Program files: one safetensors file, whose metadata holds the operations. See docs/program.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from mgrade._files import replace
from mgrade.deploy.program import Op, Program, Unit

FORMAT, VERSION = "mgrade-program", 4


def save_program(program: Program, path: str | Path) -> None:
    """Writes `program` to one file, atomically."""
    replace(Path(path), program_bytes(program))


def program_bytes(program: Program) -> bytes:
    """The contents of a program's file: equal programs give equal bytes."""
    arrays = {
        f"{i}.{name}": np.ascontiguousarray(a) for i, op in enumerate(program.ops) for name, a in op.arrays.items()
    }
    description = {
        "inputs": program.inputs,
        "tokens": program.tokens,
        "precision": program.precision,
        "exponents": list(program.exponents),
        "input_units": [list(unit) for unit in program.input_units],
        "output_units": [list(unit) for unit in program.output_units],
        "ops": [{"kind": op.kind, "args": list(op.args), "numbers": dict(op.numbers)} for op in program.ops],
    }
    metadata = {"format": FORMAT, "version": str(VERSION), "program": json.dumps(description)}
    return _in_order(safetensors.numpy.save(arrays, metadata))


def _in_order(data: bytes) -> bytes:
    """The same file with a sorted header, whose order safetensors leaves open: equal programs give equal bytes."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.dumps(json.loads(data[8:end]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data[end:]


def load_program(path: str | Path) -> Program:
    """Reads a program; a file that is damaged, altered or of another version raises a ValueError."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        return parse_program(data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def parse_program(data: bytes) -> Program:
    """Reads a program from the bytes of its file."""
    try:
        arrays = dict(safetensors.numpy.load(data))
        length = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + length]).get("__metadata__") or {}
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"is not a safetensors file: {str(error)!r:.200}") from None
    if metadata.get("format") != FORMAT:
        raise ValueError(f"format must be {FORMAT!r}, got {metadata.get('format')!r:.40}")
    if metadata.get("version") != str(VERSION):
        raise ValueError(f"version must be {VERSION}, got {metadata.get('version')!r:.40}")
    try:
        description = json.loads(metadata.get("program", ""))
    except (ValueError, RecursionError):
        raise ValueError("program is not JSON") from None
    _check_description(description)
    own: list[dict[str, Any]] = [{} for _ in description["ops"]]
    places = {str(index): place for index, place in enumerate(own)}
    for full, array in sorted(arrays.items()):  # safetensors returns them in any order
        index, dot, name = full.partition(".")
        if not dot or index not in places:
            raise ValueError(f"array {full!r:.80} belongs to no operation")
        places[index][name] = array
    ops = [
        Op(entry["kind"], tuple(entry["args"]), arrays, entry["numbers"])
        for entry, arrays in zip(description["ops"], own, strict=True)
    ]
    return Program(
        inputs=description["inputs"],
        tokens=description["tokens"],
        ops=tuple(ops),
        precision=description["precision"],
        exponents=tuple(description["exponents"]),
        input_units=tuple(Unit(*unit) for unit in description["input_units"]),
        output_units=tuple(Unit(*unit) for unit in description["output_units"]),
    )


FIELDS: dict[str, type] = {
    "inputs": int,
    "tokens": bool,
    "precision": str,
    "exponents": list,
    "input_units": list,
    "output_units": list,
    "ops": list,
}
OP_FIELDS: dict[str, type] = {"kind": str, "args": list, "numbers": dict}


def _check_description(description: Any) -> None:
    _check_fields(description, FIELDS, "program")
    for name in ("input_units", "output_units"):
        for index, unit in enumerate(description[name]):
            if type(unit) is not list or len(unit) != 2:
                raise ValueError(f"{name}[{index}] must be an offset and bits, got {unit!r:.40}")
    for index, entry in enumerate(description["ops"]):
        _check_fields(entry, OP_FIELDS, f"ops[{index}]")


def _check_fields(entry: Any, fields: dict[str, type], where: str) -> None:
    if not isinstance(entry, dict) or entry.keys() != fields.keys():
        raise ValueError(f"{where} must have the fields {', '.join(fields)}")
    for name, kind in fields.items():
        if type(entry[name]) is not kind:
            raise ValueError(f"{where}: {name} must be a {kind.__name__}, got {entry[name]!r:.40}")
