"""`Program`: a streaming model without a framework: plain arrays and a list of operations, run one step at a time.

A step reads the input, which is value 0, and runs the operations in order. Operation i computes value i + 1, a vector,
from earlier values and its own state. The last value is the output. States start at zero. `mgrade.deploy.interpreter`
defines what each operation computes, to the bit.
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
    """One part of an operation's state: its name, shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class Unit(NamedTuple):
    """The unit of a channel in an integer program: q stands for offset + q / 2**bits."""

    offset: float
    bits: int


@dataclass(frozen=True)
class Op:
    """One operation: its kind, the values it reads, its arrays and its numbers."""

    kind: str
    args: tuple[int, ...]
    arrays: Mapping[str, Array] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)

    def with_arrays(self, **arrays: Array) -> Op:
        """A copy with some arrays replaced."""
        return dataclasses.replace(self, arrays={**self.arrays, **arrays})


@dataclass(frozen=True)
class Program:
    """A streaming model: its inputs, its operations and, for integer programs, the fraction bits of every value."""

    inputs: int
    """Number of input channels; with `tokens`, the size of the vocabulary."""
    tokens: bool
    ops: tuple[Op, ...]
    precision: str = "float32"
    exponents: tuple[int, ...] = ()
    """Integer programs: a number q of value i stands for q / 2**exponents[i]."""
    input_units: tuple[Unit, ...] = ()
    """Integer programs: the unit of every input channel; if empty, all have offset 0 and exponents[0] bits."""
    output_units: tuple[Unit, ...] = ()
    """The same for the output, with exponents[-1]."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", check(self))
        if self.state_bytes > MAX_STATE:
            raise ValueError(f"state must be at most {MAX_STATE} bytes, got {self.state_bytes}")

    widths: tuple[int, ...] = field(init=False, default=())
    """The width of every value; a token has width 1."""

    @property
    def outputs(self) -> int:
        """Number of output channels."""
        return self.widths[-1]

    @property
    def integer(self) -> bool:
        """Whether values are integers."""
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
        """The parts of the state of operation `index`."""
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
        """The dtype of delays in C: one byte, or two if any delay of the program needs them."""
        longest = max((int(op.arrays["lag"].max(initial=0)) for op in self.ops if "lag" in op.arrays), default=0)
        return "uint8" if longest < 256 else LAG

    def in_c(self, name: str, array: Array) -> Array:
        """The array called `name` as C stores it."""
        return array.astype(self.lag_dtype) if name == "lag" else array

    @property
    def parameter_bytes(self) -> int:
        """Bytes of all arrays in C, where equal arrays are stored once."""
        arrays = (self.in_c(*item) for op in self.ops for item in op.arrays.items())
        return sum(len(data) for _, data in {(str(array.dtype), array.tobytes()) for array in arrays})

    @property
    def state_bytes(self) -> int:
        """Bytes of state of one stream, without the positions in its delay lines."""
        return sum(
            int(np.prod(part.shape)) * np.dtype(part.dtype).itemsize
            for index in range(len(self.ops))
            for part in self.state(index)
        )

    @property
    def bytes(self) -> int:
        """Bytes of parameters and of the state of one stream."""
        return self.parameter_bytes + self.state_bytes
