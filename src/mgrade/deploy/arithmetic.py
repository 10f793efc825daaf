"""Whole-number arithmetic of integer programs, in NumPy: what the C runtime does in 32 and 64 bits, bit for bit."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

GATE_BITS, TABLE_STEP = 11, 6
"""Arguments of the sigmoid have 11 fraction bits; its table has an entry every 2**6 of them, 1/32."""
UNIT = 24
"""Fraction bits of what the sigmoid gives, and of a normalised value."""
SIGMOID: Ints = np.array(
    [round((1 << UNIT) / (1 + math.exp(i / (1 << (GATE_BITS - TABLE_STEP))))) for i in range(513)], np.int64
)
"""sigmoid(-i / 32): the small half, the other follows from it."""
GELU_LINEAR, GELU_CUBIC, GELU_BITS = 1673292, 74821, 20
"""gelu(u) = u sigmoid(1.5957691 u + 0.0713548 u^3), the two factors with 20 fraction bits."""


def shift_right(x: Ints, bits: int | Ints) -> Ints:
    """x / 2**bits, rounded half up; bits of zero or less shift to the left."""
    bits = np.asarray(bits, np.int64)
    down = np.maximum(bits, 1)
    right = (x + (np.int64(1) << (down - 1))) >> down
    return np.where(bits > 0, right, x << np.maximum(-bits, 0))


def saturate(x: Ints, bits: int) -> Ints:
    """The nearest number of so many bits, symmetric: the lowest is left out."""
    top = (1 << (bits - 1)) - 1
    return np.clip(x, -top, top)


def rescale(total: Ints, multiplier: npt.NDArray[np.generic], shift: npt.NDArray[np.generic], bits: int) -> Ints:
    """total multiplier / 2**shift, rounded once and saturated."""
    return saturate(shift_right(total * multiplier.astype(np.int64), shift.astype(np.int64)), bits)


def sigmoid(x: Ints, exponent: int) -> Ints:
    """Of x with so many fraction bits: 24 fraction bits, linear between entries of the table."""
    x = np.clip(shift_right(x, exponent - GATE_BITS), -32767, 32767)
    size = np.abs(x)
    at, rest = size >> TABLE_STEP, size & ((1 << TABLE_STEP) - 1)
    low = SIGMOID[at] + shift_right((SIGMOID[at + 1] - SIGMOID[at]) * rest, TABLE_STEP)
    return np.where(x < 0, low, (1 << UNIT) - low)


def gelu(u: Ints, exponent: int) -> Ints:
    """With as many fraction bits as u has."""
    square = shift_right(u * u * GELU_CUBIC, 2 * exponent)
    argument = shift_right(u * (square + GELU_LINEAR), exponent + GELU_BITS - GATE_BITS)
    return shift_right(u * sigmoid(np.clip(argument, -32767, 32767), GATE_BITS), UNIT)


def reciprocal_root(v: Ints) -> tuple[Ints, Ints]:
    """1 / sqrt(v) = root / 2**30 / 2**(32 - half) for v >= 1, as (root, half): four Newton steps."""
    left: npt.NDArray[np.uint64] = v.astype(np.uint64)
    half = np.zeros(v.shape, np.int64)
    for bits in (32, 16, 8, 4, 2):
        small = left < (np.uint64(1) << np.uint64(64 - bits))
        left = np.where(small, left << np.uint64(bits), left)
        half += np.where(small, bits // 2, 0)
    top = left >> np.uint64(32)  # from 2**30 on
    root = np.uint64(2362232013) - ((top * np.uint64(1342177280)) >> np.uint64(32))
    for _ in range(4):
        square = (root * root) >> np.uint64(30)
        error = np.uint64(3 << 30) - ((top * square) >> np.uint64(32))
        root = (root * error) >> np.uint64(31)
    return root.astype(np.int64), half


def divide(total: Ints, steps: int) -> Ints:
    """total / steps, rounded half away from zero."""
    size = (np.abs(total) + steps // 2) // steps
    return np.where(total < 0, -size, size)
