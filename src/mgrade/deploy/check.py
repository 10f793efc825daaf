"""Checks a Program's shapes, dtypes and ranges once, so that nothing that runs it has to check again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from mgrade.deploy.specs import PRECISIONS, SPECS, array_dtype
from mgrade.footprint.measure import MAX_INTEGER_TERMS

if TYPE_CHECKING:
    from mgrade.deploy.program import Op, Program

# Larger programs are refused: nothing that streams on a device needs them.
MAX_WIDTH, MAX_OPS, MAX_STATE, MAX_PRODUCTS = 4096, 4096, 1 << 28, 1 << 26
# Sums are rescaled within 32 bits: the upper half of a product, then a shift by 1 to 30.
LEAST_SHIFT, MOST_SHIFT = 17, 46
# The largest spread of exponents around an addition, and the largest epsilon of a norm.
ADD_SPREAD, MOST_EPSILON = 14, 1 << 56
# Fraction bits of inputs and outputs: within these, every power of two fits single precision.
LEAST_BITS, MOST_BITS = -120, 120
LARGEST = float(np.finfo(np.float32).max)


def check(program: Program) -> tuple[int, ...]:
    """Returns the width of every value; raises a ValueError that names what is wrong with a program."""
    if program.precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {program.precision!r:.40}")
    if type(program.inputs) is not int or not 1 <= program.inputs <= (1 << 16) - 2:
        raise ValueError(f"inputs must be a whole number from 1 to {(1 << 16) - 2}, got {program.inputs!r:.40}")
    if type(program.tokens) is not bool:
        raise ValueError(f"tokens must be true or false, got {program.tokens!r:.40}")
    if not 1 <= len(program.ops) <= MAX_OPS:
        raise ValueError(f"ops must be 1 to {MAX_OPS} operations, got {len(program.ops)}")
    widths = [1 if program.tokens else program.inputs]
    for index, op in enumerate(program.ops):
        if op.kind not in SPECS:
            raise ValueError(f"ops[{index}]: no kind {op.kind!r:.40}; there are {', '.join(SPECS)}")
        try:
            widths.append(_width(program, op, widths))
        except ValueError as error:
            raise ValueError(f"ops[{index}] ({op.kind}): {error}") from None
        if op.kind in ("mean", "sum") and index + 1 < len(program.ops):
            raise ValueError(f"ops[{index}] ({op.kind}): must be the last")
    _exponents(program)
    _units(program, widths)
    return tuple(widths)


def _units(program: Program, widths: list[int]) -> None:
    for name, count in (("input_units", 0 if program.tokens else widths[0]), ("output_units", widths[-1])):
        units = getattr(program, name)
        if units and len(units) != (count if program.integer else 0):
            raise ValueError(f"{name} must be 0{f' or {count}' if program.integer and count else ''}, got {len(units)}")
        for channel, (offset, bits) in enumerate(units):
            where = f"{name}[{channel}]"
            if type(offset) is not float or not abs(offset) <= LARGEST or float(np.float32(offset)) != offset:
                raise ValueError(f"{where}: offset must be a number in single precision, got {offset!r:.40}")
            if type(bits) is not int or not LEAST_BITS <= bits <= MOST_BITS:
                limits = f"from {LEAST_BITS} to {MOST_BITS}"
                raise ValueError(f"{where}: bits must be a whole number {limits}, got {bits!r:.40}")


def _width(program: Program, op: Op, widths: list[int]) -> int:
    spec = SPECS[op.kind]
    sizes: dict[str, int] = {"2": 2}
    if len(op.args) != len(spec.args):
        raise ValueError(f"args must name {len(spec.args)} values, got {len(op.args)}")
    for value, letter in zip(op.args, spec.args, strict=True):
        if type(value) is not int or not 0 <= value < len(widths):
            raise ValueError(f"args must name values before it, 0 to {len(widths) - 1}, got {value!r:.40}")
        if (value == 0 and program.tokens) != (letter == "token"):
            raise ValueError(f"value {value} is {'a token' if value == 0 and program.tokens else 'not a token'}")
        if letter != "token":
            _size(sizes, letter, widths[value], f"value {value}")
    wanted = {**spec.arrays, **(spec.integer if program.integer else {})}
    if op.arrays.keys() != wanted.keys():
        raise ValueError(f"arrays must be {_names(wanted)}, got {_names(op.arrays)}")
    for name, letters in wanted.items():
        _array(program, op, name, letters, sizes)
    if op.kind == "rotate":
        _size(sizes, "p", 2 * sizes["h"], "decay")
    if any(letter == "v" for letters in wanted.values() for letter in letters) and sizes["v"] != program.inputs:
        raise ValueError(f"table must have a row per token, {program.inputs}, got {sizes['v']}")
    numbers = {*(spec.integer_numbers if program.integer else spec.numbers)}
    if op.numbers.keys() != numbers:
        raise ValueError(f"numbers must be {_names(sorted(numbers))}, got {_names(op.numbers)}")
    for name, number in op.numbers.items():
        _number(name, number)
    if program.integer:
        _terms(op, sizes)
    width = sizes[spec.result]
    if not 1 <= width <= MAX_WIDTH:
        raise ValueError(f"width must be 1 to {MAX_WIDTH}, got {width}")
    if op.kind == "taps_input" and (products := sizes["o"] * sizes["k"] * sizes["n"]) > MAX_PRODUCTS:
        raise ValueError(f"a step must take at most {MAX_PRODUCTS} products, got {products}")
    if "lag" in op.arrays and (op.arrays["lag"] >= (1 << 16) - 1).any():
        raise ValueError(f"lag must be below {(1 << 16) - 1}, got {op.arrays['lag'].max()}")
    return width


def _array(program: Program, op: Op, name: str, letters: str, sizes: dict[str, int]) -> None:
    array, dtype = op.arrays[name], array_dtype(op.kind, name, program.integer)
    if array.dtype != np.dtype(dtype):
        raise ValueError(f"{name} must be {dtype}, got {array.dtype}")
    if array.ndim != len(letters):
        raise ValueError(f"{name} must have {len(letters)} axes, got shape {array.shape}")
    if not array.size:
        raise ValueError(f"{name} must not be empty, got shape {array.shape}")
    for letter, size in zip(letters, array.shape, strict=True):
        _size(sizes, letter, size, name)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite")
    if name.endswith("multiplier") and (array < 0).any():
        raise ValueError(f"{name} must not be negative, got {array.min()}")
    if array.dtype == np.int8 and (array < -127).any():
        raise ValueError(f"{name} must be -127 to 127, got -128")


def _names(names: Iterable[str]) -> str:
    """The names on one line, whatever a file contains."""
    return ", ".join(name if name.isidentifier() and len(name) < 40 else f"{name!r:.40}" for name in names) or "none"


def _size(sizes: dict[str, int], letter: str, size: int, what: str) -> None:
    if sizes.setdefault(letter, size) != size:
        raise ValueError(f"{what} has size {size} where {sizes[letter]} is needed")


NUMBER_RANGES = {
    "eps": (1e-12, 1.0),
    "epsilon": (1, MOST_EPSILON),
    "scale_shift": (1, 62),
    "extra": (0, 15),
    "state_exponent": (-30, 45),
    "weight_shift": (1, 30),
    "one": (0, 32767),
    "down": (LEAST_SHIFT, MOST_SHIFT),
    "mix_down": (LEAST_SHIFT, MOST_SHIFT),
    "bias_up": (0, 20),
}


def _number(name: str, value: Any) -> None:
    low, high = NUMBER_RANGES[name]
    kind = float if name == "eps" else int
    if not isinstance(value, kind) or isinstance(value, bool) or not low <= value <= high:
        what = "a number" if kind is float else "whole"
        raise ValueError(f"{name} must be {what}, {low} to {high}, got {value!r:.40}")


def _terms(op: Op, sizes: dict[str, int]) -> None:
    """Checks that sums fit in 32 bits: the number of terms, and biases that leave room for them."""
    terms = {"linear": "i", "taps": "k", "filter": "k", "taps_token": "k", "taps_input": "k"}.get(op.kind)
    if terms and sizes[terms] > MAX_INTEGER_TERMS:
        raise ValueError(f"integer sums take at most {MAX_INTEGER_TERMS} terms, got {sizes[terms]}")
    if op.kind == "linear":
        room = (1 << 31) - 1 - 127 * 32768 * sizes["i"]
        if (np.abs(op.arrays["bias"].astype(np.int64)) << int(op.numbers["bias_up"]) > room).any():
            raise ValueError(f"bias must leave room in 32 bits, at most {room}")
    if op.kind == "taps_input" and sizes["n"] >= MAX_INTEGER_TERMS:
        raise ValueError(f"integer sums take at most {MAX_INTEGER_TERMS} terms, got {sizes['n'] + 1}")
    if op.kind == "norm" and sizes["o"] > MAX_INTEGER_TERMS:
        raise ValueError(f"an integer norm takes at most {MAX_INTEGER_TERMS} channels, got {sizes['o']}")


def _exponents(program: Program) -> None:
    wanted = len(program.ops) + 1 if program.integer else 0
    if len(program.exponents) != wanted:
        raise ValueError(f"exponents must have {wanted} entries, got {len(program.exponents)}")
    for value, exponent in enumerate(program.exponents):
        if type(exponent) is not int or not -30 <= exponent <= 30:
            raise ValueError(f"exponents[{value}] must be a whole number from -30 to 30, got {exponent!r:.40}")
    if not program.integer:
        return
    for index, op in enumerate(program.ops):
        if op.kind == "rotate":
            at = op.numbers["state_exponent"]
            for exponent in (program.exponents[op.args[0]], program.exponents[index + 1]):
                if abs(at - exponent) > 30:
                    raise ValueError(
                        f"ops[{index}] (rotate): state_exponent must lie within 30 of {exponent}, got {at}"
                    )
        if op.kind in ("gelu", "glu", "gated", "mean", "sum"):
            # the result has the scale of an argument: the value for glu, the candidate for gated
            source = op.args[1] if op.kind == "gated" else op.args[0]
            if program.exponents[index + 1] != program.exponents[source]:
                raise ValueError(f"ops[{index}] ({op.kind}): exponents must be equal before and after it")
        if op.kind == "add":
            spread = [program.exponents[value] for value in (*op.args, index + 1)]
            if max(spread) - min(spread) > ADD_SPREAD:
                raise ValueError(
                    f"ops[{index}] (add): exponents must lie within {ADD_SPREAD} of each other, got {spread}"
                )
