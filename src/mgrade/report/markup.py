"""HTML and SVG as strings of their own type: text is escaped when it becomes markup."""

from __future__ import annotations

import json
import math
from html import escape
from typing import Any

VOID = ("meta", "link", "path", "line", "rect", "circle")


class Markup(str):
    """A string that is already markup."""


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. `stroke_width` becomes stroke-width and `class_` class; attributes of None or False are left out.

    Children that are not `Markup` are escaped; float attributes are rounded to two decimals.
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
    """Concatenates children; text is escaped, None is left out."""
    return Markup("".join(c if isinstance(c, Markup) else escape(_text(c)) for c in children if c is not None))


def number(value: float) -> str:
    """A coordinate with at most two decimals; refuses values that are not finite."""
    if not math.isfinite(value):
        raise ValueError(f"a coordinate must be finite, got {value}")
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def data(value: Any, **attributes: object) -> Markup:
    """JSON for the page's script, in an element that is not executed and whose text cannot close it."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return tag("script", Markup(text), type="application/json", **attributes)


def _text(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)
