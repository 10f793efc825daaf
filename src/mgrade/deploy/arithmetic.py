"""Arithmetic of integer programs in NumPy: bit for bit what the C runtime does in 32 and 64 bits."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

GATE_BITS, TABLE_STEP = 11, 8
"""The sigmoid's argument has 11 fraction bits. Its table has an entry every 2**8 units, that is every 1/8."""
UNIT = 24
"""Fraction bits of the sigmoid's result and of a normalised value."""
SIGMOID: Ints = np.array(
    [round((1 << UNIT) / (1 + math.exp(i / 8))) for i in range((1 << 15 >> TABLE_STEP) + 2)],
    np.int64,
)
"""sigmoid(-x) at these points: the smaller half; the other follows by symmetry."""
TABLE_BITS = 7
"""Fraction bits added to sums over int8 tables, which have none of their own."""
FACTOR_BITS = 5
"""Fraction bits of a multiplier's factor, chosen so that a one-byte multiplier is at most as large as a 15-bit one."""
GELU_BITS, GELU_LINEAR, GELU_CUBIC = 12, 6536, 2338
"""gelu(u) = u sigmoid(1.5957691 u + 0.0713548 u^3): u has 12 fraction bits, the factors have 12 and 15."""


def shift_right(x: Ints, bits: int | Ints) -> Ints:
    """x / 2**bits, rounded half up; an int of zero or less shifts left, the elements of an array are at least 1."""
    if isinstance(bits, int):
        return (x + (1 << (bits - 1))) >> bits if bits > 0 else x << -bits
    return (x + (np.int64(1) << (bits - 1))) >> bits


def saturate(x: Ints, bits: int) -> Ints:
    """The nearest number of `bits` bits."""
    return np.minimum(np.maximum(x, -(1 << (bits - 1))), (1 << (bits - 1)) - 1)


def bound(x: Ints) -> Ints:
    """Clipped to 32 bits, symmetrically."""
    return np.clip(x, -(1 << 31) + 1, (1 << 31) - 1)


def rescale(total: Ints, multiplier: npt.NDArray[np.generic], down: int, bits: int) -> Ints:
    """total * multiplier / 2**down, rounded half up once and saturated."""
    return saturate(shift_right(total * factor(multiplier), down + FACTOR_BITS), bits)


def factor(multiplier: npt.NDArray[np.generic]) -> Ints:
    """The factors that multipliers stand for, with FACTOR_BITS fraction bits.

    A 15-bit multiplier stands for itself, a one-byte multiplier for 16 to 31 times a power of two.
    """
    whole = multiplier.astype(np.int64)
    return (16 | whole & 15) << (whole >> 4) if multiplier.dtype == np.uint8 else whole << FACTOR_BITS


def sigmoid(x: Ints, exponent: int) -> Ints:
    """The sigmoid of x with `exponent` fraction bits; the result has 24. A parabola through three table entries."""
    x = np.clip(shift_right(x, exponent - GATE_BITS), -32767, 32767)
    size = np.abs(x)
    at, rest = size >> TABLE_STEP, size & ((1 << TABLE_STEP) - 1)
    slope = SIGMOID[at + 1] - SIGMOID[at]
    bend = (SIGMOID[at + 2] - SIGMOID[at + 1] - slope) * (rest * ((1 << TABLE_STEP) - rest)) >> (TABLE_STEP + 1)
    low = SIGMOID[at] + shift_right(slope * rest - bend, TABLE_STEP)
    return np.where(x < 0, low, (1 << UNIT) - low)


def gelu(u: Ints, exponent: int) -> Ints:
    """The GELU of u; argument and result have `exponent` fraction bits."""
    x = np.clip(shift_right(u, exponent - GELU_BITS), -32767, 32767)
    slope = GELU_LINEAR + (((x * x >> GELU_BITS) * GELU_CUBIC) >> 15)
    share = sigmoid(shift_right(x * slope, 2 * GELU_BITS - GATE_BITS), GATE_BITS) >> (UNIT - 15)
    return shift_right(u * share, 15)


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
