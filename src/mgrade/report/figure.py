"""Figures: panels side by side under a legend, for a page or for a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mgrade.report.markup import Markup, data, join, tag
from mgrade.report.palette import colour, literal

WIDTH, HEIGHT = 400, 290
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
DASH = "5 3"
GAP, MARGIN = 24, 20


class Spot(NamedTuple):
    """A place that shows a value when pointed at."""

    x: float
    y: float
    text: str


class Key(NamedTuple):
    """An entry of a legend."""

    name: str
    colour: str
    dash: str | None = None


@dataclass(frozen=True)
class Panel:
    """One drawing, with alternative text."""

    title: str
    alt: str
    body: Markup
    width: float = WIDTH
    height: float = HEIGHT
    spots: Sequence[Spot] = ()
    orbit: Mapping[str, Any] | None = None
    """Data with which the page's script turns the drawing."""

    def html(self) -> Markup:
        """As a part of the page, as wide as its container."""
        shape = f"0 0 {self.width:g} {self.height:g}"
        more = {"data_orbit": True} if self.orbit is not None else {"data_spots": True} if self.spots else {}
        focus = "0" if more else None
        drawing = tag("svg", self.body, viewBox=shape, role="img", aria_label=self.alt, tabindex=focus, **more)
        return tag("div", drawing, self._data(), class_="panel")

    def _data(self) -> Markup | None:
        if self.orbit is not None:
            return data(self.orbit)
        return data([(round(x, 1), round(y, 1), text) for x, y, text in self.spots]) if self.spots else None


@dataclass(frozen=True)
class Figure:
    """A figure: `name` is its anchor on the page and its file name; `caption` describes it in numbers."""

    name: str
    title: str
    caption: str
    panels: Sequence[Panel]
    keys: Sequence[Key] = ()
    columns: int = 3
    hint: str = ""
    """How to interact with it, if the page's script runs."""

    def html(self) -> Markup:
        """As a part of the page."""
        legend = tag("ul", *(_entry(key) for key in self.keys), class_="legend") if self.keys else None
        panels = tag("div", *(panel.html() for panel in self.panels), class_=f"panels of{min(3, self.columns)}")
        hint = tag("span", f" {self.hint}", class_="hint") if self.hint else None
        caption = tag("figcaption", tag("strong", self.title + "."), " ", self.caption, hint)
        return tag("figure", legend, panels, caption, id=f"figure-{self.name}")

    def drawing(self) -> str:
        """As a standalone SVG file, with literal colours."""
        columns = max(1, min(self.columns, len(self.panels)))
        wide, high = max(p.width for p in self.panels), max(p.height for p in self.panels)
        width = columns * (wide + GAP) - GAP + 2 * MARGIN
        head, top = self._head(width)
        parts = []
        for index, panel in enumerate(self.panels):
            x = MARGIN + index % columns * (wide + GAP)
            parts.append(tag("g", panel.body, transform=f"translate({x:g} {top + index // columns * (high + GAP):g})"))
        height = top + -(-len(self.panels) // columns) * (high + GAP) - GAP + MARGIN
        ground = tag("rect", width="100%", height="100%", fill=colour("paper"))
        size: dict[str, object] = {"width": f"{width:g}", "height": f"{height:g}"}
        about = join(tag("title", self.title), tag("desc", self.caption))
        space = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {width:g} {height:g}", "role": "img"}
        return literal(tag("svg", about, ground, head, *parts, **size, **space, font_family=FONTS) + "\n")

    def _head(self, width: float) -> tuple[Markup, float]:
        """Title and legend, and the y at which the panels begin."""
        parts = [text(MARGIN, 28, self.title, size=16, weight=600)]
        x, y = float(MARGIN), 52.0
        for key in self.keys:
            advance = 46 + 8 * len(key.name)
            if x > MARGIN and x + advance > width:
                x, y = float(MARGIN), y + 20
            swatch = tag("line", x1=x, x2=x + 18, y1=y - 4, y2=y - 4, **_stroke(key, 3))
            parts += [swatch, text(x + 24, y, key.name, fill="soft")]
            x += advance
        return join(*parts), y + (16 if self.keys else -8)


def text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "start",
    size: float = 13,
    fill: str = "ink",
    weight: int | None = None,
    halo: bool = False,
) -> Markup:
    """Words in a drawing; a halo separates them from lines behind."""
    at = None if anchor == "start" else anchor
    edge = {"stroke": colour("paper"), "stroke_width": 4, "paint_order": "stroke", "stroke_linejoin": "round"}
    style = {"font_size": size, "fill": colour(fill), "font_weight": weight, **(edge if halo else {})}
    return tag("text", words, x=x, y=y, text_anchor=at, **style)


def _entry(key: Key) -> Markup:
    line = tag("line", x1=0, x2=22, y1=5, y2=5, **_stroke(key, 3))
    return tag("li", tag("svg", line, viewBox="0 0 22 10", width=22, height=10, aria_hidden="true"), key.name)


def _stroke(key: Key, width: float) -> dict[str, object]:
    return {"stroke": key.colour, "stroke_width": width, "stroke_dasharray": key.dash}
