"""Learned delays: the taps of every channel, layer by layer (the paper's appendix on learned kernels)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from mgrade.nn.initialise import positions_
from mgrade.report.chart import Axis, Chart
from mgrade.report.figure import Figure, Key, Panel, Spot
from mgrade.report.figures.series import Known
from mgrade.report.markup import tag
from mgrade.report.palette import colour
from mgrade.report.runs import Run
from mgrade.report.wording import model_name, percent, task_name
from mgrade.tasks.rows import NEAR, at_rows, at_rows_by_chance
from mgrade.train.recipe import load_recipe

# Opacity of a dot, by its weight relative to the largest of the layer.
SHADES = ((0.6, 1.0), (0.25, 0.65), (0.0, 0.3))
Layer = Mapping[str, Sequence[Sequence[float]]]


def with_delays(known: Known) -> list[Run]:
    """The first seed of every mGRADE recipe whose result has delays, the most taps first.

    A variant counts only if its recipe has no such run, or if its delays started elsewhere.
    """
    found = {name: of[0] for name, of in known.items() if "/mgrade" in name and of and _taps(of[0])}
    starts = {name: run.recipe.get("model", {}).get("position_init") for name, run in found.items()}
    runs = [run for name, run in found.items() if "@" not in name or starts[name] != starts.get(name.split("@")[0])]
    return sorted(runs, key=lambda run: (-_taps(run), run.name))


def delays(run: Run) -> Figure:
    """All delays of a run, one panel per layer."""
    panels = [_panel(layer, index, _reach(run)) for index, layer in enumerate(run.delays)]
    channels = max(len(layer["position"]) for layer in run.delays)
    taps = max(len(row) for layer in run.delays for row in layer["position"])
    middles = ", ".join(f"{_mean_delay(layer):.1f}" for layer in run.delays)
    rows = ""
    if found := at_whole_rows(run):
        shares = ", ".join(map(percent, found.layers))
        rows = f"Within {NEAR} steps of whole rows of {found.row} pixels: {shares} of them; "
        rows += f"{percent(found.start)} at the start; spread over all delays, {percent(found.chance)} would be. "
    caption = (
        f"Seed {run.seed}: {_taps(run)} taps, {taps} for each of {channels} channels a layer, over delays of 0 to "
        f"{_reach(run)} steps. Average delay, weighted by the size of the weight, by layer: {middles}. "
        f"{rows}The darker a dot, the larger its weight."
    )
    name = f"{task_name(run.experiment)}, {model_name(run.name)}"
    legend = [Key("positive weight", colour("positive")), Key("negative weight", colour("negative"))]
    slug = run.name.replace("/", "-").replace("@", "-")
    return Figure(f"delays-{slug}", f"Learned delays: {name}", caption, panels, legend)


def _panel(layer: Layer, index: int, reach: int) -> Panel:
    channels = len(layer["position"])
    x = Axis("delay, in steps", (), ends=(-0.02 * reach, 1.02 * reach))
    chart = Chart(f"Layer {index + 1}", x, Axis("channel", (), ends=(-0.5, max(1, channels) - 0.5)))
    largest = max((abs(w) for row in layer["weight"] for w in row), default=0.0) or 1.0
    dots: dict[tuple[bool, float], list[str]] = {}
    for channel, (positions, weights) in enumerate(zip(layer["position"], layer["weight"], strict=True)):
        for position, weight in zip(positions, weights, strict=True):
            shade = next(shade for least, shade in SHADES if abs(weight) >= least * largest)
            px, py = chart.x(position), chart.y(channel)
            dots.setdefault((weight > 0, shade), []).append(f"M{px:.1f} {py:.1f}h0")
            chart.spots.append(Spot(px, py, f"channel {channel}, delay {position:.1f}, weight {weight:.2g}"))
    width = max(2.5, min(6.0, 160 / max(1, channels)))
    for (positive, shade), path in sorted(dots.items(), key=lambda dot: dot[0][1]):
        stroke = colour("positive" if positive else "negative")
        style = {"stroke_width": width, "stroke_linecap": "round", "stroke_opacity": shade}
        chart.add(tag("path", d="".join(path), stroke=stroke, **style))
    return chart.panel(f"{chart.title}: delays of {channels} channels, {_mean_delay(layer):.1f} steps on average.")


def _taps(run: Run) -> int:
    return sum(len(row) for layer in run.delays for row in layer["position"])


class WholeRows(NamedTuple):
    """For images: pixels of a row, and the shares of delays that are whole rows."""

    row: int
    layers: list[float]
    """The share in each trained layer."""
    start: float
    """The share before training; for random delays, that by chance."""
    chance: float
    """The share of delays that are spread evenly from 0 to the longest."""


def at_whole_rows(run: Run) -> WholeRows | None:
    """The shares of a run's delays that lead to pixels straight above; None if it was not trained on images."""
    row = load_recipe(run.name).task.row
    if row is None:
        return None
    layers = [[position for channel in layer["position"] for position in channel] for layer in run.delays]
    chance = at_rows_by_chance(_reach(run), row)
    model = run.recipe.get("model", {})
    start = chance
    if model.get("position_init") == "even":
        start = at_rows(positions_(torch.empty(1, model["taps"]), model["max_delay"], "even"), row)
    return WholeRows(row, [at_rows(layer, row) for layer in layers], start, chance)


def _reach(run: Run) -> int:
    """The longest delay that the model could learn."""
    longest = max(position for layer in run.delays for row in layer["position"] for position in row)
    return max(1, round(longest), int(run.recipe.get("model", {}).get("max_delay", 1)) - 1)


def _mean_delay(layer: Layer) -> float:
    pairs = [
        (position, abs(weight))
        for positions, weights in zip(layer["position"], layer["weight"], strict=True)
        for position, weight in zip(positions, weights, strict=True)
    ]
    total = sum(weight for _, weight in pairs)
    return sum(position * weight for position, weight in pairs) / total if total else 0.0
