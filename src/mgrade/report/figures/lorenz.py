"""Lorenz: the attractor, the hidden states of models, and training (the paper's Fig. 2 and its appendix)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from mgrade.report.chart import Axis, Chart, polyline
from mgrade.report.figure import WIDTH, Figure, Key, Panel, text
from mgrade.report.figures.series import Known, curves_chart, keys, last_values
from mgrade.report.markup import Markup, join, tag
from mgrade.report.palette import colour, model_colour
from mgrade.report.runs import Run, reading
from mgrade.report.scale import drawable
from mgrade.report.wording import model_name, percent, tick
from mgrade.tasks.lorenz import NEIGHBOURS

# View angles in radians, about the vertical and downwards; hidden states show the plane of their first two components.
TRUE_VIEW, HIDDEN_VIEW = (-0.9, 0.3), (0.25, 1.1)
SIZE, ZOOM = 310, 0.92
# Components with less of the variance than this are drawn to scale, hence flat; the others fill their axes.
NOTHING = 0.001
# Length and place of the small axes.
TRIAD, CORNER = 0.2, 54
PARTS = ("PC 1", "PC 2", "PC 3")
Points = list[list[float]]
# One trajectory cut where its first coordinate changes sign: (lobe, points).
Stroke = tuple[int, Points]


def attractors(known: Known, variant: str = "") -> Figure | None:
    """The true attractor and the hidden states of both models, as drawings that turn in three dimensions."""
    chosen = _chosen(known, variant)
    if not chosen:
        return None
    first = chosen[0]
    panels = [_orbit("The attractor, with noise", _strokes(first, "trajectories"), colour("ink"), "xyz", TRUE_VIEW)]
    told = []
    for run in chosen:
        variance = _variance(run)
        share = f"{percent(sum(variance))} of the variance"
        title = f"{model_name(run.name)}, hidden states"
        found = _strokes(run, "principal_components")
        panels.append(_orbit(title, found, model_colour(run.name), PARTS, HIDDEN_VIEW, f" ({share})"))
        overlap = percent(run.metrics.get("neighbour_overlap", math.nan))
        shares = " + ".join(percent(v) for v in variance)
        told.append(f"{model_name(run.name)} keeps {overlap} of neighbours, its three components {shares}")
    caption = (
        f"{len(first.examined['trajectories'])} test trajectories, and the hidden states of models that see the first "
        "coordinate alone, on their first three principal components. Colour: the side of the attractor where x is "
        f"positive. Seed {first.seed}: {'; '.join(told)}."
    )
    sides = [Key("x above 0, the attractor", colour("ink")), Key("x below 0", colour("faint"))]
    sides += [Key(f"x above 0, {model_name(run.name)}", model_colour(run.name)) for run in chosen]
    name = f"lorenz-attractor{f'-{variant}' if variant else ''}"
    hint = "Drag to turn, or focus and use the arrow keys."
    return Figure(name, "An attractor, rebuilt from one coordinate", caption, panels, sides, hint=hint)


def components(known: Known) -> Figure | None:
    """The three components of both models, two at a time."""
    panels = []
    told = []
    for run in _chosen(known, ""):
        variance = _variance(run)
        found = _strokes(run, "principal_components")
        panels += [_pair(run, found, variance, a, b) for a, b in ((0, 1), (0, 2), (1, 2))]
        told.append(f"{model_name(run.name)}: {', '.join(percent(v) for v in variance)}")
    if not panels:
        return None
    caption = (
        f"The same hidden states. Share of the variance: {'; '.join(told)}. Components fill their axes, except those "
        "with almost no variance, which are drawn to scale."
    )
    return Figure("lorenz-components", "Hidden states, two components at a time", caption, panels)


def learning(known: Known) -> Figure | None:
    """MASE over epochs, observed and unobserved, and the overlap of neighbours."""
    names = [f"lorenz/{model}{variant}" for variant in ("", "@ajar") for model in ("mgrade", "mingru")]
    names = [name for name in names if known.get(name)]
    if not names:
        return None
    panels, told = [], []
    for which in ("observed", "unobserved"):
        curve = f"validation_mase_{which}"
        chart = curves_chart(f"MASE, {which}", known, names, curve, _mase_axis, "epoch", _epoch)
        chart.rule(1, "nothing changes")
        ends = last_values(known, names, curve)
        panels.append(chart.panel(f"Validation MASE of {which} coordinates over epochs; at the end: {ends}."))
        told.append(f"{which}: {ends}")
    overlap = "validation_neighbour_overlap"
    chart = curves_chart("Neighbour overlap", known, names, overlap, _overlap_axis, "epoch", _epoch)
    ends = last_values(known, names, overlap)
    panels.append(chart.panel(f"Validation share of nearest neighbours kept over epochs; at the end: {ends}."))
    caption = (
        f"On validation, mean ± standard error over seeds. MASE at the end, {'; '.join(told)}. Below 1 is better than "
        f"predicting that nothing changes. Neighbour overlap at the end: {ends}."
    )
    return Figure("lorenz-learning", "Learning to predict the next step", caption, panels, keys(names, known))


def _chosen(known: Known, variant: str) -> list[Run]:
    """The first seed of both models, if it was examined."""
    names = [f"lorenz/{model}{f'@{variant}' if variant else ''}" for model in ("mgrade", "mingru")]
    return [known[name][0] for name in names if known.get(name) and "principal_components" in known[name][0].examined]


def _strokes(run: Run, what: str) -> list[Stroke]:
    """Trajectories, cut where the true x changes sign."""
    with reading(run.path):
        true, seen = run.examined["trajectories"], run.examined[what]
        points: list[Points] = [[[float(v) for v in point] for point in one] for one in seen]
        signs = [[point[0] > 0 for point in one] for one in true]
        if any(len(point) != 3 or not all(map(drawable, point)) for one in points for point in one):
            raise ValueError(f"examined.{what} must hold points of three finite numbers")
        if not points or not all(points):
            raise ValueError(f"examined.{what} must hold trajectories of a point or more")
        return [stroke for one, of in zip(points, signs, strict=True) for stroke in _cut(one, of)]


def _cube(strokes: Sequence[Stroke]) -> list[Stroke]:
    """Strokes scaled to a cube from -1000 to 1000, all directions alike."""
    columns = _columns(strokes)
    middle = [(min(column) + max(column)) / 2 for column in columns]
    reach = max((max(column) - min(column)) / 2 for column in columns) or 1.0
    return [
        (lobe, [[round(1000 * (v - m) / reach) for v, m in zip(point, middle, strict=True)] for point in points])
        for lobe, points in strokes
    ]


def _columns(strokes: Sequence[Stroke]) -> list[tuple[float, ...]]:
    return list(zip(*(point for _, points in strokes for point in points), strict=True))


def _cut(points: Points, signs: Sequence[bool]) -> Iterator[Stroke]:
    """Splits a trajectory by sign; each piece ends with the first point of the next, so that there are no gaps."""
    start = 0
    for index in range(1, len(points) + 1):
        if index == len(points) or signs[index] != signs[start]:
            yield int(signs[start]), points[start : index + 1]
            start = index


def project(point: Sequence[float], view: tuple[float, float]) -> tuple[float, float]:
    """Projects a point of the cube as seen from `view`; the page's script does the same."""
    turn, tilt = view
    x, y, z = (v / 1000 for v in point)
    across, depth = x * math.cos(turn) - y * math.sin(turn), x * math.sin(turn) + y * math.cos(turn)
    up = z * math.cos(tilt) - depth * math.sin(tilt)
    half = SIZE / 2
    return WIDTH / 2 + ZOOM * half * across, 24 + half - ZOOM * half * up


def _orbit(
    title: str, found: Sequence[Stroke], fill: str, axes: Sequence[str], view: tuple[float, float], more: str = ""
) -> Panel:
    strokes = _cube(found)
    marks = [text(0, 15, title, size=14, weight=600)]
    for lobe, stroke in ((0, colour("faint")), (1, fill)):
        paths = [polyline(project(point, view) for point in points) for side, points in strokes if side == lobe]
        style = {"stroke": stroke, "stroke_width": 1.1, "stroke_linejoin": "round", "stroke_opacity": 0.85}
        marks.append(tag("path", d="".join(paths) or "M0 0", fill="none", data_lobe=lobe, **style))
    marks += _triad(axes, view)
    orbit: dict[str, Any] = {
        "view": view,
        "width": WIDTH,
        "size": SIZE,
        "zoom": ZOOM,
        "triad": TRIAD,
        "strokes": [[lobe, [v for point in points for v in point]] for lobe, points in strokes],
    }
    alt = f"{title}{more}: trajectories in three dimensions, {', '.join(axes)}."
    return Panel(title, alt, join(*marks), WIDTH, SIZE + 40, orbit=orbit)


def _triad(axes: Sequence[str], view: tuple[float, float]) -> list[Markup]:
    """Three short axes in the corner, which turn with the drawing."""
    marks = []
    zero, foot = project((0, 0, 0), view), SIZE - 8
    for index, name in enumerate(axes):
        x, y = project([1000 if i == index else 0 for i in range(3)], view)
        dx, dy = TRIAD * (x - zero[0]), TRIAD * (y - zero[1])
        line = tag("line", x1=CORNER, y1=foot, x2=CORNER + dx, y2=foot + dy, stroke=colour("soft"))
        at = text(CORNER + 1.5 * dx, foot + 1.5 * dy + 4, name, anchor="middle", size=12, fill="soft")
        marks.append(tag("g", line, at, data_axis=index))
    return marks


def _pair(run: Run, strokes: Sequence[Stroke], variance: Sequence[float], a: int, b: int) -> Panel:
    columns = _columns(strokes)
    labels = [f"PC {i + 1}, {percent(variance[i])} of the variance" for i in (a, b)]
    ranges = [columns[i] if variance[i] >= NOTHING else columns[0] for i in (a, b)]
    x, y = (Axis(label, values, ticks=()) for label, values in zip(labels, ranges, strict=True))
    chart = Chart(f"{model_name(run.name)}: PC {a + 1} and PC {b + 1}", x, y, left=8)
    for lobe, stroke in ((0, colour("faint")), (1, model_colour(run.name))):
        paths = (
            polyline((chart.x(point[a]), chart.y(point[b])) for point in points)
            for side, points in strokes
            if side == lobe
        )
        style = {"stroke": stroke, "stroke_width": 0.9, "stroke_linecap": "round"}
        chart.add(tag("path", d="".join(paths) or "M0 0", fill="none", **style))
    return chart.panel(f"{chart.title}: {labels[0]} across, {labels[1]} upwards.")


def _variance(run: Run) -> list[float]:
    with reading(run.path):
        found = [float(v) for v in run.examined["explained_variance"]]
        if len(found) != 3:
            raise ValueError(f"examined.explained_variance must have 3 entries, got {len(found)}")
        return found


def _overlap_axis(heights: list[float]) -> Axis:
    return Axis(f"share of {NEIGHBOURS} nearest neighbours kept", heights, ends=(0.0, None), write=tick)


def _mase_axis(heights: list[float]) -> Axis:
    return Axis("mean absolute scaled error", [*heights, 1.0], log=True)


def _epoch(run: Run, step: float) -> float:
    epochs, last = run.recipe["train"].get("epochs"), run.curves["step"][-1]
    return step * epochs / last if epochs and last else step
