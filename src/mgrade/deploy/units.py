"""Units of inputs and outputs of integer programs: an offset and a scale per channel.

Channels that are far from zero or differ in range get units of their own, so that integers represent all of them well.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mgrade.deploy.check import LEAST_BITS, MOST_BITS
from mgrade.deploy.program import Op, Program, Unit

Array = npt.NDArray[Any]
# Channels whose widths differ by no more than this factor share one scale.
UNEQUAL = 8.0
# A channel is measured from its middle where that saves two bits or more.
FAR = 4.0
# With 16 bits, a channel measured from its middle has room for this multiple of its calibrated range, since pressures
# and temperatures drift; but for no more than it takes to reach zero.
DRIFT = 4.0


class Channel(NamedTuple):
    """Statistics of a channel: its range and its standard deviation."""

    low: float
    high: float
    width: float


def seen(sequences: Iterable[Array]) -> tuple[Channel, ...]:
    """Statistics of every channel of sequences (…, channels)."""
    every = np.concatenate([np.asarray(one, np.float64).reshape(-1, np.shape(one)[-1]) for one in sequences])
    parts = (every.min(0), every.max(0), every.std(0))
    return tuple(Channel(*map(float, facts)) for facts in zip(*parts, strict=True))


class Frame(NamedTuple):
    """A change of units u = (x - offset) 2**shift that makes channels similarly wide, and the largest u."""

    offset: Array
    shift: Array
    largest: float

    def units(self, exponent: int) -> tuple[Unit, ...]:
        """The units of the channels if u has `exponent` fraction bits."""
        return tuple(Unit(float(at), int(by) + exponent) for at, by in zip(self.offset, self.shift, strict=True))


def frame(channels: Sequence[Channel], bits: int, exponents: tuple[int, int], by_size: bool) -> Frame | None:
    """The frame of channels in `bits` bits, with fraction bits within `exponents`; None if they need no change.

    Channels are scaled to equal size, or to equal deviation, so that 8-bit weights serve all of them.
    """
    if not channels:
        return None
    offset = [_offset(channel, bits) for channel in channels]
    size = np.array([_size(channel, at, bits) for channel, at in zip(channels, offset, strict=True)])
    width = size if by_size else np.array([channel.width for channel in channels])
    shift = np.zeros(len(channels), np.int64)
    if width.max() > UNEQUAL * width.min(where=width > 0, initial=width.max()):
        shift = np.rint(np.log2(width.max() / np.where(width > 0, width, width.max()))).astype(np.int64)
    if largest := float((size * 2.0**shift).max()):
        fitting = math.floor(math.log2(((1 << (bits - 1)) - 1) / largest))
        shift += fitting - min(max(fitting, exponents[0]), exponents[1])
        shift = np.clip(shift, LEAST_BITS - exponents[0], MOST_BITS - exponents[1])
    if not shift.any() and not any(offset):
        return None
    return Frame(np.array(offset), shift, float((size * 2.0**shift).max()))


def _offset(channel: Channel, bits: int) -> float:
    """The zero point of a channel: zero, or its middle in single precision."""
    middle = float(np.float32((channel.low + channel.high) / 2))
    away = max(abs(channel.low), abs(channel.high))
    return middle if away > FAR * _size(channel, middle, bits) else 0.0


def _size(channel: Channel, offset: float, bits: int) -> float:
    """How far a channel may get from its offset, with room for drift."""
    size = max(channel.high - offset, offset - channel.low)
    return max(size, min(DRIFT * size, abs(offset))) if bits == 16 else size


def input_frame(
    program: Program, channels: Sequence[Channel], bits: int, exponents: tuple[int, int]
) -> tuple[Program, Frame | None]:
    """Changes a float program to read its inputs in a frame, if the operations that read them allow that."""
    first = [op for op in program.ops if 0 in op.args]
    if any(op.kind not in ("linear", "taps_input") for op in first):
        return program, None
    if (made := frame(channels, bits, exponents, by_size=bits == 8)) is None:
        return program, None
    ops = tuple(_reading(op, made) if 0 in op.args else op for op in program.ops)
    return dataclasses.replace(program, ops=ops), made


def _reading(op: Op, made: Frame) -> Op:
    name = "weight" if op.kind == "linear" else "mix"
    weight = op.arrays[name].astype(np.float64)
    bias = op.arrays["bias"] + weight @ made.offset
    return op.with_arrays(**{name: (weight * 2.0**-made.shift).astype(np.float32), "bias": bias.astype(np.float32)})


def output_frame(
    program: Program, channels: Sequence[Channel], bits: int, exponents: tuple[int, int]
) -> tuple[Program, Frame | None]:
    """Changes a float program to return its outputs in a frame, if a linear map produces them."""
    last = program.ops[-1]
    if last.kind != "linear" or (made := frame(channels, bits, exponents, by_size=True)) is None:
        return program, None
    scale = 2.0**made.shift
    weight = last.arrays["weight"] * scale[:, None]
    bias = (last.arrays["bias"] - made.offset) * scale
    given = last.with_arrays(weight=weight.astype(np.float32), bias=bias.astype(np.float32))
    return dataclasses.replace(program, ops=(*program.ops[:-1], given)), made
