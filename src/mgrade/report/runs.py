"""The runs behind a report: reads and checks result files, so that errors name the broken file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mgrade._files import reason
from mgrade.report.scale import LARGEST, drawable
from mgrade.train.recipe import Recipe, load_recipe, shipped
from mgrade.train.result import difference, read_document, read_result

# Folders under results/ without runs.
OTHERS = ("bench", "deploy", "compare")


@dataclass(frozen=True)
class Run:
    """One result file."""

    path: Path
    name: str
    """The name of its recipe, such as `lorenz/mgrade@ajar`."""
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
        """The experiment that its recipe belongs to."""
        return self.name.partition("/")[0]


_MISSHAPEN = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, StopIteration, RecursionError)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns any error that a malformed file causes into one line that names the file."""
    try:
        yield
    except _MISSHAPEN as error:
        if str(error).startswith(str(path)):
            raise
        raise ValueError(f"{path}: is not a result file: {reason(error)}") from None


def read_run(path: Path) -> Run | None:
    """Reads the run of a result file; None if there is no file."""
    with reading(path):
        document = read_result(path)
        return None if document is None else _run(path, _writable(document))


def read_measurement(path: Path) -> dict[str, Any] | None:
    """Reads a file of measurements; None if there is no file. Its users check what it must contain."""
    with reading(path):
        document = read_document(path)
        return None if document is None else _writable(document)


def runs_in(folder: Path) -> list[Run]:
    """The runs of one recipe, whose files are in `folder`, by seed."""
    found = [read_run(path) for path in folder.glob("seed*.json")]
    return sorted((run for run in found if run is not None), key=lambda run: run.seed)


def all_runs(results: Path) -> list[Run]:
    """Every run under a results folder, by name and seed."""
    folders = sorted(folder for folder in results.glob("*/*") if folder.is_dir() and folder.parent.name not in OTHERS)
    return [run for folder in folders for run in runs_in(folder)]


def by_recipe(runs: Sequence[Run]) -> tuple[dict[str, list[Run]], list[Run]]:
    """Runs that match a shipped recipe and one of its seeds, by recipe; and all other runs."""
    names = set(shipped())
    recipes = {name: load_recipe(name) for name in {run.name for run in runs} & names}
    known: dict[str, list[Run]] = {}
    others = []
    for run in runs:
        recipe = recipes.get(run.name)
        if recipe and run.seed in recipe.seeds and _is_of(run, recipe):
            known.setdefault(run.name, []).append(run)
        else:
            others.append(run)
    return known, others


def _is_of(run: Run, recipe: Recipe) -> bool:
    """Whether a run is of the current recipe, on its data; if so, it must have the figures of the paper."""
    with reading(run.path):
        if "stand_in" in run.examined or difference(recipe.to_dict(), dict(run.recipe)):
            return False
        for figure in recipe.paper:
            if not figure.endswith("_spread") and figure not in run.metrics:
                raise ValueError(f"metrics.{figure} is missing")
    return True


def _run(path: Path, document: dict[str, Any]) -> Run:
    experiment, model, seed = path.parent.parent.name, path.parent.name, int(path.stem.removeprefix("seed"))
    for name, here in (("experiment", experiment), ("model", model), ("seed", seed)):
        if document.get(name, here) != here:
            raise ValueError(f"{name} must be {here!r}, as in its path, got {document[name]!r:.40}")
    if path.stem != f"seed{seed}":
        raise ValueError(f"its name must be seed{seed}.json")
    return Run(
        path=path,
        name=f"{experiment}/{model}",
        seed=seed,
        recipe=_table(document, "recipe"),
        metrics={name: measured(value) for name, value in _table(document, "metrics").items()},
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
    found = {name: [math.nan if v is None else measured(v) for v in values] for name, values in curves.items()}
    if not all(map(math.isfinite, found.get("step", ()))):
        raise ValueError(f"curves.step must be finite, and at most {LARGEST:g} in size")
    return found


def _layer(layer: dict[str, Any]) -> dict[str, list[list[float]]]:
    found = {name: [[float(v) for v in row] for row in layer[name]] for name in ("position", "weight")}
    if [len(row) for row in found["position"]] != [len(row) for row in found["weight"]]:
        raise ValueError("delays: position and weight must have the same shape")
    if not all(drawable(v) for rows in found.values() for row in rows for v in row):
        raise ValueError(f"delays must be finite, and at most {LARGEST:g} in size")
    return found


def measured(value: Any) -> float:
    """A figure of a file; NaN if it has diverged, even if it is still finite."""
    found = float(value)
    return found if drawable(found) else math.nan


def _writable(document: dict[str, Any]) -> dict[str, Any]:
    """Returns the document; refuses lone surrogates, which JSON can contain but a page cannot."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"text must be Unicode, got {error.object[error.start]!a}") from None
    return document
