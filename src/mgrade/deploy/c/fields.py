"""The members of a program's state, as the generated C lays them out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mgrade.deploy.program import Program


class Field(NamedTuple):
    """One member: what it is, which operation it belongs to, and where it begins, in bytes."""

    name: str
    operation: int
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def itemsize(self) -> int:
        """Bytes of one element, which is also its alignment."""
        return np.dtype(self.dtype).itemsize

    @property
    def bytes(self) -> int:
        """Bytes of the whole member."""
        return int(np.prod(self.shape)) * self.itemsize


def state_fields(program: Program) -> tuple[Field, ...]:
    """All members in order, widest elements first, so that there are no holes between them.

    Beside the parts of `program.state`, every delay line has `at`: the row that was written last.
    """
    members = []
    for index in range(len(program.ops)):
        for part in program.state(index):
            members.append(Field(part.name, index, part.dtype, part.shape, 0))
            if part.name == "line":
                members.append(Field("at", index, "uint16", (), 0))
    placed, end = [], 0
    for member in sorted(members, key=lambda member: -member.itemsize):
        placed.append(member._replace(offset=end))
        end += member.bytes
    return tuple(placed)


def state_size(fields: tuple[Field, ...]) -> int:
    """Bytes of the struct, with the padding at its end; without members it holds one byte."""
    if not fields:
        return 1
    widest, end = fields[0].itemsize, fields[-1].offset + fields[-1].bytes
    return -(-end // widest) * widest
