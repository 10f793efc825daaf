"""Accuracy against memory on the long-range tasks, with limits of chips (the paper's Fig. 1C and its counterpart)."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mgrade.footprint import CHIPS, Chip, published
from mgrade.footprint.published import printed_bytes
from mgrade.report.chart import RIGHT, Axis, Chart
from mgrade.report.figure import Figure, Key, Panel, text
from mgrade.report.figures.series import Known
from mgrade.report.labels import label_points
from mgrade.report.markup import join, tag
from mgrade.report.palette import colour
from mgrade.report.paper import ARENA, OWN_LRU, arena_accuracy, arena_models
from mgrade.report.wording import listed, percent, size, task_name, tick

STEP, TOP = 16, 54


class Entry(NamedTuple):
    """A model on the long-range tasks: accuracy and bytes by task."""

    name: str
    accuracy: list[float]
    memory: list[int]
    ours: bool

    @property
    def mean(self) -> float:
        """Accuracy, averaged over tasks."""
        return statistics.fmean(self.accuracy)

    @property
    def fill(self) -> str:
        """The colour of the model."""
        return colour(next((key for key in ("mgrade", "lru") if self.name.lower().startswith(key)), "other"))


def entries(known: Known) -> list[Entry]:
    """The paper's models with accuracy and bytes for every task, and ours that have run on every task."""
    found = []
    for model in arena_models():
        rows = [row for task in ARENA for row in published(task) if row.model == model]
        accuracy = [arena_accuracy(model, task) for task in ARENA]
        if len(rows) == len(ARENA) and all(row.parameters and row.buffer for row in rows) and None not in accuracy:
            memory = [printed_bytes(row.parameters or "") + printed_bytes(row.buffer or "") for row in rows]
            found.append(Entry(model, [a for a in accuracy if a is not None], memory, ours=False))
    for model, name in (("mgrade", "mGRADE, ours"), ("lru", "LRU, ours")):
        runs = [known.get(f"{task}/{model}", ()) for task in ARENA]
        if all(runs):
            accuracy_of = [statistics.fmean(run.metrics["test_accuracy"] for run in of) for of in runs]
            found.append(Entry(name, accuracy_of, [4 * of[0].parameters + of[0].state_bytes for of in runs], ours=True))
    return found


def limits() -> list[Chip]:
    """Chips with a single memory, which limits parameters plus buffer; the largest first."""
    return sorted((chip for chip in CHIPS if chip.flash == 0), key=lambda chip: -chip.ram)


def memory(known: Known) -> Figure:
    """Average accuracy over average and over maximum memory."""
    found = entries(known)
    panels = [
        _panel("Average memory", "the average memory of the five tasks", found, statistics.fmean),
        _panel("Largest memory", "the memory of the most demanding task", found, max),
    ]
    paper = next(entry for entry in found if entry.name == "mGRADE")
    fits = [chip.name for chip in limits() if max(paper.memory) <= chip.ram]
    caption = (
        f"The paper's mGRADE reaches {percent(paper.mean)} with {size(statistics.fmean(paper.memory))} on average and "
        f"{size(max(paper.memory))} at most: room for the latter on {listed(fits)}. {_ours(found, known)}"
        " Left of a line, parameters and buffer fit into that chip's one memory. Not drawn: models for which the paper "
        "lacks a figure on some task. The paper's own LRU counts with its best validation accuracy on Pathfinder, "
        f"{percent(arena_accuracy(OWN_LRU, 'pathfinder') or 0.0)}: in the test it was at chance."
    )
    legend = [Key("mGRADE", colour("mgrade")), Key("LRU", colour("lru")), Key("published", colour("other"))]
    return Figure("memory", "Accuracy against memory on the long-range tasks", caption, panels, legend, 2)


def _ours(found: Sequence[Entry], known: Known) -> str:
    told = [f"{e.name} (a ring): {percent(e.mean)} with {size(statistics.fmean(e.memory))}." for e in found if e.ours]
    missing = [task_name(task) for task in ARENA if not known.get(f"{task}/mgrade")]
    if missing:
        told.append(f"Our mGRADE has not run on {listed(missing)}, and is drawn when it has: mgrade reproduce lra.")
    return " ".join(told)


def _panel(title: str, what: str, found: Sequence[Entry], of: Callable[[Sequence[float]], float]) -> Panel:
    chips = limits()
    reach = [float(chip.ram) for chip in chips] + [o(e.memory) for e in found for o in (statistics.fmean, max)]
    y = Axis("average accuracy", [e.mean for e in found], write=tick)
    x = Axis("parameters and buffer", reach, log=True, write=size, ticks=[1e6, 1e7, 1e8])
    chart = Chart(title, x, y, height=440, top=TOP + STEP * len(chips))
    for index, chip in enumerate(chips):
        _limit(chart, chip, TOP + STEP * index)
    points = []
    for entry in found:
        x_value, name = of(entry.memory), entry.name.replace(" (the paper's)", ", the paper's")
        tip = f"{entry.name}: {percent(entry.mean)}, {size(x_value)}"
        chart.point(x_value, entry.mean, entry.fill, tip, hollow=entry.ours)
        points.append((chart.x(x_value), chart.y(entry.mean), name))
    label_points(chart, sorted(points, key=lambda point: not point[2].startswith("mGRADE")), chart.width - RIGHT)
    told = "; ".join(f"{e.name} {percent(e.mean)} with {size(of(e.memory))}" for e in found)
    room = ", ".join(f"{chip.name} {size(chip.ram)}" for chip in chips)
    return chart.panel(f"Average accuracy over {what}, on a logarithmic scale. {told}. Limits of chips: {room}.")


def _limit(chart: Chart, chip: Chip, y: float) -> None:
    x = chart.x(chip.ram)
    name = f"{chip.name}, {size(chip.ram)}"
    fits = x - 7 * len(name) > chart.left
    line = tag("line", x1=x, x2=x, y1=y - 9, y2=chart.y.start, stroke=colour("faint"), stroke_dasharray="1 3")
    at, anchor = (x - 4, "end") if fits else (x + 4, "start")
    chart.add(join(line, text(at, y, name, anchor=anchor, size=12, fill="soft", halo=True)))
