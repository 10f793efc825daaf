"""The rows of the paper's tables, each with what our result files say."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mgrade.train.recipe import Recipe, load_recipe, of_experiment
from mgrade.train.result import difference, read_result


@dataclass(frozen=True)
class Row:
    """One figure of one recipe: the paper's, and ours over the seeds that have run."""

    recipe: str
    figure: str
    paper: float | str | None
    paper_spread: float | None
    ours: tuple[float, ...]
    asked: int
    """How many seeds the recipe has."""
    parameters: int | None
    state_bytes: int | None

    @property
    def mean(self) -> float | None:
        """Ours, averaged; None where nothing has run."""
        return statistics.fmean(self.ours) if self.ours else None

    @property
    def spread(self) -> float | None:
        """The standard deviation over seeds, with two or more."""
        return statistics.stdev(self.ours) if len(self.ours) > 1 else None

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
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
        }

    def cells(self) -> tuple[str, ...]:
        """As a table shows it."""
        return (
            self.recipe,
            self.figure,
            self.paper if isinstance(self.paper, str) else _figure(self.paper, self.paper_spread),
            _figure(self.mean, self.spread) if self.ours else "not run",
            f"{len(self.ours)} of {self.asked}",
            "" if self.parameters is None else f"{self.parameters:,}",
            "" if self.state_bytes is None else f"{self.state_bytes:,}",
        )


def rows(experiments: Iterable[str], results: Path) -> list[Row]:
    """All rows of the experiments, by recipe; results of a changed recipe do not count."""
    found = []
    for experiment in experiments:
        for name in of_experiment(experiment):
            recipe = load_recipe(name)
            documents = [d for seed in recipe.seeds if (d := _result(results, recipe, seed)) is not None]
            found += [_row(name, recipe, figure, documents) for figure in _figures(recipe)]
    return found


def _figures(recipe: Recipe) -> list[str]:
    return [name for name in recipe.paper if not name.endswith("_spread")]


def _result(results: Path, recipe: Recipe, seed: int) -> dict[str, Any] | None:
    document = read_result(results / recipe.experiment / recipe.name / f"seed{seed}.json")
    if document is None or difference(recipe.to_dict(), document["recipe"]):
        return None
    return document


def _row(name: str, recipe: Recipe, figure: str, documents: list[dict[str, Any]]) -> Row:
    return Row(
        recipe=name,
        figure=figure,
        paper=recipe.paper[figure],
        paper_spread=recipe.paper.get(f"{figure}_spread"),
        ours=tuple(document["metrics"][figure] for document in documents),
        asked=len(recipe.seeds),
        parameters=documents[0]["parameters"] if documents else None,
        state_bytes=documents[0]["state_bytes"] if documents else None,
    )


def _figure(value: float | None, spread: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" + (f" ± {spread:.3f}" if spread is not None else "")
