"""A twin of a program that also remembers its gates: same outputs, and one step of every gate's logits in its state."""

from __future__ import annotations

import dataclasses

import numpy as np

from mgrade.deploy.check import LEAST_SHIFT
from mgrade.deploy.program import Op, Program


def watched(program: Program) -> tuple[Program, dict[int, int]]:
    """The twin, and the operation in it for each of the program's.

    Before every `gated` operation stands a delay line of one row over the gate: what was written into it is there to
    be read after the step, exactly as the recurrence saw it. What the line gives, nobody reads.
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
    """A delay line of one row over value `gate` of the program, which is value `at` of the twin."""
    width = program.widths[gate]
    lag = np.zeros((width, 1), np.uint16)
    if not program.integer:
        return Op("taps", (at,), {"weight": np.ones((width, 1), np.float32), "lag": lag})
    weight, multiplier = np.ones((width, 1), np.int8), np.zeros(width, np.uint8)
    return Op("taps", (at,), {"weight": weight, "lag": lag, "multiplier": multiplier}, {"down": LEAST_SHIFT})
