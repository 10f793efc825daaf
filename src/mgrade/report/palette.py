"""Colours: one per model everywhere, which also differ in lightness, after Okabe and Ito.

Drawings refer to them as CSS variables. A page defines these for light and dark; standalone files have literal colours.
"""

from __future__ import annotations

import re

# name: (light, dark)
COLOURS = {
    "paper": ("#ffffff", "#14171a"),
    "raised": ("#f5f6f7", "#1d2125"),
    "ink": ("#1a1d21", "#e8eaed"),
    "soft": ("#5a626b", "#a4adb7"),
    "faint": ("#8b949e", "#79838d"),
    "grid": ("#e3e6e9", "#2e343a"),
    "link": ("#00588c", "#7cc4f0"),
    "mgrade": ("#0072b2", "#4fb0ea"),
    "mgrade-pale": ("#8dc0df", "#2b6286"),
    "mingru": ("#c4500a", "#f08a4b"),
    "mingru-pale": ("#edb48f", "#8a4a20"),
    "lru": ("#a8568a", "#dd94c0"),
    "tcn": ("#00805e", "#3cc39c"),
    "dcls": ("#9a7200", "#e3b53c"),
    "other": ("#7d868f", "#8b949e"),
    "positive": ("#b2182b", "#f4817a"),
    "negative": ("#2166ac", "#74b3e8"),
}
# Only as the value of an attribute: quotation marks in text are escaped.
_VARIABLE = re.compile(rf'(?<==")var\(--({"|".join(COLOURS)})\)(?=")')


def colour(name: str) -> str:
    """The CSS variable of a colour."""
    if name not in COLOURS:
        raise KeyError(name)
    return f"var(--{name})"


def model_colour(model: str, pale: bool = False) -> str:
    """The colour of a recipe's model: `lru-dcls` has that of lru, `mgrade-2l@0.07` that of mgrade."""
    family = re.split(r"[@-]", model.rpartition("/")[2].lower())[0]
    name = family if family in ("mgrade", "mingru", "lru", "tcn", "dcls") else "other"
    return colour(f"{name}-pale" if pale and f"{name}-pale" in COLOURS else name)


def stylesheet() -> str:
    """All colours as CSS variables, for light and dark."""
    pairs = (f"--{name}: light-dark({light}, {dark});" for name, (light, dark) in COLOURS.items())
    return ":root { " + " ".join(pairs) + " }"


def literal(drawing: str) -> str:
    """Replaces the variables of a drawing by their light colours; text that looks like one is left alone."""
    return _VARIABLE.sub(lambda found: COLOURS[found[1]][0], drawing)
