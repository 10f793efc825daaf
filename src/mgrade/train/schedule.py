"""The schedule of a run: learning rates, evaluations, and widths of taps."""

from __future__ import annotations

import math

from mgrade.train.options import Training
from mgrade.train.step import cosine

# Sigma narrows in this many stages: it is a constant of the captured step, so every change means a new capture.
SIGMA_STAGES = 16


def factors(train: Training, steps: int) -> list[float]:
    """The learning-rate factor of every step."""
    warmup = math.ceil(train.warmup * steps)
    if train.schedule == "cosine":
        return cosine(steps, warmup)
    return [min(1.0, (step + 1) / warmup) if warmup else 1.0 for step in range(steps)]


def evaluations(steps: int, count: int) -> set[int]:
    """The steps after which to evaluate: `count` of them, evenly spaced, including the last."""
    return {round(steps * index / min(count, steps)) for index in range(1, min(count, steps) + 1)}


def sigma_stages(train: Training, final: float, steps: int) -> dict[int, float]:
    """Step -> width of the taps from then on, narrowing by equal ratios; empty without annealing."""
    if train.sigma_from is None:
        return {}
    until = math.ceil(train.sigma_until * steps)
    if train.snap:
        return {0: train.sigma_from, until: final}
    stages = {
        round(until * stage / SIGMA_STAGES): train.sigma_from * (final / train.sigma_from) ** (stage / SIGMA_STAGES)
        for stage in range(SIGMA_STAGES)
    }
    return {**stages, until: final}
