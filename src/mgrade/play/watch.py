"""A twin of a program: it gives the same outputs, and also keeps the logits of every gate in its state."""

from __future__ import annotations

import dataclasses

import numpy as np

from mgrade.deploy.check import LEAST_SHIFT
from mgrade.deploy.program import Op, Program


def watched(program: Program) -> tuple[Program, dict[int, int]]:
    """The twin, and for each operation of the program its index in the twin.

    The twin has a one-row delay line over the gate before every `gated` operation. After a step, the line still holds
    the gate exactly as the recurrence saw it. Nothing reads the line's output.
    """
    ops, exponents = list[Op](), list(program.exponents[:1])
    value, number = {0: 0}, dict[int, int]()
    for index, op in enumerate(program.ops):
        args = tuple(value[i] for i in op.args)
        if op.kind == "gated":
            ops.append(_line(program, op.args[0], args[0]))
            exponents += exponents[args[0] : args[0] + 1]
        ops.append(dataclasses.replace(op, args=args))
        exponents += program.exponents[index + 1 : index + 2]
        number[index], value[index + 1] = len(ops) - 1, len(ops)
    return dataclasses.replace(program, ops=tuple(ops), exponents=tuple(exponents)), number


def _line(program: Program, gate: int, at: int) -> Op:
    """A one-row delay line over value `gate` of the program, which is value `at` of the twin."""
    width = program.widths[gate]
    lag = np.zeros((width, 1), np.uint16)
    if not program.integer:
        return Op("taps", (at,), {"weight": np.ones((width, 1), np.float32), "lag": lag})
    weight, multiplier = np.ones((width, 1), np.int8), np.zeros(width, np.uint8)
    return Op("taps", (at,), {"weight": weight, "lag": lag, "multiplier": multiplier}, {"down": LEAST_SHIFT})
