"""The exact bytes of a Program's arrays and of a stream's state, and the chips that have room for both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mgrade.deploy.export import DESCRIPTION, read_export
from mgrade.deploy.program import Program
from mgrade.deploy.storage import load_program
from mgrade.footprint import CHIPS, Chip


@dataclass(frozen=True)
class Piece:
    """One array of an operation, or one part of its state."""

    operation: int
    kind: str
    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def count(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape))

    @property
    def bytes(self) -> int:
        """Bytes of all elements."""
        return self.count * np.dtype(self.dtype).itemsize

    def to_dict(self) -> dict[str, Any]:
        """As stored in JSON."""
        return {**vars(self), "count": self.count, "bytes": self.bytes}


def open_program(subject: str) -> Program | None:
    """Reads the program of an export folder or a program file; None if `subject` is neither."""
    path = Path(subject)
    if (path / DESCRIPTION).is_file():
        return read_export(path)[1]
    return load_program(path) if path.is_file() and path.suffix != ".toml" else None


def arrays(program: Program) -> list[Piece]:
    """All arrays, equal ones once: what goes into flash."""
    found: dict[tuple[str, bytes], Piece] = {}
    for index, op in enumerate(program.ops):
        for name, stored in sorted(op.arrays.items()):
            array = program.in_c(name, stored)
            key = str(array.dtype), array.tobytes()
            found.setdefault(key, Piece(index, op.kind, name, array.shape, str(array.dtype)))
    return list(found.values())


def states(program: Program) -> list[Piece]:
    """All parts of the state: what goes into RAM, once per stream."""
    return [Piece(index, op.kind, *part) for index, op in enumerate(program.ops) for part in program.state(index)]


def measure_program(program: Program, chips: Iterable[Chip] = CHIPS) -> dict[str, Any]:
    """The figures that a model has, per kind of operation, and all arrays and states; as stored in JSON."""
    chips = list(chips)
    stored, kept = arrays(program), states(program)
    parameters, buffer = _total(stored), _total(kept)
    kinds = dict.fromkeys(op.kind for op in program.ops)
    return {
        "precision": "int8" if program.integer else "float32",
        "activations": program.precision,
        "parameters": parameters,
        "buffer": buffer,
        "components": {
            kind: {
                "operations": sum(op.kind == kind for op in program.ops),
                "parameters": _total(piece for piece in stored if piece.kind == kind),
                "buffer": _total(piece for piece in kept if piece.kind == kind),
            }
            for kind in kinds
        },
        "arrays": [piece.to_dict() for piece in stored],
        "states": [piece.to_dict() for piece in kept],
        "needs": {"parameters": parameters["bytes"], "buffer": buffer["bytes"]},
        "fits": {chip.name: chip.fits(parameters["bytes"], buffer["bytes"]) for chip in chips},
        "chips": [chip._asdict() for chip in chips],
    }


def _total(pieces: Iterable[Piece]) -> dict[str, int]:
    pieces = list(pieces)
    return {"count": sum(piece.count for piece in pieces), "bytes": sum(piece.bytes for piece in pieces)}
