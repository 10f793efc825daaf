"""Curves over training: the mean over seeds and its standard error, as the paper draws them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from mgrade.report.chart import Axis, Chart
from mgrade.report.figure import DASH, Figure, Key
from mgrade.report.palette import model_colour
from mgrade.report.runs import Run
from mgrade.report.wording import is_share, model_name, percent, short, task_name, tick

Known = Mapping[str, Sequence[Run]]


class Series(NamedTuple):
    """A curve with its standard error; `error` is None for a single seed."""

    x: list[float]
    mean: list[float]
    error: list[float] | None


def over_seeds(runs: Sequence[Run], curve: str) -> Series | None:
    """The mean of a curve at the steps that all runs share; None if no run has it."""
    curves = [dict(zip(run.curves["step"], run.curves[curve], strict=True)) for run in runs if curve in run.curves]
    if not curves:
        return None
    steps = sorted(set.intersection(*(set(found) for found in curves)))
    values = [[found[step] for found in curves] for step in steps]
    error = [standard_error(column) for column in values] if len(curves) > 1 else None
    return Series(steps, [statistics.fmean(column) for column in values], error)


def standard_error(values: Sequence[float]) -> float:
    """The standard error of the mean; NaN if a value is not finite."""
    if not all(map(math.isfinite, values)):
        return math.nan
    return statistics.stdev(values) / math.sqrt(len(values))


def curves_chart(
    title: str,
    known: Known,
    names: Sequence[str],
    curve: str,
    y: Callable[[list[float]], Axis],
    x_label: str = "training step",
    x_of: Callable[[Run, float], float] = lambda run, step: step,
) -> Chart:
    """One curve for each recipe that has run; a variant of a recipe is dashed."""
    found = [(name, series) for name in names if (series := over_seeds(known.get(name, ()), curve)) is not None]
    first = {name: next(run for run in known[name] if curve in run.curves) for name, _ in found}
    xs = {name: [x_of(first[name], step) for step in series.x] for name, series in found}
    reach = [x for values in xs.values() for x in values]
    heights = [value for _, series in found for value in series.mean]
    chart = Chart(title, Axis(x_label, reach, ends=(0.0, max(reach, default=1.0))), y(heights))
    for name, series in found:
        chart.line(
            model_name(name),
            xs[name],
            series.mean,
            model_colour(name, pale="-1l" in name),
            lambda x, value, error: f"{_value(curve, value, error)} at {short(round(x, 1))}",
            spread=series.error,
            dash=DASH if "@" in name else None,
        )
    return chart


def last_values(known: Known, names: Sequence[str], curve: str) -> str:
    """The last values of the curves, in words."""
    ends = []
    for name in names:
        series = over_seeds(known.get(name, ()), curve)
        if series is not None and series.mean:
            ends.append(f"{model_name(name)} {_value(curve, series.mean[-1], None)}")
    return ", ".join(ends)


def keys(names: Sequence[str], known: Known) -> list[Key]:
    """A legend of the recipes that have run."""
    return [
        Key(model_name(name), model_colour(name, pale="-1l" in name), DASH if "@" in name else None)
        for name in names
        if known.get(name)
    ]


def share_axis(heights: Sequence[float], label: str = "validation accuracy") -> Axis:
    """An axis of shares, from just below the lowest to 1."""
    finite = [value for value in heights if math.isfinite(value)]
    low = math.floor(10 * min(finite, default=0.0)) / 10
    return Axis(label, finite, ends=(min(low, 0.9), 1.0), write=tick)


def training(experiment: str, known: Known) -> Figure | None:
    """Validation accuracy of an experiment over training; None if nothing has run."""
    names = [name for name in known if name.startswith(f"{experiment}/") and "@" not in name]
    names = [name for name in names if any("validation_accuracy" in run.curves for run in known[name])]
    names.sort(key=lambda name: ("/mgrade" not in name, name))
    if not names:
        return None
    title = f"{task_name(experiment)}: validation accuracy over training"
    ends = last_values(known, names, "validation_accuracy")
    chart = curves_chart(task_name(experiment), known, names, "validation_accuracy", share_axis)
    panel = chart.panel(f"{title}, at the end: {ends}.")
    caption = f"At the end: {ends}."
    return Figure(f"training-{experiment}", title, caption, [panel], keys(names, known), 1)


def _value(curve: str, value: float, error: float | None) -> str:
    more = f" ± {100 * error if is_share(curve) else error:.2g}" if error is not None and math.isfinite(error) else ""
    return percent(value) + more if is_share(curve) else f"{value:.3g}{more}"
