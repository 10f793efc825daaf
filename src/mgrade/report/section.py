"""Sections of the page, and the data they are made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mgrade.report.figure import Figure
from mgrade.report.figures.series import Known
from mgrade.report.html import command, provenance
from mgrade.report.markup import Markup, join, tag
from mgrade.report.runs import Run
from mgrade.report.tables import Row


class Measured(NamedTuple):
    """What has been measured: runs by recipe, and documents by the name of their file."""

    known: Known
    bench: Mapping[str, Mapping[str, Any]]
    stages: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Contents:
    """Everything that a report is made from."""

    folder: Path
    measured: Measured
    others: Sequence[Run]
    """Runs of recipes that are not shipped, or that have changed."""
    compared: Mapping[str, Any] | None

    def runs(self) -> int:
        """The number of runs."""
        return sum(map(len, self.measured.known.values())) + len(self.others)


@dataclass(frozen=True)
class Pick:
    """Alternatives by name, of which the page shows one; without its script, it shows all."""

    options: Mapping[str, Sequence[Part]]

    def html(self) -> Markup:
        """As a part of the page; a single alternative has no list to pick from."""
        if len(self.options) == 1:
            return join(*map(part_html, *self.options.values()))
        return tag(
            "div",
            *(tag("div", *map(part_html, parts), data_option=o) for o, parts in self.options.items()),
            class_="pick",
        )


Part = Figure | Markup | Pick | None


@dataclass(frozen=True)
class Section:
    """A part of the page with its own place in the table of contents."""

    name: str
    title: str
    lead: str
    parts: Sequence[Part]

    def html(self) -> Markup:
        """As a part of the page."""
        lead = tag("p", self.lead, class_="lead")
        return tag("section", tag("h2", self.title), lead, *map(part_html, self.parts), id=self.name)

    def figures(self) -> list[Figure]:
        """All figures of the section."""
        return list(_figures(self.parts))


def part_html(part: Part) -> Markup | None:
    """Any part of a section as a part of the page."""
    return part if part is None or isinstance(part, Markup) else part.html()


def _figures(parts: Iterable[Part]) -> Iterable[Figure]:
    for part in parts:
        if isinstance(part, Figure):
            yield part
        elif isinstance(part, Pick):
            for option in part.options.values():
                yield from _figures(option)


def not_run(words: str) -> Markup:
    """The command to run for a part that is missing."""
    return tag("p", tag("em", "Not run: "), command(words), class_="missing")


def runs_behind(rows: Iterable[Row]) -> Markup | None:
    """Where the figures of a table come from."""
    runs = {run.path: run for row in rows for run in row.runs}
    return provenance([run.provenance for run in runs.values()])
