"""Charts: two axes with lines, bands, points and bars."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mgrade.report.figure import HEIGHT, WIDTH, Panel, Spot, text
from mgrade.report.markup import Markup, join, number, tag
from mgrade.report.palette import colour
from mgrade.report.scale import Scale, linear, logarithmic
from mgrade.report.wording import clipped, short

LEFT, RIGHT, TOP, BOTTOM = 50, 14, 56, 46


@dataclass(frozen=True)
class Axis:
    """An axis: its label, the values that must fit, and how ticks are written."""

    label: str
    values: Sequence[float] = ()
    ends: tuple[float | None, float | None] = (None, None)
    log: bool = False
    write: Callable[[float], str] = short
    ticks: Sequence[float] | None = None

    def scale(self, start: float, stop: float) -> Scale:
        """The scale between two pixels."""
        return logarithmic(self.values, start, stop) if self.log else linear(self.values, start, stop, ends=self.ends)


class Chart:
    """Builds a panel: marks are added one by one, values that are not finite are skipped; `panel` finishes it."""

    def __init__(self, title: str, x: Axis, y: Axis, *, height: float = HEIGHT, left: float = LEFT, top: float = TOP):
        self.title, self.width, self.height, self.left = title, WIDTH, height, left
        self.x = x.scale(left, self.width - RIGHT)
        self.y = y.scale(height - BOTTOM, top)
        self.spots: list[Spot] = []
        self._marks: list[Markup] = [self._frame(x, y)]

    def line(
        self,
        name: str,
        xs: Sequence[float],
        ys: Sequence[float],
        stroke: str,
        write: Callable[[float, float, float | None], str],
        *,
        spread: Sequence[float] | None = None,
        dash: str | None = None,
    ) -> None:
        """A line through the finite values, with a band of ± `spread`; `write` formats the text of each spot."""
        spreads: list[float | None] = [None] * len(xs) if spread is None else list(spread)
        known = [p for p in zip(xs, ys, spreads, strict=True) if math.isfinite(p[0]) and math.isfinite(p[1])]
        if spread is not None:
            self._band([(x, y, s) for x, y, s in known if s is not None and math.isfinite(s)], stroke)
        places = [(self.x(x), self.y(y)) for x, y, _ in known]
        style = {"stroke": stroke, "stroke_width": 2, "stroke_dasharray": dash, "stroke_linejoin": "round"}
        if len(places) > 1:
            self._marks.append(tag("path", d=polyline(places), fill="none", **style))
        elif places:
            self._marks.append(tag("circle", cx=places[0][0], cy=places[0][1], r=3.5, fill=stroke))
        for (px, py), (x, y, s) in zip(places, known, strict=True):
            self.spots.append(Spot(px, py, f"{name}: {write(x, y, s)}"))

    def point(self, x: float, y: float, fill: str, tip: str, *, radius: float = 5, hollow: bool = False) -> None:
        """A dot, or a ring if `hollow`."""
        if not (math.isfinite(x) and math.isfinite(y)):
            return
        px, py = self.x(x), self.y(y)
        style = {"fill": colour("paper") if hollow else fill, "stroke": fill, "stroke_width": 2 if hollow else 0}
        self._marks.append(tag("circle", cx=px, cy=py, r=radius, **style))
        self.spots.append(Spot(px, py, tip))

    def bar(self, x: float, width: float, y: float, fill: str, tip: str, *, spread: float | None = None) -> None:
        """A bar from the lower end of the axis, with a whisker of ± `spread`; `x` is its middle in pixels."""
        if not math.isfinite(y):
            return
        foot, top = self.y(self.y.low), self.y(y)
        self._marks.append(tag("rect", x=x - width / 2, y=top, width=width, height=max(0.0, foot - top), fill=fill))
        if spread is not None and math.isfinite(spread) and spread > 0:
            low, high = self.y(y - spread), self.y(y + spread)
            self._marks.append(tag("path", d=f"M{number(x)} {number(low)}V{number(high)}", stroke=colour("ink")))
        self.spots.append(Spot(x, top, tip))

    def rule(self, y: float, label: str) -> None:
        """A horizontal line to compare with."""
        at = self.y(y)
        line = tag("line", x1=self.left, x2=self.width - RIGHT, y1=at, y2=at, stroke=colour("soft"))
        self._marks += [
            tag("g", line, stroke_dasharray="2 3"),
            text(self.width - RIGHT, at - 5, label, anchor="end", fill="soft", halo=True),
        ]

    def label(self, px: float, py: float, words: str, *, anchor: str = "start", fill: str = "ink") -> None:
        """Words at a pixel."""
        self._marks.append(text(px, py, words, anchor=anchor, fill=fill, halo=True))

    def add(self, mark: Markup) -> None:
        """Any other mark."""
        self._marks.append(mark)

    def panel(self, alt: str) -> Panel:
        """The finished panel; `alt` says in words what it shows."""
        return Panel(self.title, alt, join(*self._marks), self.width, self.height, self.spots)

    def _band(self, values: list[tuple[float, float, float]], fill: str) -> None:
        if len(values) > 1:
            above = [(self.x(x), self.y(y + s)) for x, y, s in values]
            below = [(self.x(x), self.y(y - s)) for x, y, s in reversed(values)]
            self._marks.append(tag("path", d=polyline(above + below) + "Z", fill=fill, fill_opacity=0.18))

    def _frame(self, x: Axis, y: Axis) -> Markup:
        right, foot = self.width - RIGHT, self.height - BOTTOM
        parts = [text(0, 15, self.title, size=14, weight=600), text(0, 35, y.label, fill="soft")]
        for tick in self.y.ticks() if y.ticks is None else y.ticks:
            at = self.y(tick)
            parts.append(tag("line", x1=self.left, x2=right, y1=at, y2=at, stroke=colour("grid")))
            parts.append(text(self.left - 6, at + 4.5, y.write(tick), anchor="end", fill="soft"))
        parts.append(tag("line", x1=self.left, x2=right, y1=foot, y2=foot, stroke=colour("faint")))
        for tick in self.x.ticks() if x.ticks is None else x.ticks:
            at = self.x(tick)
            parts.append(tag("line", x1=at, x2=at, y1=foot, y2=foot + 4, stroke=colour("faint")))
            words = x.write(tick)
            inside = at + 4.2 * len(words) <= self.width
            parts.append(
                text(at if inside else self.width, foot + 19, words, anchor="middle" if inside else "end", fill="soft")
            )
        parts.append(text((self.left + right) / 2, self.height - 6, x.label, anchor="middle", fill="soft"))
        return join(*parts)


def polyline(places: Iterable[tuple[float, float]]) -> str:
    """The path through these pixels, with one decimal."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def grouped(
    title: str,
    groups: Sequence[str],
    series: Sequence[tuple[str, str, Sequence[tuple[float, float | None]]]],
    y: Axis,
    x_label: str,
    write: Callable[[float, float | None], str],
) -> Chart:
    """Grouped bars: each of `series` has a name, a colour, and a value with its spread for every group."""
    places = Axis(x_label, (), ends=(0.0, float(max(1, len(groups)))), ticks=())
    chart = Chart(title, places, y)
    foot = chart.height - BOTTOM
    for g, group in enumerate(groups):
        chart.label(chart.x(g + 0.5), foot + 19, group, anchor="middle", fill="soft")
        room = 0.8 * (chart.x(1) - chart.x(0)) / max(1, len(series))
        for s, (name, fill, values) in enumerate(series):
            mean, spread = values[g]
            middle = chart.x(g + 0.1) + (s + 0.5) * room
            chart.bar(middle, 0.86 * room, mean, fill, f"{name}, {group}: {write(mean, spread)}", spread=spread)
    return chart


def rows_chart(title: str, subtitle: str, rows: Sequence[tuple[str, float, str, str]], *, log: bool = False) -> Panel:
    """Horizontal bars, each below its name: (name, value, value as text, colour).

    On a logarithmic scale, which has no zero, dots instead.
    """
    step, top = 40, 50
    values = [value for _, value, _, _ in rows]
    room = (0, WIDTH - 104)
    scale = logarithmic(values, *room) if log else linear(values, *room, ends=(0, None))
    marks = [text(0, 15, title, size=14, weight=600), text(0, 35, subtitle, fill="soft")]
    spots = []
    for index, (name, value, written, fill) in enumerate(rows):
        y = top + index * step
        marks.append(text(0, y + 13, clipped(name), fill="soft"))
        if not math.isfinite(value):
            marks.append(text(0, y + 29, clipped(written), fill="soft"))
            continue
        end = max(1.5, scale(value))
        marks += _dot(end, y + 24.5, fill) if log else [tag("rect", x=0, y=y + 19, width=end, height=11, fill=fill)]
        marks.append(text(end + (11 if log else 6), y + 29, written, halo=True))
        spots.append(Spot(end, y + 24, f"{name}: {written}"))
    told = "; ".join(f"{name} {written}" for name, _, written, _ in rows)
    return Panel(title, f"{title}, {subtitle}: {told}.", join(*marks), WIDTH, top + step * len(rows) + 4, spots)


def _dot(x: float, y: float, fill: str) -> list[Markup]:
    return [
        tag("line", x1=0, x2=WIDTH - 104, y1=y, y2=y, stroke=colour("grid")),
        tag("circle", cx=x, cy=y, r=5.5, fill=fill),
    ]
