"""From a float Program to an integer one: int8 weights per output channel, int16 or int8 activations.

Scales of activations are powers of two, found by running the program over data. Scales of weights, one per output
channel, have five binary digits and an exponent: one byte each, and one shift for all.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mgrade.deploy.arithmetic import FACTOR_BITS, GATE_BITS, TABLE_BITS, UNIT, factor
from mgrade.deploy.check import ADD_SPREAD, LEAST_SHIFT, MOST_EPSILON, MOST_SHIFT
from mgrade.deploy.interpreter import Interpreter
from mgrade.deploy.program import Op, Program
from mgrade.deploy.specs import BITS
from mgrade.deploy.units import Channel, input_frame, output_frame, seen
from mgrade.footprint.measure import MAX_INTEGER_TERMS

Array = npt.NDArray[Any]
# Operations whose result has the scale of an argument, and the index of that argument.
KEEPS_SCALE = {"gelu": 0, "glu": 0, "gated": 1, "mean": 0, "sum": 0}
STATES = (16, 32)
# Fraction bits of measured values: units may be as small as millionths or as large as millions.
LEAST_EXPONENT, MOST_EXPONENT = -20, 30
# The largest bias, in units of the sum that it is added to.
MOST_BIAS = 1 << 30


@dataclasses.dataclass(frozen=True)
class Ranges:
    """The largest magnitudes of values and of rotations' states, and the channels of inputs and outputs."""

    values: tuple[float, ...]
    rotations: dict[int, float]
    inputs: tuple[Channel, ...] = ()
    outputs: tuple[Channel, ...] = ()
    """If empty, all channels share one scale."""


def calibrate(program: Program, sequences: Iterable[Array]) -> Ranges:
    """Measures ranges: runs a float program over sequences (streams, time, inputs) or token ids (streams, time)."""
    if program.integer:
        raise ValueError(f"precision must be float32 to calibrate, got {program.precision}")
    largest = [0.0] * (len(program.ops) + 1)
    rotations = {index: 0.0 for index, op in enumerate(program.ops) if op.kind == "rotate"}
    steps, sequences, outputs = 0, list(sequences), []
    for sequence in sequences:
        x = np.asarray(sequence)
        interpreter = Interpreter(program, len(x))
        for t in range(x.shape[1]):
            for value, y in enumerate(interpreter.values(x[:, t])):
                largest[value] = float(np.maximum(largest[value], np.abs(y).max(initial=0)))  # NaN propagates
            outputs.append(y)
            for index in rotations:
                hidden = interpreter.state[index]["hidden"]
                rotations[index] = float(np.maximum(rotations[index], np.abs(hidden).max(initial=0)))
            steps += len(x)
    if not steps:
        raise ValueError("sequences must hold at least one step to calibrate on, got none")
    if not all(math.isfinite(size) for size in (*largest, *rotations.values())):
        raise ValueError("sequences give values that are not finite")
    return Ranges(tuple(largest), rotations, () if program.tokens else seen(sequences), seen(outputs))


def quantise(
    program: Program, ranges: Ranges, *, precision: str = "int16", state_bits: int = 32, apart: bool = False
) -> Program:
    """Returns the integer program. `state_bits`: bits of the recurrent state between steps, 16 or 32.

    apart: outputs are values with units of their own, not scores that are compared with each other.
    """
    if program.integer:
        raise ValueError(f"precision must be float32 to quantise, got {program.precision}")
    rotations = {index for index, op in enumerate(program.ops) if op.kind == "rotate"}
    if len(ranges.values) != len(program.ops) + 1 or ranges.rotations.keys() != rotations:
        raise ValueError(f"ranges must be those of this program's {len(program.ops) + 1} values, got another program's")
    if precision not in BITS:
        raise ValueError(f"precision must be one of {', '.join(BITS)}, got {precision!r}")
    if state_bits not in STATES:
        raise ValueError(f"state_bits must be 16 or 32, got {state_bits!r}")
    limits = (BITS[precision], (LEAST_EXPONENT, MOST_EXPONENT))
    program, into = input_frame(program, ranges.inputs, *limits)
    program, out = output_frame(program, ranges.outputs if apart else (), *limits)
    values = list(ranges.values)
    for made, at in ((into, 0), (out, -1)):
        values[at] = values[at] if made is None else made.largest
    ranges = dataclasses.replace(ranges, values=tuple(values))
    exponents = _exponents(program, ranges, precision)
    quantiser = _Quantiser(exponents, ranges, BITS[precision], state_bits)
    ops = []
    for index, op in enumerate(program.ops):
        try:
            ops.append(getattr(quantiser, f"_{op.kind}", quantiser._plain)(op, index))
        except ValueError as error:
            raise ValueError(f"ops[{index}] ({op.kind}): {error}") from None
    return dataclasses.replace(
        program,
        ops=tuple(ops),
        precision=precision,
        exponents=tuple(exponents),
        input_units=() if into is None else into.units(exponents[0]),
        output_units=() if out is None else out.units(exponents[-1]),
    )


def _exponents(program: Program, ranges: Ranges, precision: str) -> list[int]:
    """Fraction bits of every value: as many as its range leaves and its readers allow."""
    most = [MOST_EXPONENT] * (len(program.ops) + 1)
    while True:
        exponents = _within(program, ranges, BITS[precision], most)
        too_fine: dict[int, int] = {}
        for index, op in enumerate(program.ops):
            if op.kind == "add":
                near = (*op.args, index + 1)
                too_fine |= _over(exponents, near, min(exponents[value] for value in near) + ADD_SPREAD)
            elif op.kind == "norm":
                unit = op.numbers["eps"] * op.arrays["scale"].shape[0] ** 3
                too_fine |= _over(exponents, op.args, math.floor(math.log2(MOST_EPSILON / unit) / 2))
        if not too_fine or min(exponents) < LEAST_EXPONENT - 15:  # never reached in practice: it only ends the loop
            return exponents
        for value, limit in too_fine.items():
            most[_origin(program, value)] = limit


def _within(program: Program, ranges: Ranges, bits: int, most: list[int]) -> list[int]:
    """The same, given the most fraction bits of every value."""
    exponents = [0 if program.tokens else min(_fitting(ranges.values[0], bits), most[0])]
    gates = {op.args[0] if op.kind == "gated" else op.args[1] for op in program.ops if op.kind in ("gated", "glu")}
    for index, op in enumerate(program.ops):
        if op.kind in KEEPS_SCALE:
            exponents.append(exponents[op.args[KEEPS_SCALE[op.kind]]])
        else:
            wanted = GATE_BITS - (16 - bits) if index + 1 in gates else _fitting(ranges.values[index + 1], bits)
            exponents.append(min(wanted, most[index + 1], _finest(op, exponents, ranges, bits)))
    return exponents


def _over(exponents: list[int], values: Iterable[int], limit: int) -> dict[int, int]:
    return {value: limit for value in values if exponents[value] > limit}


def _origin(program: Program, value: int) -> int:
    """The value that a value's scale comes from."""
    while value and (op := program.ops[value - 1]).kind in KEEPS_SCALE:
        value = op.args[KEEPS_SCALE[op.kind]]
    return value


def _finest(op: Op, exponents: list[int], ranges: Ranges, bits: int) -> int:
    """The most fraction bits that are meaningful for a sum over int8 weights."""
    arrays = op.arrays
    if op.kind == "embed":
        unit = np.abs(arrays["table"]).max(initial=0) / 127 * 2.0**-TABLE_BITS
    elif op.kind == "taps_token":
        unit = (
            np.abs(arrays["weight"]).max(initial=0) * np.abs(arrays["table"]).max(initial=0) / 127**2 * 2.0**-TABLE_BITS
        )
    elif op.kind == "taps_input":
        source = exponents[op.args[0]]
        real = _one(ranges.values[op.args[0]], source, bits) * 2.0**-source
        both = max(np.abs(arrays["mix"]).max(initial=0), np.abs(arrays["bias"]).max(initial=0) / real) / 127
        unit = both * np.abs(arrays["weight"]).sum(1).max(initial=0) * 2.0**-source
    elif op.kind in ("linear", "taps", "filter"):
        size = np.abs(arrays["weight"]).max(initial=0) / 127
        bias = (
            np.abs(arrays["bias"]).max(initial=0) * 2.0 ** exponents[op.args[0]] / (1 << 23) if "bias" in arrays else 0
        )
        unit = max(size, bias) * 2.0 ** -exponents[op.args[0]]
    else:
        return 30
    return 30 if unit == 0 else math.floor(-math.log2(8.01 * unit))  # a scale must be below 1/8


def _one(size: float, exponent: int, bits: int) -> int:
    """The constant input of the bias of `taps_input`: about as large as the largest input, so that the bias and the
    weights of inputs have similar sizes."""
    return 1 << max(0, min(bits - 2, math.floor(math.log2(max(size * 2.0**exponent, 1.0)))))


def _fitting(size: float, bits: int) -> int:
    top = (1 << (bits - 1)) - 1
    if size > top * 2.0**-LEAST_EXPONENT:
        raise ValueError(f"values must be at most {top * 2.0**-LEAST_EXPONENT:.2g} to quantise, got {size:.2g}")
    return bits - 2 if size == 0 else min(MOST_EXPONENT, math.floor(math.log2(top / size)))


def _multiplier(real: Array) -> tuple[Array, int]:
    """Multipliers of 15 bits with one shift for all: real = multiplier / 2**down."""
    size = float(np.max(real, initial=2.0**-60))
    down = min(MOST_SHIFT, math.floor(math.log2(32767 / size)))
    if down < LEAST_SHIFT:
        raise ValueError(f"a scale must be below 1/4, got {size:g}")
    return np.rint(real * 2.0**down).astype(np.int16), down


class _Rows(NamedTuple):
    """An int8 matrix with one scale per row: a byte for each row, and `fraction` bits for all."""

    q: Array
    byte: Array
    fraction: int

    @property
    def scale(self) -> Array:
        return factor(self.byte) * 2.0**-self.fraction


def _rows(weight: Array, floor: Array | float = 0.0, most: int = 60) -> _Rows:
    """Quantises rows, along the first axis; scales are at least `floor` and have at most `most` fraction bits.

    Each row gets the scale with the least error, from the smallest sufficient one to twice that. Rows that lie on such
    a grid already stay there (`train.rounding`).
    """
    weight = weight.astype(np.float64)
    needed = np.maximum(np.abs(weight).max(1) / 127, floor)
    fraction = min(most, 19 - int(np.frexp(max(float(needed.max()), 2.0**-60))[1]))
    needed = np.maximum(needed * 2.0**fraction, 16)
    part, exponent = np.frexp(needed)
    first = 16 * (exponent - 5) + np.ceil(32 * part).astype(np.int64) - 16
    least, byte, q = np.full(len(weight), np.inf), first, np.zeros_like(weight)
    for code in ((first + more).astype(np.uint8) for more in range(16)):
        size = factor(code)
        scale = (size * 2.0**-fraction)[:, None]
        units = np.rint(weight / scale)
        error = np.where(size < 2 * needed, ((units * scale - weight) ** 2).sum(1), np.inf)
        better = error < least
        least, byte, q = (
            np.where(better, error, least),
            np.where(better, code, byte),
            np.where(better[:, None], units, q),
        )
    return _Rows(q.astype(np.int8), byte.astype(np.uint8), fraction)


class _Quantiser:
    """Quantises one operation after another, given the scales of values."""

    def __init__(self, exponents: list[int], ranges: Ranges, bits: int, state_bits: int):
        self.exponents, self.ranges, self.bits, self.state_bits = exponents, ranges, bits, state_bits

    def _rounded(self, index: int, weight: Array, source: int, floor: Array | float = 0.0) -> tuple[_Rows, int]:
        """The quantised matrix, and the shift from sums of values with `source` fraction bits to the result's scale."""
        shift = self.exponents[index + 1] - source
        rows = _rows(weight, floor, MOST_SHIFT + FACTOR_BITS + shift)
        if (down := rows.fraction - FACTOR_BITS - shift) < LEAST_SHIFT:
            raise ValueError(f"a scale must be below 1/8, got {rows.scale.max() * 2.0**shift:g}")
        return rows, down

    def _plain(self, op: Op, index: int) -> Op:
        return op

    def _linear(self, op: Op, index: int) -> Op:
        source, terms = self.exponents[op.args[0]], op.arrays["weight"].shape[1]
        if terms > MAX_INTEGER_TERMS:
            raise ValueError(f"an integer sum takes at most {MAX_INTEGER_TERMS} inputs, got {terms}: use float32")
        bias = op.arrays["bias"].astype(np.float64)
        room = min((1 << 31) - 1 - 127 * 32768 * terms, MOST_BIAS)
        floor = np.abs(bias) * 2.0**source / max(room - 1, 1)
        rows, down = self._rounded(index, op.arrays["weight"], source, floor)
        units = bias / rows.scale * 2.0**source
        up = max(0, math.ceil(math.log2(max(float(np.abs(units).max(initial=0)), 1.0) / 32767)))
        words = np.clip(np.rint(units * 2.0**-up), -32767, 32767).astype(np.int16)
        arrays = {"weight": rows.q, "bias": words, "multiplier": rows.byte}
        return dataclasses.replace(op, arrays=arrays, numbers={"down": down, "bias_up": up})

    def _embed(self, op: Op, index: int) -> Op:
        rows, down = self._rounded(index, op.arrays["table"].T, TABLE_BITS)
        arrays = {"table": np.ascontiguousarray(rows.q.T), "multiplier": rows.byte}
        return dataclasses.replace(op, arrays=arrays, numbers={"down": down})

    def _taps(self, op: Op, index: int) -> Op:
        rows, down = self._rounded(index, op.arrays["weight"], self.exponents[op.args[0]])
        made = op.with_arrays(weight=rows.q, multiplier=rows.byte)
        return dataclasses.replace(made, numbers={"down": down})

    def _filter(self, op: Op, index: int) -> Op:
        rows, down = self._rounded(index, op.arrays["weight"].T, self.exponents[op.args[0]])
        made = op.with_arrays(weight=np.ascontiguousarray(rows.q.T), multiplier=rows.byte)
        return dataclasses.replace(made, numbers={"down": down})

    def _taps_token(self, op: Op, index: int) -> Op:
        weight, table = _rows(op.arrays["weight"]), _rows(op.arrays["table"].T)
        real = weight.scale * table.scale * 2.0 ** (self.exponents[index + 1] - TABLE_BITS)
        multiplier, down = _multiplier(real)
        made = op.with_arrays(weight=weight.q, table=np.ascontiguousarray(table.q.T), multiplier=multiplier)
        return dataclasses.replace(made, numbers={"down": down})

    def _taps_input(self, op: Op, index: int) -> Op:
        source = self.exponents[op.args[0]]
        one = _one(self.ranges.values[op.args[0]], source, self.bits)
        real, bias = one * 2.0**-source, op.arrays["bias"] * (2.0**source / one)
        weight = _rows(op.arrays["weight"])
        reach = max(self.ranges.values[op.args[0]], real) * np.abs(op.arrays["weight"]).astype(np.float64).sum(1)
        least = 4.01 * weight.scale * 2.0**-source  # a delayed input is no finer than the sum it comes from
        unit = np.maximum(reach / ((1 << (self.bits - 1)) - 1), least)
        multiplier, down = _multiplier(weight.scale * 2.0**-source / unit)
        mix = _rows(op.arrays["mix"], np.abs(bias) / 127)
        mix_multiplier, mix_down = _multiplier(mix.scale * unit * 2.0 ** self.exponents[index + 1])
        arrays = {
            "weight": weight.q,
            "lag": op.arrays["lag"],
            "mix": mix.q,
            "bias": np.clip(np.rint(bias / mix.scale), -127, 127).astype(np.int8),
            "multiplier": multiplier,
            "mix_multiplier": mix_multiplier,
        }
        return dataclasses.replace(op, arrays=arrays, numbers={"one": one, "down": down, "mix_down": mix_down})

    def _gated(self, op: Op, index: int) -> Op:
        return dataclasses.replace(op, numbers={"extra": 15 if self.state_bits == 32 else 16 - self.bits})

    def _rotate(self, op: Op, index: int) -> Op:
        decay = np.rint(op.arrays["decay"].astype(np.float64) * 2.0**30)
        if (np.abs(decay) >= 2.0**31).any():
            raise ValueError(f"decay must lie within -2 and 2, got {np.abs(op.arrays['decay']).max():g}")
        size = max(self.ranges.rotations[index], 2.0**-20)
        numbers = {"state_exponent": min(30, math.floor(math.log2(2.0**29 / size)))}
        return dataclasses.replace(op, arrays={"decay": decay.astype(np.int32)}, numbers=numbers)

    def _norm(self, op: Op, index: int) -> Op:
        width = op.arrays["scale"].shape[0]
        source, result = self.exponents[op.args[0]], self.exponents[index + 1]
        epsilon = max(1, round(op.numbers["eps"] * width**3 * 4.0**source))
        gain = op.arrays["scale"].astype(np.float64) * math.sqrt(width) * 2.0 ** (result - UNIT)
        weight, at = _words(gain)
        shift = np.clip(np.rint(op.arrays["shift"] * 2.0**result), -32767, 32767).astype(np.int16)
        numbers = {"epsilon": epsilon, "scale_shift": at}
        return dataclasses.replace(op, arrays={"scale": weight, "shift": shift}, numbers=numbers)

    def _scale(self, op: Op, index: int) -> Op:
        gain = op.arrays["weight"] * 2.0 ** (self.exponents[index + 1] - self.exponents[op.args[0]])
        weight, at = _words(gain, 30)
        return dataclasses.replace(op, arrays={"weight": weight}, numbers={"weight_shift": at})


def _words(gain: Array, most: int = 62) -> tuple[Array, int]:
    """int16 numbers with one shift: gain = q / 2**shift."""
    size = max(float(np.abs(gain).max(initial=0)), 1e-12)
    at = max(1, min(most, math.floor(math.log2(32767 / size))))
    return np.clip(np.rint(gain * 2.0**at), -32767, 32767).astype(np.int16), at
