"""The layout of a stream's state in the module's memory, layer by layer, and the places where taps read."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mgrade.deploy import Program
from mgrade.deploy.arithmetic import factor
from mgrade.deploy.c.fields import Field, state_fields
from mgrade.deploy.program import Op
from mgrade.play.watch import watched

# Taps are drawn at peaks of a channel's weights that exceed this share of its highest.
PEAK = 0.2


Fields = dict[tuple[str, int], Field]


def fields(program: Program) -> Fields:
    """The members of the state, by name and operation."""
    return {(field.name, field.operation): field for field in state_fields(program)}


class Layout(NamedTuple):
    """The layout of a program's state and of its twin's, as the page needs it."""

    layers: list[dict[str, Any]]
    """Delay line and recurrent state of each layer, where it has them, and its gates in the twin's state."""
    copies: list[list[int]]
    """What the twin copies from the model's state: source, target, number of bytes. Empty if there are no gates."""
    end: int
    """The end of the state, in bytes."""


def layout(program: Program) -> Layout:
    """The layout of `program`."""
    where = fields(program)
    end = max((field.offset + field.bytes for field in where.values()), default=0)
    if not any(op.kind == "gated" for op in program.ops):
        return Layout(_layers(program, where, {}), [], end)
    twin, number = watched(program)
    theirs = fields(twin)
    gates = {index: theirs["line", at - 1] for index, at in number.items() if twin.ops[at].kind == "gated"}
    copies = [[field.offset, theirs[name, number[index]].offset, field.bytes] for (name, index), field in where.items()]
    return Layout(_layers(program, where, gates), copies, end)


def _layers(program: Program, where: Fields, gates: dict[int, Field]) -> list[dict[str, Any]]:
    """Groups operations into layers: a layer ends with its recurrence, or where the next convolution begins."""
    found: list[dict[str, Any]] = []
    for index, op in enumerate(program.ops):
        kind = "line" if "lag" in op.arrays else "hidden" if op.kind in ("gated", "rotate") else None
        if kind is None:
            continue
        if not found or "hidden" in found[-1] or kind in found[-1]:
            found.append({})
        found[-1][kind] = (_line if kind == "line" else _hidden)(program, index, where)
        if index in gates:
            found[-1]["gates"] = _view(gates[index], _exponent(program, op.args[0]))
    return found


def _line(program: Program, index: int, where: Fields) -> dict[str, Any]:
    op = program.ops[index]
    line = where["line", index]
    tokens = op.kind == "taps_token"
    kernel = _kernel(op, line.shape[0])
    return {
        **_view(line, 0 if tokens else _exponent(program, op.args[0])),
        "at": where["at", index].offset,
        "tokens": tokens,
        "profile": [round(float(share), 4) for share in _shares(np.abs(kernel).sum(0))],
        "taps": _peaks(kernel) if op.kind in ("taps", "filter") else [],
    }


def _hidden(program: Program, index: int, where: Fields) -> dict[str, Any]:
    op = program.ops[index]
    exponent = _exponent(program, index + 1) + int(op.numbers.get("extra", 0))
    if op.kind == "rotate":
        exponent = int(op.numbers.get("state_exponent", 0))
    return {**_view(where["hidden", index], exponent), "kind": op.kind}


def _view(field: Field, exponent: int) -> dict[str, Any]:
    """A field as the page reads it; a number q stands for q / 2**exponent."""
    return {"offset": field.offset, "shape": field.shape, "type": field.dtype, "exponent": exponent}


def _exponent(program: Program, value: int) -> int:
    return program.exponents[value] if program.integer else 0


def _kernel(op: Op, rows: int) -> npt.NDArray[np.float64]:
    """The weights (channels, rows) at every lag."""
    weight = op.arrays["weight"].astype(np.float64)
    weight = weight.T if op.kind == "filter" else weight
    if "multiplier" in op.arrays:  # integer weights have a scale per channel
        weight = weight * factor(op.arrays["multiplier"])[:, None]
    lag = np.broadcast_to(op.arrays["lag"], weight.shape).astype(np.int64)
    kernel = np.zeros((len(weight), rows))
    np.add.at(kernel, (np.arange(len(weight))[:, None], lag), weight)
    return kernel


def _shares(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return values / (values.max(initial=0) or 1.0)


def _peaks(kernel: npt.NDArray[np.float64]) -> list[list[int]]:
    """Channel and lag of every tap: the local peaks of a channel's weights."""
    size = np.abs(kernel)
    edged = np.pad(size, ((0, 0), (1, 1)))
    high = (size >= edged[:, :-2]) & (size > edged[:, 2:]) & (size > PEAK * size.max(1, initial=0, keepdims=True))
    return [[int(channel), int(lag)] for channel, lag in np.argwhere(high)]
