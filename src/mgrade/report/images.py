"""Figures as files: SVG always, PNG if there are a renderer and a font."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from mgrade._files import check_own, replace
from mgrade.report.figure import FONTS, Figure

SCALE = 2
# Font families for text; the first that is installed is used.
FAMILIES = (
    "Helvetica Neue",
    "Helvetica",
    "Arial",
    "Liberation Sans",
    "Noto Sans",
    "Open Sans",
    "Roboto",
    "DejaVu Sans",
)
MARK = f'font-family="{FONTS.split(",")[0]}'.encode()
"""Identifies an SVG as ours; it is near the beginning of every one."""
_PROBE = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">{}</svg>'
_LETTERS = '<text x="2" y="15" font-size="14" font-family="sans-serif">mg</text>'

Renderer = Callable[[str], bytes]


def write_images(figures: Sequence[Figure], folder: Path) -> str | None:
    """Writes every figure to `folder`; returns what to install if PNGs could not be written."""
    folder.mkdir(parents=True, exist_ok=True)
    render, lacking = renderer()
    for figure in figures:  # a PNG does not tell its origin, but the SVG beside it does
        check_own(folder / f"{figure.name}.svg", MARK)
    for figure in figures:
        drawing = figure.drawing()
        replace(folder / f"{figure.name}.svg", drawing.encode())
        if render is not None:
            replace(folder / f"{figure.name}.png", render(drawing))
    return lacking


def renderer() -> tuple[Renderer | None, str | None]:
    """A function that turns SVG into PNG, or the reason why there is none.

    Text in a missing font would silently be left out, so this tries to draw a few letters first.
    """
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        return None, "no PNG was written, only SVG: pip install 'mgrade[report]' adds the renderer"
    blank = bytes(svg_to_bytes(svg_string=_PROBE.format("")))
    for family in FAMILIES:
        draw = partial(svg_to_bytes, sans_serif_family=family)
        if bytes(draw(svg_string=_PROBE.format(_LETTERS))) != blank:
            return partial(_png, draw), None
    return None, (
        "no PNG was written, only SVG: there is no font to draw text with; install one of "
        f"{', '.join(FAMILIES)} (Debian: fonts-dejavu-core)"
    )


def _png(draw: Callable[..., Iterable[int]], drawing: str) -> bytes:
    return bytes(draw(svg_string=drawing, zoom=SCALE))
