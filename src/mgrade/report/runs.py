"""The runs behind a report: what a result file says, checked once, so that a broken file is named and nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mgrade.train.recipe import Recipe, load_recipe, shipped
from mgrade.train.result import difference, read_result

# Folders under results/ that hold no runs.
OTHERS = ("bench", "deploy", "compare")


@dataclass(frozen=True)
class Run:
    """One result file."""

    path: Path
    name: str
    """Of its recipe, as `lorenz/mgrade@ajar`."""
    seed: int
    recipe: Mapping[str, Any]
    metrics: Mapping[str, float]
    parameters: int
    state_bytes: int
    provenance: Mapping[str, Any] = field(default_factory=dict)
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict)
    examined: Mapping[str, Any] = field(default_factory=dict)
    delays: Sequence[Mapping[str, Sequence[Sequence[float]]]] = ()

    @property
    def experiment(self) -> str:
        """What its recipe belongs to."""
        return self.name.partition("/")[0]


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns whatever a misshapen file leads to into one line that names it."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, StopIteration) as error:
        if str(error).startswith(str(path)):
            raise
        what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path}: is not a result file: {what}") from None


def read_run(path: Path) -> Run | None:
    """The run that a result file tells of, or None where there is no file."""
    with reading(path):
        document = read_result(path)
        return None if document is None else _run(path, document)


def runs_in(folder: Path) -> list[Run]:
    """The runs of one recipe, whose files lie in `folder`, by seed."""
    found = [read_run(path) for path in folder.glob("seed*.json")]
    return sorted((run for run in found if run is not None), key=lambda run: run.seed)


def all_runs(results: Path) -> list[Run]:
    """Every run under a results folder, by name and seed."""
    folders = sorted(folder for folder in results.glob("*/*") if folder.is_dir() and folder.parent.name not in OTHERS)
    return [run for folder in folders for run in runs_in(folder)]


def by_recipe(runs: Sequence[Run]) -> tuple[dict[str, list[Run]], list[Run]]:
    """Runs of shipped recipes as these are now, by recipe; and those of others or of changed ones."""
    names = set(shipped())
    recipes = {name: load_recipe(name) for name in {run.name for run in runs} & names}
    known: dict[str, list[Run]] = {}
    others = []
    for run in runs:
        if run.name in recipes and _is_of(run, recipes[run.name]):
            known.setdefault(run.name, []).append(run)
        else:
            others.append(run)
    return known, others


def _is_of(run: Run, recipe: Recipe) -> bool:
    """Whether a run is one of the recipe as it is now; then it must have the figures that the paper has."""
    with reading(run.path):
        if difference(recipe.to_dict(), dict(run.recipe)):
            return False
        for figure in recipe.paper:
            if not figure.endswith("_spread") and figure not in run.metrics:
                raise ValueError(f"metrics.{figure} is missing")
    return True


def _run(path: Path, document: dict[str, Any]) -> Run:
    return Run(
        path=path,
        name=f"{path.parent.parent.name}/{path.parent.name}",
        seed=int(path.stem.removeprefix("seed")),
        recipe=_table(document, "recipe"),
        metrics={name: float(value) for name, value in _table(document, "metrics").items()},
        parameters=int(document["parameters"]),
        state_bytes=int(document["state_bytes"]),
        provenance={
            "commit": document.get("commit"),
            "hardware": _table(document, "hardware", {}),
            "versions": _table(document, "versions", {}),
        },
        curves=_curves(_table(document, "curves", {})),
        examined=_table(document, "examined", {}),
        delays=[_layer(layer) for layer in document.get("delays", [])],
    )


def _table(document: dict[str, Any], name: str, default: dict[str, Any] | None = None) -> dict[str, Any]:
    found = document[name] if default is None else document.get(name, default)
    if not isinstance(found, dict):
        raise ValueError(f"{name} must be an object, got {found!r:.40}")
    return found


def _curves(curves: dict[str, Any]) -> dict[str, list[float]]:
    steps = len(curves.get("step", ()))
    for name, values in curves.items():
        if not isinstance(values, list) or len(values) != steps:
            raise ValueError(f"curves.{name} must be a list as long as curves.step, {steps}")
    return {name: [_number(value) for value in values] for name, values in curves.items()}


def _layer(layer: dict[str, Any]) -> dict[str, list[list[float]]]:
    found = {name: [[float(v) for v in row] for row in layer[name]] for name in ("position", "weight")}
    if [len(row) for row in found["position"]] != [len(row) for row in found["weight"]]:
        raise ValueError("delays: position and weight must have one shape")
    if not all(math.isfinite(v) for rows in found.values() for row in rows for v in row):
        raise ValueError("delays must be finite")
    return found


def _number(value: object) -> float:
    return float("nan") if value is None else float(value)  # type: ignore[arg-type]
