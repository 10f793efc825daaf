"""Parts of the page other than drawings: tables, commands and provenance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mgrade.report.markup import Markup, join, tag
from mgrade.report.tables import Row
from mgrade.report.wording import SPACE, figure_name, is_share, listed, model_name, percent, value
from mgrade.train.recipe import of_experiments

LONG = 14
"""Tables with at least this many rows are folded."""
Cells = Sequence[object]
Bytes = Mapping[str, tuple[str | None, str | None]]


def table(columns: Sequence[str], rows: Sequence[Cells], *, words: int = 1, title: str = "") -> Markup:
    """A table whose first cells name their rows; the first `words` columns hold text, the others figures.

    On a narrow screen every row becomes a small list, so cells carry the names of their columns; the roles keep it a
    table for screen readers.
    """
    kinds = [None if index < words else "number" for index in range(len(columns))]
    heads = (tag("th", c, scope="col", role="columnheader", class_=k) for c, k in zip(columns, kinds, strict=True))
    head = tag("tr", *heads, role="row")
    body = [_row(columns, kinds, cells) for cells in rows]
    caption = tag("caption", title) if title else None
    parts = (caption, tag("thead", head, role="rowgroup"), tag("tbody", *body, role="rowgroup"))
    found = tag("table", *parts, role="table")
    if len(rows) < LONG:
        return found
    return tag("details", tag("summary", f"All {len(rows)} rows"), found)


def _row(columns: Sequence[str], kinds: Sequence[str | None], cells: Cells) -> Markup:
    _, *rest = zip(columns, kinds, cells, strict=True)
    figures = (tag("td", tag("span", c), role="cell", class_=kind, data_label=column) for column, kind, c in rest)
    return tag("tr", tag("th", cells[0], scope="row", role="rowheader"), *figures, role="row")


def paper_table(rows: Sequence[Row], printed: Bytes, more: Sequence[Cells] = (), title: str = "") -> Markup:
    """The paper's figures beside ours; `more` are models that only the paper has: name, figure, parameters, buffer."""
    one = len({row.figure for row in rows}) == 1
    columns = ["model", *([] if one else ["figure"]), "paper", "ours", "seeds", "parameters"]
    columns += ["paper, bytes", "ours, bytes"]
    found: list[Cells] = []
    for row in sorted(rows, key=_place):
        base = row.recipe.partition("@")[0]
        cells: list[object] = [model_name(row.recipe), *([] if one else [figure_name(row.figure)])]
        cells += [_paper(row), ours(row), f"{len(row.runs)} of {row.asked}"]
        cells += ["" if row.parameters is None else f"{row.parameters:,}", _pair(*printed.get(base, (None, None)))]
        found.append([*cells, our_bytes(row)])
    for name, paper, weights, buffer in more:
        found.append([name, *([] if one else [""]), paper, "", "", "", _pair(str(weights), str(buffer)), ""])
    return table(columns, found, words=1 if one else 2, title=title)


def command(words: str) -> Markup:
    """A command to run."""
    return tag("code", words)


def missing(rows: Iterable[Row], experiments: Sequence[str]) -> Markup | None:
    """The command that runs all missing recipes except variants; None if fewer than two are missing.

    A single one has its command in its own row.
    """
    if len({row.recipe for row in rows if len(row.runs) < row.asked} & set(of_experiments(experiments))) < 2:
        return None
    return tag(
        "p",
        "To run what is missing (all but the @variants): ",
        command(f"mgrade reproduce {' '.join(experiments)}"),
        class_="missing",
    )


def provenance(documents: Iterable[Mapping[str, Any]], what: str = "run") -> Markup | None:
    """Commits, hardware and versions behind a table, in one line; None if nothing has run."""
    found = list(documents)
    if not found:
        return None
    parts = [
        f"{len(found)} {what}{'s' if len(found) > 1 else ''}",
        "commit " + listed(_distinct(str(d.get("commit") or "unknown")[:12] for d in found)),
        "; ".join(_distinct(_machine(d.get("hardware") or {}) for d in found)),
        "; ".join(_distinct(_software(d.get("versions") or {}) for d in found)),
    ]
    return tag("p", " · ".join(part for part in parts if part), class_="provenance")


def _place(row: Row) -> tuple[bool, bool]:
    """Sorts mGRADE first and variants last."""
    return "@" in row.recipe, not row.recipe.rpartition("/")[2].startswith("mgrade")


def _paper(row: Row) -> str:
    return row.paper if isinstance(row.paper, str) else value(row.figure, row.paper, row.paper_spread)


def ours(row: Row) -> str | Markup:
    """Our figure, or the command that produces it."""
    if row.runs:
        return value(row.figure, row.mean, row.spread)
    return join(tag("em", "not run"), " ", command(f"mgrade train {row.recipe}"))


def _beside(weights: str, state: str) -> str:
    return f"{weights}{SPACE}/{SPACE}{state}"


def _pair(weights: str | None, buffer: str | None) -> str:
    return "" if weights is None and buffer is None else _beside(weights or "—", buffer or "—")


def our_bytes(row: Row) -> str:
    """Bytes of weights and of state, if something has run."""
    return "" if row.parameters is None else _beside(f"{4 * row.parameters:,}", f"{row.state_bytes:,}")


def share(figure: float | None) -> str:
    """An accuracy from the paper, or a dash."""
    return "—" if figure is None else percent(figure)


def metric(name: str, figure: float) -> str:
    """Any metric of a run."""
    return value(name, figure) if is_share(name) else f"{figure:.4g}"


def _distinct(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(word for word in words if word)) or [""]


def _machine(hardware: Mapping[str, Any]) -> str:
    if "gpu" in hardware:
        return str(hardware["gpu"])
    threads = hardware.get("threads")
    return f"{hardware.get('cpu', '')}" + (f", {threads} thread{'s' if threads != 1 else ''}" if threads else "")


def _software(versions: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {versions[name]}" for name in ("mgrade", "torch", "python") if versions.get(name))
