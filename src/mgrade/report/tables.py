"""The rows of the paper's tables, each with the results of our runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mgrade.footprint import measure
from mgrade.report.runs import Run, by_recipe, runs_in
from mgrade.train.recipe import Recipe, load_recipe, of_experiments

HEAD = ("recipe", "figure", "paper", "ours", "seeds", "weight bytes", "buffer bytes")


@dataclass(frozen=True)
class Row:
    """One figure of one recipe: the paper's, and ours over the seeds that have run."""

    recipe: str
    figure: str
    paper: float | str | None
    paper_spread: float | None
    runs: tuple[Run, ...]
    asked: int
    """The number of seeds of the recipe."""
    weight_bytes: int
    """Bytes of the model's parameters in float32, by the paper's formula."""
    buffer_bytes: int
    """Bytes of a stream's state, by the paper's formula."""

    @property
    def ours(self) -> tuple[float, ...]:
        """The figure for every seed."""
        return tuple(run.metrics[self.figure] for run in self.runs)

    @property
    def parameters(self) -> int | None:
        """Number of parameters; None if nothing has run."""
        return self.runs[0].parameters if self.runs else None

    @property
    def state_bytes(self) -> int | None:
        """Bytes of state of one stream; None if nothing has run."""
        return self.runs[0].state_bytes if self.runs else None

    @property
    def mean(self) -> float | None:
        """The mean over seeds; None if nothing has run."""
        return statistics.fmean(self.ours) if self.ours else None

    @property
    def spread(self) -> float | None:
        """The standard deviation over seeds; None with fewer than two, or if a run diverged."""
        return statistics.stdev(self.ours) if len(self.ours) > 1 and all(map(math.isfinite, self.ours)) else None

    def to_dict(self) -> dict[str, Any]:
        """As stored in JSON."""
        return {
            "recipe": self.recipe,
            "figure": self.figure,
            "paper": self.paper,
            "paper_spread": self.paper_spread,
            "mean": self.mean,
            "spread": self.spread,
            "values": list(self.ours),
            "seeds": self.asked,
            "parameters": self.parameters,
            "state_bytes": self.state_bytes,
            "formula": {"parameter_bytes": self.weight_bytes, "buffer_bytes": self.buffer_bytes},
        }

    def cells(self) -> tuple[str, ...]:
        """The cells of a table under `HEAD`."""
        return (
            self.recipe,
            self.figure,
            self.paper if isinstance(self.paper, str) else _figure(self.paper, self.paper_spread),
            _figure(self.mean, self.spread) if self.ours else "not run",
            f"{len(self.ours)} of {self.asked}",
            f"{self.weight_bytes:,}",
            f"{self.buffer_bytes:,}",
        )


def rows(experiments: Iterable[str], results: Path) -> list[Row]:
    """All rows of the experiments, by recipe; results of changed recipes are ignored."""
    experiments = list(experiments)
    known, _ = by_recipe([run for name in of_experiments(experiments) for run in runs_in(results / name)])
    return rows_of(experiments, known)


def rows_of(experiments: Iterable[str], known: Mapping[str, Sequence[Run]]) -> list[Row]:
    """The same for runs that have already been read."""
    found = []
    for name in of_experiments(experiments):
        recipe = load_recipe(name)
        runs = tuple(known.get(name, ()))
        found += [_row(name, recipe, figure, runs) for figure in recipe.paper if not figure.endswith("_spread")]
    return found


def _row(name: str, recipe: Recipe, figure: str, runs: tuple[Run, ...]) -> Row:
    size = measure(recipe.model)
    return Row(
        recipe=name,
        figure=figure,
        paper=recipe.paper[figure],
        paper_spread=recipe.paper.get(f"{figure}_spread"),
        runs=runs,
        asked=len(recipe.seeds),
        weight_bytes=sum(size.parameters.values()) * size.weight_bytes,
        buffer_bytes=sum(size.buffer.values()) * size.buffer_bytes,
    )


def _figure(value: float | None, spread: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" + (f" ± {spread:.3f}" if spread is not None else "")
