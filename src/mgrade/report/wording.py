"""How figures are written: briefly, and the same everywhere."""

from __future__ import annotations

import math
from collections.abc import Iterable

NAMES = {
    "mgrade": "mGRADE",
    "mingru": "minGRU",
    "lru": "LRU",
    "lru-dcls": "LRU + DCLS",
    "dcls": "DCLS",
    "tcn": "TCN",
}
TASKS = {
    "lorenz": "Lorenz",
    "highfreq": "High-frequency patterns",
    "flipflop": "Flip-Flop",
    "selective-copying": "Selective copying",
    "listops": "ListOps",
    "text": "Text",
    "retrieval": "Retrieval",
    "image": "Image",
    "pathfinder": "Pathfinder",
    "pathx": "PathX",
    "speech35": "Speech, 35 words",
    "speech10": "Speech, 10 words",
    "shd": "Spiking Heidelberg Digits",
    "smnist": "Sequential MNIST",
    "scifar": "Sequential CIFAR-10",
    "vowels": "Japanese Vowels",
    "motions": "Basic Motions",
    "fsdd": "Spoken digits",
}
FIGURES = {
    "mase_observed": "MASE, observed",
    "mase_unobserved": "MASE, unobserved",
    "neighbour_overlap": "neighbour overlap",
    "test_accuracy": "accuracy",
}
SHARES = ("accuracy", "overlap")
SPACE = "\u00a0"
"""Non-breaking, between a figure and its unit."""


def model_name(recipe: str) -> str:
    """`lorenz/mgrade@ajar` as mGRADE @ajar, `highfreq/mingru-2l` as minGRU, 2 layers."""
    base, at, variant = recipe.rpartition("/")[2].partition("@")
    family, _, layers = base.rpartition("-")
    if layers in ("1l", "2l"):
        base = f"{NAMES.get(family, family)}, {layers[0]} layer{'s' if layers == '2l' else ''}"
    return NAMES.get(base, base) + (f" @{variant}" if at else "")


def task_name(experiment: str) -> str:
    """The display name of an experiment's task."""
    return TASKS.get(experiment, experiment)


def figure_name(figure: str) -> str:
    """A metric in words."""
    return FIGURES.get(figure, figure.removeprefix("test_").replace("_", " "))


def is_share(figure: str) -> bool:
    """Whether a metric is a share of 1, which is written in per cent."""
    return figure.endswith(SHARES)


def value(figure: str, mean: float | None, spread: float | None = None) -> str:
    """A metric with its spread: shares in per cent, others to about three digits."""
    if mean is None:
        return "—"
    if not math.isfinite(mean):
        return "not finite"
    factor, places, unit = (100, 1, f"{SPACE}%") if is_share(figure) else (1, 3 if abs(mean) < 10 else 1, "")
    more = f"{SPACE}±{SPACE}{factor * spread:.{places}f}" if spread is not None and math.isfinite(spread) else ""
    return f"{factor * mean:.{places}f}{more}{unit}"


def percent(share: float, places: int = 1) -> str:
    """A share in per cent."""
    return f"{100 * share:.{places}f}{SPACE}%" if math.isfinite(share) else "not finite"


def tick(share: float) -> str:
    """A share as a tick label, with as many decimals as it needs."""
    return f"{100 * share:.4g} %"


def size(count: float) -> str:
    """Bytes with a decimal unit: kB, MB or GB."""
    for unit, power in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= power:
            return (
                f"{count / power:.3g}{SPACE}{unit}" if count < 999.5 * power else f"{count / power:,.0f}{SPACE}{unit}"
            )
    return f"{count:.0f}{SPACE}B"


def printed(count: float) -> str:
    """Bytes as the paper prints them, where K and M are powers of 1024."""
    return f"{count / 1024**2:.2f}M" if count >= 1024**2 else f"{count / 1024:.1f}K"


def seconds(time: float) -> str:
    """A time in a suitable unit."""
    if not math.isfinite(time):
        return "not finite"
    for unit, power in (("s", 1.0), ("ms", 1e-3)):
        if time >= power:
            return f"{time / power:.3g}{SPACE}{unit}"
    return f"{time / 1e-6:.3g}{SPACE}µs"


def short(value: float) -> str:
    """A tick label: 0.25, 40, 250k."""
    for unit, power in (("M", 1e6), ("k", 1e3)):
        if abs(value) >= power and (power < 1e4 <= abs(value) or power > 1e4 or value % 1000 == 0):
            return f"{value / power:g}{unit}"
    return f"{value:g}"


def clipped(words: str, length: int = 52) -> str:
    """Words cut to the width of a panel."""
    return words if len(words) <= length else words[: length - 1].rstrip() + "…"


def times(factor: float) -> str:
    """A factor with its sign of multiplication."""
    return f"{factor:.1f}\u00d7" if factor < 10 else f"{factor:.0f}\u00d7"


def listed(words: Iterable[str]) -> str:
    """a, b and c."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
