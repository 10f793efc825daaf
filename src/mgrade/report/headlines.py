"""The headlines of the page: the most striking measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mgrade.report.section import Measured
from mgrade.report.tables import Row, rows_of
from mgrade.report.wording import percent, seconds, size, task_name, times, value

# A stage of an export counts as equally good if it loses at most this share of the test set.
TOLERANCE = 0.005


class Fact(NamedTuple):
    """A figure, and what it means."""

    figure: str
    words: str


def striking(found: Measured, count: int = 3) -> list[Fact]:
    """The first facts for which there are results."""
    facts = (fact(found) for fact in _FACTS)
    return [fact for fact in facts if fact is not None][:count]


def _smallest(found: Measured) -> Fact | None:
    """The fewest bytes at which an exported model is still as good as before its export."""
    best: tuple[int, str, dict[str, Any]] | None = None
    for name, document in found.stages.items():
        stages = document["stages"]
        least = stages[0]["figures"]["accuracy"] - TOLERANCE
        for stage in stages:
            whole = stage["parameter_bytes"] + stage["state_bytes"]
            if stage["figures"]["accuracy"] >= least and (best is None or whole < best[0]):
                best = whole, name, stage
    if best is None:
        return None
    whole, name, stage = best
    return Fact(
        size(whole),
        f"hold a whole classifier of {task_name(name)}: {stage['parameter_bytes']:,} bytes of weights and "
        f"{stage['state_bytes']:,} of state, {percent(stage['figures']['accuracy'])} of the test set right.",
    )


def _training(found: Measured) -> Fact | None:
    if "gpu_steps" not in found.bench:
        return None
    document = found.bench["gpu_steps"]
    factors = [
        entry["tf32"]["contenders"]["peers, compiled"]["median"]
        / entry["bfloat16"]["contenders"]["mgrade, captured"]["median"]
        for entry in document["training_step"].values()
    ]
    return Fact(
        f"{min(factors):.0f} to {times(max(factors))}",
        f"the speed of a compiled model of the peers' pieces: a training step on one {document['hardware']['gpu']}, "
        f"each in the precision that serves it best, over {len(factors)} configurations.",
    )


def _recall(found: Measured) -> Fact | None:
    ours, tcn = (_row(found, f"flipflop/{model}", "test_accuracy") for model in ("mgrade", "tcn"))
    if ours is None:
        return None
    beside = f"; a TCN of {tcn.state_bytes:,} bytes gets {percent(tcn.mean or 0)}" if tcn else ""
    task = ours.runs[0].recipe["task"]
    sparser = (1 - task["ignore"]) / (1 - task["test_ignore"])
    return Fact(
        percent(ours.mean or 0),
        f"of Flip-Flop reads are right with {ours.state_bytes:,} bytes of state, on strings {sparser:.0f} times as "
        f"sparse as those of training{beside}.",
    )


def _attractor(found: Measured) -> Fact | None:
    ours, other = (_row(found, f"lorenz/{model}", "mase_unobserved") for model in ("mgrade", "mingru"))
    if ours is None:
        return None
    beside = f", where minGRU has {value(other.figure, other.mean)}" if other else ""
    return Fact(value(ours.figure, ours.mean), f"MASE on coordinates that training never showed{beside}.")


def _streaming(found: Measured) -> Fact | None:
    if "deploy" not in found.bench:
        return None
    document = found.bench["deploy"]
    times_of = {name: c["tenth"] for name, c in document["streaming_step"]["contenders"].items() if "tenth" in c}
    ours = times_of.get("mgrade C, float32")
    if ours is None:
        return None
    return Fact(seconds(ours), f"a streaming step of {document['model']['parameters']:,} parameters as C, on one core.")


def _row(found: Measured, recipe: str, figure: str) -> Row | None:
    rows = rows_of([recipe.partition("/")[0]], found.known)
    return next((row for row in rows if row.recipe == recipe and row.figure == figure and row.runs), None)


_FACTS: Sequence[Callable[[Measured], Fact | None]] = (_smallest, _training, _recall, _attractor, _streaming)
