"""High-frequency patterns and Flip-Flop: training and results (the paper's appendix figures)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from mgrade.report.chart import Axis, Chart, grouped
from mgrade.report.figure import Figure, Panel
from mgrade.report.figures.series import Known, curves_chart, keys, last_values, share_axis, standard_error
from mgrade.report.palette import model_colour
from mgrade.report.runs import Run, measured, reading
from mgrade.report.wording import model_name, percent, short, tick

FREQUENCIES = ("0.07", "0.17", "0.33", "1.0")
LAYERED = tuple(f"highfreq/{model}-{layers}" for model in ("mgrade", "mingru") for layers in ("1l", "2l"))
# A distance that the caption names besides the shortest and the longest: the longest in the paper.
SHOWN = 100
FLIPFLOP = ("flipflop/mgrade", "flipflop/lru-dcls", "flipflop/tcn")


def patterns(known: Known) -> Figure | None:
    """Validation accuracy over steps at one frequency; test accuracy over all, after training and midway."""
    names = [name for name in LAYERED if known.get(name)]
    if not names:
        return None
    chart = curves_chart("At frequency 0.33", known, names, "validation_accuracy", share_axis)
    ends = last_values(known, names, "validation_accuracy")
    panels = [chart.panel(f"Validation accuracy over training steps at frequency 0.33; at the end: {ends}.")]
    told = []
    for suffix, when in (("", "after training"), ("-early", "early"), ("-positive", "midway with positive candidates")):
        panel, words = _bars(known, suffix)
        if panel is not None:
            panels.append(panel)
            told.append(f"{when}, {words}")
    caption = (
        f"Mean ± standard error over seeds. Test accuracy from the slowest to the fastest patterns: {'; '.join(told)}."
    )
    return Figure("highfreq", "Patterns of high frequency", caption, panels, keys(names, known), 2)


def recall(known: Known) -> Figure | None:
    """Validation accuracy over steps, and recall by the distance between a write and its read."""
    names = [name for name in FLIPFLOP if known.get(name)]
    if not names:
        return None
    chart = curves_chart("Learning", known, names, "validation_accuracy", share_axis)
    ends = last_values(known, names, "validation_accuracy")
    panels = [chart.panel(f"Flip-Flop: validation accuracy over training steps; at the end: {ends}.")]
    distances = {name: found for name in names if (found := _by_distance(known[name]))}
    caption = f"Mean ± standard error over seeds. Validation accuracy at the end: {ends}."
    if distances:
        far, words = _recall_chart(distances)
        panels.append(far.panel(f"Flip-Flop: accuracy of a read by its distance from the write: {words}."))
        caption += f" Reads that are right, by the ignored pairs between write and read: {words}. Chance is one half."
    return Figure("flipflop", "Flip-Flop: learning, and recall over distance", caption, panels, keys(names, known), 2)


def _bars(known: Known, suffix: str) -> tuple[Panel | None, str]:
    series, steps = [], set[str]()
    for name in LAYERED:
        runs = [known.get(variant, ()) for variant in (_variant(name, f, suffix) for f in FREQUENCIES)]
        if any(runs):
            scores = [[run.metrics["test_accuracy"] for run in of] for of in runs]
            values = [_mean(score) for score in scores]
            series.append((model_name(name), model_colour(name, pale="-1l" in name), values))
            steps |= {str(run.recipe["train"].get("steps")) for of in runs for run in of}
    if not series:
        return None, ""
    title = f"After {' or '.join(sorted(steps))} steps{', positive candidates' if suffix == '-positive' else ''}"
    y = Axis("test accuracy", (), ends=(0.0, 1.0), write=tick)
    chart = grouped(
        title, FREQUENCIES, series, y, "frequency", lambda v, s: percent(v) + (f" ± {100 * s:.1f}" if s else "")
    )
    words = "; ".join(f"{name} {_by_frequency([v for v, _ in values])}" for name, _, values in series)
    alike = {percent(v, 0) if math.isfinite(v) else None for _, _, values in series for v, _ in values}
    if len(series) == len(LAYERED) and len(alike) == 1:
        words = f"all models {alike.pop()} at every frequency"
    return chart.panel(f"{title}, test accuracy at frequencies {', '.join(FREQUENCIES)}: {words}."), words


def _by_frequency(values: Sequence[float]) -> str:
    """Shares in the order of frequencies; if some have not run, with the frequencies of those that have."""
    found = [(f, percent(v, 0)) for f, v in zip(FREQUENCIES, values, strict=True) if math.isfinite(v)]
    return ", ".join(share if len(found) == len(FREQUENCIES) else f"{share} at {f}" for f, share in found)


def _variant(name: str, frequency: str, suffix: str) -> str:
    """The recipe without a variant is the one at 0.33, trained to the end."""
    variant = "" if (frequency, suffix) == ("0.33", "") else frequency + suffix
    return f"{name}@{variant}" if variant else name


def _by_distance(runs: Sequence[Run]) -> dict[int, list[float]]:
    """Recall by distance, over seeds."""
    found: dict[int, list[float]] = {}
    for run in runs:
        with reading(run.path):
            for distance, share in run.examined.get("recall_by_distance", {}).items():
                found.setdefault(int(distance), []).append(measured(share))
    return dict(sorted(found.items()))


def _recall_chart(distances: dict[str, dict[int, list[float]]]) -> tuple[Chart, str]:
    reach = [float(d) for found in distances.values() for d in found]
    x = Axis("ignored pairs between write and read", reach, log=True)
    heights = [statistics.fmean(shares) for found in distances.values() for shares in found.values()]
    chart = Chart("Recall over distance", x, share_axis([*heights, 0.4], "share of reads that are right"))
    told = []
    for name, found in distances.items():
        means = [_mean(shares) for shares in found.values()]
        errors = [error or 0.0 for _, error in means] if all(error is not None for _, error in means) else None
        chart.line(
            model_name(name),
            [float(d) for d in found],
            [mean for mean, _ in means],
            model_colour(name),
            lambda x, y, s: f"{percent(y)}{f' ± {100 * s:.1f}' if s else ''} over {short(x)}",
            spread=errors,
        )
        by = dict(zip(found, (mean for mean, _ in means), strict=True))
        picked = [distance for distance in by if distance in (min(by), SHOWN, max(by))]
        told.append(f"{model_name(name)} {', '.join(f'{percent(by[d], 0)} over {short(d)}' for d in picked)}")
    return chart, "; ".join(told)


def _mean(values: list[float]) -> tuple[float, float | None]:
    if not values:
        return math.nan, None
    return statistics.fmean(values), standard_error(values) if len(values) > 1 else None
