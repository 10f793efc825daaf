"""The drawing layer: marks where the data is, and none where there is none."""

import math
import re
import xml.etree.ElementTree as ET

import pytest

from mgrade.report.chart import Axis, Chart, grouped, rows_chart
from mgrade.report.figure import Figure, Key
from mgrade.report.labels import LETTER, label_points
from mgrade.report.palette import COLOURS, colour, literal, model_colour

SVG = "{http://www.w3.org/2000/svg}"


def said(x, y, spread):
    return f"{y} at {x}"


def parsed(panel):
    """The panel as a file of its own, read back."""
    return ET.fromstring(Figure("f", "Title", "Caption.", [panel]).drawing())


def numbers(root):
    """Every coordinate that is drawn."""
    text = " ".join(v for e in root.iter() for k, v in e.attrib.items() if k in ("d", "x", "y", "cx", "cy", "x1", "y2"))
    assert "nan" not in text
    assert "inf" not in text
    return [float(found) for found in re.findall(r"-?\d+\.?\d*", text)]


@pytest.mark.parametrize(
    ("xs", "ys"),
    [
        ([], []),
        ([1.0], [2.0]),
        ([1.0, 2.0, 3.0], [5.0, 5.0, 5.0]),
        ([0.0, 1.0, 2.0], [1.0, math.nan, 2.0]),
        ([0.0, 1.0], [math.inf, 1.0]),
        ([1.0, 1.0], [0.0, 0.0]),
    ],
)
@pytest.mark.parametrize("log", [False, True])
def test_degenerate_data_is_drawn_or_left_out(xs, ys, log):
    chart = Chart("Chart", Axis("x", xs, log=log), Axis("y", ys, log=log))
    chart.line("line", xs, ys, colour("mgrade"), said, spread=[0.1] * len(xs))
    for x, y in zip(xs, ys, strict=True):
        chart.point(x, y, colour("tcn"), "point")
    panel = chart.panel("words")
    finite = sum(math.isfinite(y) for y in ys)
    assert len(panel.spots) == 2 * finite
    assert all(-1 <= value <= 500 for value in numbers(parsed(panel)))


def test_a_line_goes_through_its_data():
    chart = Chart("Chart", Axis("x", ends=(0.0, 10.0)), Axis("y", ends=(0.0, 1.0)))
    chart.line("line", [0, 10], [0.0, 1.0], colour("mgrade"), said)
    first, last = chart.spots
    assert (first.x, first.y) == (chart.x.start, chart.y.start)
    assert (last.x, last.y) == (chart.x.stop, chart.y.stop)
    assert last.text == "line: 1.0 at 10"
    assert f"M{first.x:.1f} {first.y:.1f}L{last.x:.1f} {last.y:.1f}" in chart.panel("words").body


def test_bars_are_as_high_as_their_values():
    y = Axis("y", ends=(0.0, 1.0))
    chart = grouped(
        "Bars", ["a", "b"], [("one", colour("tcn"), [(0.25, None), (0.5, 0.1)])], y, "x", lambda v, s: f"{v}"
    )
    low, high = re.findall(r'<rect [^>]*height="([\d.]+)"', chart.panel("words").body)
    assert float(high) == pytest.approx(2 * float(low), abs=0.02)
    assert [spot.text for spot in chart.spots] == ["one, a: 0.25", "one, b: 0.5"]


def test_rows_say_why_one_is_missing():
    panel = rows_chart("Rows", "unit", [("a", 2.0, "two", colour("tcn")), ("b", math.nan, "failed", colour("tcn"))])
    assert panel.alt == "Rows, unit: a two; b failed."
    assert panel.body.count("<rect") == 1
    assert "failed" in panel.body
    numbers(parsed(panel))
    assert rows_chart("Rows", "unit", []).height > 0


def test_names_of_points_do_not_meet():
    chart = Chart("Chart", Axis("x", ends=(0.0, 1.0)), Axis("y", ends=(0.0, 1.0)))
    points = [(200.0, 100.0, "first"), (205.0, 103.0, "second"), (210.0, 99.0, "third"), (380.0, 99.0, "at the edge")]
    label_points(chart, points, chart.width)
    names = "|".join(name for _, _, name in points)
    pattern = rf'<text x="([\d.]+)" y="([\d.]+)"(?: text-anchor="(end|middle)")?[^>]*>({names})<'
    found = re.findall(pattern, chart.panel("words").body)
    assert len(found) == 4
    boxes = []
    for x, y, anchor, name in found:
        width = LETTER * len(name)
        left = float(x) - {"end": width, "middle": width / 2, "": 0}[anchor]
        assert left + width <= chart.width
        boxes.append((left, float(y), left + width))
    for i, (a, y, b) in enumerate(boxes):
        assert all(b <= c or d <= a or abs(y - z) >= 12 for c, z, d in boxes[:i])


def test_a_drawing_of_its_own_has_all_colours_written_out():
    chart = Chart("Chart", Axis("x", [1.0]), Axis("y", [1.0]))
    chart.point(1, 1, model_colour("lorenz/mgrade@ajar"), "point")
    figure = Figure(
        "f", "A <title>", "Caption & more.", [chart.panel("words")] * 3, [Key("mGRADE", colour("mgrade"))], 2
    )
    drawing = figure.drawing()
    assert "var(" not in drawing
    assert COLOURS["mgrade"][0] in drawing
    root = ET.fromstring(drawing)
    assert [e.text for e in root if e.tag in (f"{SVG}title", f"{SVG}desc")] == ["A <title>", "Caption & more."]
    moved = [e.get("transform") for e in root if e.tag == f"{SVG}g"]
    assert len(moved) == len(set(moved)) == 3


def test_a_model_has_one_colour():
    assert model_colour("flipflop/lru-dcls") == model_colour("listops/lru") == "var(--lru)"
    assert model_colour("highfreq/mgrade-1l@0.07-early", pale=True) == "var(--mgrade-pale)"
    assert model_colour("S4") == "var(--other)"
    assert literal('<a fill="var(--mgrade)">var(--ink)') == f'<a fill="{COLOURS["mgrade"][0]}">var(--ink)'


def contrast(one, other):
    """The ratio of luminances, as the guidelines for accessible pages count it."""
    found = []
    for name in (one, other):
        parts = [int(name[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        found.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)
    return max(found) / min(found)


@pytest.mark.parametrize("theme", [0, 1])
def test_colours_stand_out_from_the_ground(theme):
    for name in ("ink", "soft", "link"):
        assert contrast(COLOURS[name][theme], COLOURS["paper"][theme]) >= 4.5, name
    for name in ("mgrade", "mingru", "lru", "tcn", "dcls", "other", "faint"):
        assert contrast(COLOURS[name][theme], COLOURS["paper"][theme]) >= 3, name
