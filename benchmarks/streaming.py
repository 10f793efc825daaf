"""Long and endless sequences on the CPU: time per token, memory, and the latency of one step."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from benchmarks import measure, peers
from benchmarks.configurations import CONFIGURATIONS
from benchmarks.contenders import model_config
from benchmarks.measure import Run
from mgrade import Model, State

LENGTHS = tuple(4**n for n in range(5, 11))  # 1,024 to 1,048,576
# All lengths run in chunks of the shortest, so that all have the same overhead per token.
CHUNK = LENGTHS[0]
# Chunks of one length before the next has its turn.
TURN = 16
# The paper's speech model, with an output at every step.
CONFIGURATION = dataclasses.replace(CONFIGURATIONS["speech"], every=True, batch=1)


def _model() -> Model:
    torch.manual_seed(0)
    return Model(model_config(CONFIGURATION)).eval()


def _state_bytes(state: State) -> int:
    return sum(leaf.nbytes for leaf in _pytree.tree_leaves(state) if isinstance(leaf, Tensor))


def cost_per_token(lengths: tuple[int, ...]) -> dict[str, Any]:
    """Seconds per token against the length of the sequence, run chunk by chunk with the state passed on.

    All lengths advance together, a few chunks at a time, so that disturbances affect all of them equally; short
    sequences restart until the longest has finished.
    """
    model, x = _model(), torch.randn(1, CHUNK, CONFIGURATION.inputs)
    seen, states = dict.fromkeys(lengths, 0), dict[int, State | None]()
    samples: dict[int, list[float]] = {length: [] for length in lengths}
    with torch.no_grad():
        for _ in range(3):
            model(x)
        for _ in range(max(lengths) // (TURN * CHUNK) + 1):
            for length in lengths:
                begin = time.perf_counter()
                for _ in range(TURN):
                    start = seen[length] % length == 0
                    _, states[length] = model(x, None if start else states[length])
                    seen[length] += CHUNK
                samples[length].append((time.perf_counter() - begin) / (TURN * CHUNK))
    per_token = {str(length): measure.summary(times) for length, times in samples.items()}
    spread = {key: [result[key] for result in per_token.values()] for key in ("median", "fastest")}
    return {
        "chunk": CHUNK,
        "seconds_per_token": per_token,
        **{f"max_over_min_{key}": max(values) / min(values) for key, values in spread.items()},
    }


def memory_by_length(lengths: tuple[int, ...]) -> dict[str, Any]:
    """Resident set and bytes of state along one endless stream; to be run in a fresh process."""
    model = _model()
    at: dict[str, dict[str, int]] = {}
    with torch.no_grad():
        _, state = model(torch.randn(1, CHUNK, CONFIGURATION.inputs))  # the allocator reaches its working size
        seen = 0
        for length in lengths:
            while seen < length:
                _, state = model(torch.randn(1, CHUNK, CONFIGURATION.inputs), state)
                seen += CHUNK
            at[str(length)] = {"resident_bytes": measure.resident_bytes(), "state_bytes": _state_bytes(state)}
    first, last = (at[str(length)] for length in (lengths[0], lengths[-1]))
    return {
        "chunk": CHUNK,
        "after_steps": at,
        "resident_growth_bytes": last["resident_bytes"] - first["resident_bytes"],
        "state_growth_bytes": last["state_bytes"] - first["state_bytes"],
    }


def step_latency(repeats: int, with_peers: bool = True) -> dict[str, Any]:
    """One sample in, one output out, on one thread."""
    builds: dict[str, measure.Build] = {"mgrade Model.step": _mgrade_step}
    if with_peers:
        builds["peers, stepped"] = _composition_step
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return {
            "threads": 1,
            "contenders": measure.relate(measure.compare(builds, "cpu", repeats, warmup=20)),
        }
    finally:
        torch.set_num_threads(threads)


def _mgrade_step() -> Run:
    model = _model()
    x = torch.randn(1, CONFIGURATION.inputs)
    state = model.initial_state(1)

    @torch.no_grad()
    def run() -> None:
        nonlocal state
        _, state = model.step(x, state)

    return run


def _composition_step() -> Run:
    torch.manual_seed(0)
    model = peers.Composition(CONFIGURATION, "cpu").eval()
    x = torch.randn(1, 1, CONFIGURATION.inputs)
    with torch.no_grad():
        kernels, state = model.stream(1)

    @torch.no_grad()
    def run() -> None:
        nonlocal state
        _, state = model.step(x, kernels, state)

    return run
