"""Channels of unequal units, brought to one width before a program of int8 weights reads them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from mgrade.deploy.program import Op, Program

# Where the widths of channels differ by more than this, or their means are so many widths from 0, int8 weights alone
# cannot even them out.
UNEQUAL = 4.0
Array = npt.NDArray[Any]


def levelled(program: Program, mean: Array, scale: Array) -> Program:
    """A float program that reads raw samples, fit for int8 weights.

    mean, scale (inputs): where the channels lie and how wide they are. Where that is far from 0 and 1, the program
    divides by the widths first, in 16 bits, instead of in the encoder's 8.
    """
    if scale.max() > UNEQUAL * scale.min() or (np.abs(mean) > UNEQUAL * scale).any():
        return _rounded(divided(program, scale), mean / scale)
    return program


def divided(program: Program, scale: Array) -> Program:
    """The same program with a division of every channel before the encoder, whose weights are multiplied instead."""
    encoder = program.ops[0]
    even = encoder.with_arrays(weight=(encoder.arrays["weight"] * scale).astype(np.float32))
    first = Op("scale", (0,), {"weight": (1 / scale).astype(np.float32)})
    rest = (even, *program.ops[1:])
    later = tuple(dataclasses.replace(op, args=tuple(value + 1 for value in op.args)) for op in rest)
    return dataclasses.replace(program, ops=(first, *later))


def _rounded(program: Program, mean: Array) -> Program:
    """The same with the encoder's weights on the grid of int8, and a bias that makes up for it at the mean sample."""
    encoder = program.ops[1]
    weight = encoder.arrays["weight"].astype(np.float64)
    step = np.maximum(np.abs(weight).max(1, keepdims=True) / 127, 1e-30)
    near = np.rint(weight / step) * step
    bias = encoder.arrays["bias"] + (weight - near) @ mean
    even = encoder.with_arrays(weight=near.astype(np.float32), bias=bias.astype(np.float32))
    return dataclasses.replace(program, ops=(program.ops[0], even, *program.ops[2:]))
