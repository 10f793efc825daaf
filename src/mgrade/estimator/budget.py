"""From a budget of bytes to the largest configuration whose Program fits it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch

from mgrade.deploy import Choices, Program, Ranges, from_model, quantise
from mgrade.footprint import parse_bytes
from mgrade.footprint.measure import MAX_INTEGER_TERMS, widest
from mgrade.footprint.sizing import GRID
from mgrade.nn import Model, ModelConfig


def check_precision(precision: str) -> None:
    """Refuses an unknown precision."""
    Choices(precision=precision)


def _unit_ranges(program: Program) -> Ranges:
    """Arbitrary ranges: the number of bytes does not depend on them."""
    rotations = {index: 1.0 for index, op in enumerate(program.ops) if op.kind == "rotate"}
    return Ranges((1.0,) * (len(program.ops) + 1), rotations)


def most_bytes(config: ModelConfig, precision: str) -> int:
    """An upper bound on the bytes of parameters and state of a program from a model of `config`, for any weights."""
    with torch.random.fork_rng(devices=[]):
        model = Model(config)
        for parameter in model.parameters():
            torch.nn.init.uniform_(parameter)  # all different, as after training: equal arrays are counted once
        program = from_model(model)
    if precision == "float32":
        return program.bytes
    return quantise(program, _unit_ranges(program)).bytes


def within(config: ModelConfig, budget: str | int, precision: str) -> ModelConfig:
    """`config` with the largest `dim` whose program fits `budget` for any weights.

    If no `dim` fits, delays are halved down to the number of taps, and then layers are removed.
    """
    check_precision(precision)
    limit = read_budget(budget)
    smallest = 0
    for shape in _shapes(config):
        chosen = None
        for dim in GRID["dim"]:
            tried = dataclasses.replace(shape, dim=dim)
            if precision != "float32" and widest(tried) > MAX_INTEGER_TERMS:
                break
            smallest = most_bytes(tried, precision)
            if smallest > limit:
                break
            chosen = tried
        if chosen is not None:
            return chosen
    raise ValueError(f"budget must be at least {smallest} bytes for such series at {precision}, got {budget!r}")


def _shapes(config: ModelConfig) -> Iterator[ModelConfig]:
    delay = config.max_delay
    while True:
        yield dataclasses.replace(config, max_delay=delay)
        if delay <= config.taps:
            break
        delay = max(config.taps, delay // 2)
    for depth in range(config.depth - 1, 0, -1):
        yield dataclasses.replace(config, max_delay=delay, depth=depth)


def read_budget(budget: str | int) -> int:
    """Bytes, from text such as `64KB` or a number."""
    try:
        limit = parse_bytes(budget) if isinstance(budget, str) else int(budget)
    except (TypeError, ValueError, OverflowError):
        limit = 0
    if limit < 1:
        raise ValueError(f"budget must be a number of bytes, such as '64KB' or 65536, got {budget!r}")
    return limit
