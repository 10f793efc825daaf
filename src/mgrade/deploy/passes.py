"""Passes that turn a Program into a smaller one with the same outputs."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from mgrade.deploy.program import Op, Program

# Weights below this share of the largest in their channel are rounding noise: the far tails of a tap.
NEGLIGIBLE = 1e-9
# A narrow delay line may add at most this share to a step's products.
NARROW_COST = 0.25


def optimise(program: Program) -> Program:
    """Applies all passes; outputs do not change."""
    return prune(narrow(trim(program)))


def trim(program: Program) -> Program:
    """Drops negligible weights, so that delay lines end at the longest delay used; picks the smaller form of taps."""
    return _replaced(program, [_trimmed(op) if op.kind in ("taps", "filter") else op for op in program.ops])


def _trimmed(op: Op) -> Op:
    weight: npt.NDArray[Any] = op.arrays["weight"] if op.kind == "taps" else op.arrays["weight"].T
    lag: npt.NDArray[Any] = np.broadcast_to(op.arrays["lag"], weight.shape)  # (channels, taps)
    used = np.abs(weight) > NEGLIGIBLE * np.abs(weight).max(1, initial=0, keepdims=True)
    taps = _as_taps(op, weight, lag, used)
    if op.kind == "taps":
        return taps
    rows = np.flatnonzero(used.any(0))
    rows = rows if rows.size else np.zeros(1, np.int64)
    shared = op.with_arrays(weight=np.ascontiguousarray(op.arrays["weight"][rows]), lag=op.arrays["lag"][rows])
    return min(shared, taps, key=lambda one: sum(array.nbytes for array in one.arrays.values()))


def _as_taps(op: Op, weight: npt.NDArray[Any], lag: npt.NDArray[Any], used: npt.NDArray[np.bool_]) -> Op:
    """The used taps of each channel, by rising lag, padded with zero weights."""
    most = max(1, int(used.sum(1).max(initial=0)))
    order = np.argsort(np.where(used, lag.astype(np.int64), 1 << 20), axis=1, kind="stable")[:, :most]
    kept = np.take_along_axis(used, order, 1)
    taps = op.with_arrays(
        weight=np.where(kept, np.take_along_axis(weight, order, 1), 0).astype(weight.dtype),
        lag=np.where(kept, np.take_along_axis(lag, order, 1), 0).astype(np.uint16),
    )
    return dataclasses.replace(taps, kind="taps")


def narrow(program: Program) -> Program:
    """Lets a convolution of the encoded input delay the raw input instead, where that is narrower and not much slower.

    Integer programs stay as they are: they round the encoded input, so delaying the raw input would change outputs.
    """
    if program.integer:
        return program
    ops = list(program.ops)
    affordable = NARROW_COST * sum(op.arrays["weight"].size for op in ops if "weight" in op.arrays)
    for index, op in enumerate(ops):
        if op.kind not in ("taps", "filter") or op.args[0] == 0:
            continue
        source = program.ops[op.args[0] - 1]
        if source.args != (0,) or source.kind not in ("linear", "embed"):
            continue
        weight = op.arrays["weight"] if op.kind == "taps" else op.arrays["weight"].T
        lag = np.broadcast_to(op.arrays["lag"], weight.shape)
        taps = {"weight": np.ascontiguousarray(weight), "lag": np.ascontiguousarray(lag)}
        if source.kind == "embed":
            ops[index] = Op("taps_token", (0,), {**taps, "table": source.arrays["table"]})
        elif program.inputs < weight.shape[0] and (program.inputs - 1) * weight.size <= affordable:
            mix, bias = source.arrays["weight"], source.arrays["bias"]
            ops[index] = Op("taps_input", (0,), {**taps, "mix": mix, "bias": bias})
    return _replaced(program, ops)


def prune(program: Program) -> Program:
    """Removes operations whose value is never read."""
    needed = {len(program.ops)}
    for value in range(len(program.ops), 0, -1):
        if value in needed:
            needed.update(program.ops[value - 1].args)
    number = {value: at for at, value in enumerate(sorted(needed | {0}))}
    ops = [
        dataclasses.replace(op, args=tuple(number[i] for i in op.args))
        for value, op in enumerate(program.ops, 1)
        if value in needed
    ]
    exponents = tuple(e for value, e in enumerate(program.exponents) if value in number)
    return dataclasses.replace(program, ops=tuple(ops), exponents=exponents)


def _replaced(program: Program, ops: list[Op]) -> Program:
    return dataclasses.replace(program, ops=tuple(ops))
