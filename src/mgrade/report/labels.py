"""Places the names of points so that they do not overlap."""

from __future__ import annotations

from collections.abc import Sequence

from mgrade.report.chart import Chart

LETTER, LINE, AWAY = 7.8, 12, 9
# Places for a name, best first: right (1) or left (-1) of its point or centred on it (0), and how far down.
_PLACES = ((1, 4), (-1, 4), (1, -8), (-1, -8), (1, 16), (-1, 16), (0, -11), (0, 20), (1, -20), (-1, -20), (0, 32))
_ANCHORS = {1: "start", 0: "middle", -1: "end"}
Box = tuple[float, float, float, float]


def label_points(chart: Chart, points: Sequence[tuple[float, float, str]], right: float) -> None:
    """Labels every point (in pixels), in order, where its name overlaps least and stays inside the chart."""
    taken: list[Box] = [(x - 5, y - 5, x + 5, y + 5) for x, y, _ in points]
    for x, y, name in points:
        places = [(_box(x, y, name, side, down), side, down) for side, down in _PLACES]
        inside = [place for place in places if place[0][0] >= chart.left and place[0][2] <= right] or places
        box, side, down = min(inside, key=lambda place: sum(_meet(place[0], other) for other in taken))
        taken.append(box)
        chart.label(x + side * AWAY, y + down, name, anchor=_ANCHORS[side])


def _box(x: float, y: float, name: str, side: int, down: float) -> Box:
    width = LETTER * len(name)
    left = x + side * AWAY - {1: 0.0, 0: width / 2, -1: width}[side]
    return left, y + down - LINE + 2, left + width, y + down + 2


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
