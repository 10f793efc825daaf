"""`Program`: a streaming model without a framework: plain arrays and a list of operations, one step at a time.

A step reads the input, value 0, and goes through the operations in order; operation i makes value i + 1, a vector, from
earlier values and its own state. The last value is the output. States start at zero. What each operation computes, to
the bit, is what `mgrade.deploy.interpreter` does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mgrade.deploy.check import MAX_STATE, check
from mgrade.deploy.specs import BITS, LAG

Array = npt.NDArray[Any]


class StatePart(NamedTuple):
    """Something an operation remembers: its name, shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class Unit(NamedTuple):
    """How an integer program counts a channel: q stands for offset + q / 2**bits."""

    offset: float
    bits: int


@dataclass(frozen=True)
class Op:
    """One operation: its kind, the values it reads, its arrays and numbers."""

    kind: str
    args: tuple[int, ...]
    arrays: Mapping[str, Array] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)

    def with_arrays(self, **arrays: Array) -> Op:
        """The same with some arrays replaced."""
        return dataclasses.replace(self, arrays={**self.arrays, **arrays})


@dataclass(frozen=True)
class Program:
    """A streaming model: what it reads, its operations, and for integer programs the fraction bits of every value."""

    inputs: int
    """Channels of the input; with `tokens`, the size of the vocabulary."""
    tokens: bool
    ops: tuple[Op, ...]
    precision: str = "float32"
    exponents: tuple[int, ...] = ()
    """Integer programs: value q of value i stands for q / 2**exponents[i]."""
    input_units: tuple[Unit, ...] = ()
    """Integer programs: of every channel of the input; without any, all have offset 0 and exponents[0]."""
    output_units: tuple[Unit, ...] = ()
    """The same of the output, and exponents[-1]."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", check(self))
        if self.state_bytes > MAX_STATE:
            raise ValueError(f"state must be at most {MAX_STATE} bytes, got {self.state_bytes}")

    widths: tuple[int, ...] = field(init=False, default=())
    """Of every value; a token counts as one."""

    @property
    def outputs(self) -> int:
        """Channels of the output."""
        return self.widths[-1]

    @property
    def integer(self) -> bool:
        """Whether values are whole numbers."""
        return self.precision != "float32"

    @property
    def pooled(self) -> str | None:
        """How outputs are pooled over all steps of a stream so far, by "mean" or "sum"; None if they are not."""
        last = self.ops[-1].kind
        return last if last in ("mean", "sum") else None

    @property
    def input_dtype(self) -> str:
        """The dtype of an input in C."""
        return "uint16" if self.tokens else self.precision

    @property
    def output_dtype(self) -> str:
        """The dtype of an output in C."""
        return "int32" if self.integer and self.pooled else self.precision

    def state(self, index: int) -> tuple[StatePart, ...]:
        """What operation `index` remembers."""
        op = self.ops[index]
        kept = self.precision
        width = self.widths[index + 1]
        if "lag" in op.arrays:
            rows = int(op.arrays["lag"].max(initial=0)) + 1
            if op.kind == "taps_token":
                return (StatePart("line", (rows,), "uint16"),)
            line = StatePart("line", (rows, self.widths[op.args[0]]), kept)
            return (line, StatePart("age", (), "uint16")) if op.kind == "taps_input" else (line,)
        if op.kind == "gated":
            if self.integer and op.numbers["extra"]:
                kept = "int16" if BITS[kept] + op.numbers["extra"] <= 16 else "int32"
            return (StatePart("hidden", (width,), kept),)
        if op.kind == "rotate":
            return (StatePart("hidden", (width,), "int32" if self.integer else kept),)
        if op.kind == "mean":
            return (
                StatePart("total", (width,), "int64" if self.integer else "float64"),
                StatePart("steps", (), "uint32"),
            )
        if op.kind == "sum":
            return (StatePart("total", (width,), "int32" if self.integer else "float64"),)
        return ()

    @property
    def lag_dtype(self) -> str:
        """What holds every delay in C: a byte, or two where one of them needs it."""
        longest = max((int(op.arrays["lag"].max(initial=0)) for op in self.ops if "lag" in op.arrays), default=0)
        return "uint8" if longest < 256 else LAG

    def in_c(self, name: str, array: Array) -> Array:
        """An array of that name as C holds it."""
        return array.astype(self.lag_dtype) if name == "lag" else array

    @property
    def parameter_bytes(self) -> int:
        """Of all arrays in C; equal ones are kept once."""
        arrays = (self.in_c(*item) for op in self.ops for item in op.arrays.items())
        return sum(len(data) for _, data in {(str(array.dtype), array.tobytes()) for array in arrays})

    @property
    def state_bytes(self) -> int:
        """Of everything remembered between steps, for one stream; without the positions in delay lines."""
        return sum(
            int(np.prod(part.shape)) * np.dtype(part.dtype).itemsize
            for index in range(len(self.ops))
            for part in self.state(index)
        )

    @property
    def bytes(self) -> int:
        """Parameters and the state of one stream."""
        return self.parameter_bytes + self.state_bytes
