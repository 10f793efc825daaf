"""HTML and SVG as strings that cannot be confused with text: what is not markup yet is escaped when it becomes so."""

from __future__ import annotations

import json
import math
from html import escape
from typing import Any

VOID = ("meta", "link", "path", "line", "rect", "circle")


class Markup(str):
    """Text that is markup already."""


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. `stroke_width` is written stroke-width and `class_` class; an attribute of None or False is left out.

    Children that are not `Markup` are escaped, numbers among the attributes rounded to a hundredth.
    """
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.rstrip("_").replace("_", "-")
        words.append(label if value is True else f'{label}="{escape(_text(value))}"')
    opened = " ".join(words)
    return Markup(f"<{opened}/>" if name in VOID else f"<{opened}>{join(*children)}</{name}>")


def join(*children: object) -> Markup:
    """Children one after another; those that are text are escaped, None is left out."""
    return Markup("".join(c if isinstance(c, Markup) else escape(_text(c)) for c in children if c is not None))


def number(value: float) -> str:
    """A coordinate, to a hundredth, as short as it goes; what is not finite has no place in a drawing."""
    if not math.isfinite(value):
        raise ValueError(f"a coordinate must be finite, got {value}")
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def data(value: Any, **attributes: object) -> Markup:
    """JSON for the page's script, in an element that runs nothing and that no text in it can end."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return tag("script", Markup(text), type="application/json", **attributes)


def _text(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)
