"""Speed: training steps and their parts compared with peers, and one streaming step in many runtimes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from mgrade.report.chart import rows_chart
from mgrade.report.figure import Figure, Key
from mgrade.report.palette import colour
from mgrade.report.wording import seconds, times

Document = Mapping[str, Any]


def gpu_steps(document: Document) -> Figure:
    """A training step on a GPU: mgrade in two precisions, and the compiled peers."""
    panels, factors, equal = [], [], []
    for entry in document["training_step"].values():
        half, tf32 = entry["bfloat16"]["contenders"], entry["tf32"]["contenders"]
        ours, wide = half["mgrade, captured"]["median"], tf32["mgrade, captured"]["median"]
        theirs = tf32["peers, compiled"]["median"]
        factors.append((theirs / ours, entry["tf32"]["configuration"]["title"]))
        equal.append(theirs / wide)
        rows = [
            ("mgrade, bfloat16", ours, seconds(ours), colour("mgrade")),
            ("mgrade, TF32", wide, seconds(wide), colour("mgrade-pale")),
            ("peers compiled, TF32", theirs, f"{seconds(theirs)}, {times(theirs / ours)}", colour("other")),
        ]
        panels.append(rows_chart(entry["tf32"]["configuration"]["title"], _shape(entry["tf32"]), rows))
    (least, where), (most, there) = min(factors), max(factors)
    caption = (
        f"Forward, backward and optimiser on one {document['hardware']['gpu']}: {times(least)} ({where}) to "
        f"{times(most)} ({there}) as fast in bfloat16 as a model assembled from the peers' pieces and compiled in "
        f"TF32; with TF32 on both sides, {times(min(equal))} to {times(max(equal))}."
    )
    return Figure("speed-training", "A training step on a GPU", caption, panels, _legend())


def gpu_parts(document: Document) -> Figure:
    """The two primitives on a GPU, compared with others that do the same."""
    panels, told = [], []
    for part, name in (("scan", "gated scan"), ("convolution", "delay convolution")):
        for entry in document[part].values():
            title = f"{entry['configuration']['title']}: {name}"
            rows, ours = _contenders(entry, "median", lambda c: "gated_scan, " not in c)
            panels.append(rows_chart(title, "forward and backward", rows))
            others = [time for other, time, _, _ in rows if not other.startswith("mgrade") and math.isfinite(time)]
            if others:
                told.append(f"{title} {times(min(others) / ours)}")
    caption = f"On one {document['hardware']['gpu']}. The time of the next best over ours: {'; '.join(told)}."
    return Figure("speed-parts", "The two primitives on a GPU", caption, panels, _legend(), 2)


def cpu(document: Document) -> Figure:
    """A training step on a CPU."""
    panels, told = [], []
    for entry in document["training_step"].values():
        rows, ours = _contenders(entry, "median")
        panels.append(rows_chart(entry["configuration"]["title"], _shape(entry), rows))
        slowest = max(c["median"] for c in entry["contenders"].values() if "median" in c)
        told.append(f"{entry['configuration']['title']} {times(slowest / ours)}")
    hardware = document["hardware"]
    caption = (
        f"On {hardware['threads']} cores of an {hardware['cpu']}, the time of the slowest over ours: {', '.join(told)}."
    )
    return Figure("speed-cpu", "A training step on a CPU", caption, panels, _legend())


def streaming(document: Document) -> Figure:
    """One streaming step of one model, exported to many runtimes."""
    entry = document["streaming_step"]
    rows, ours = _contenders(entry, "tenth")
    rows.sort(key=lambda row: row[1] if math.isfinite(row[1]) else math.inf)
    ran = [(name, c["tenth"]) for name, c in entry["contenders"].items() if "tenth" in c]
    slowest, time = max(ran, key=lambda pair: pair[1])
    model, hardware = document["model"], document["hardware"]
    panel = rows_chart("One streaming step", "logarithmic scale", rows, log=True)
    caption = (
        f"{model['parameters']:,} parameters, one thread of an {hardware['cpu']}: {seconds(ours)} as C; {slowest} "
        f"takes {seconds(time)}, {times(time / ours)} as long. 10th percentile over short samples taken in turns."
    )
    return Figure("speed-streaming", "One sample in, one output out", caption, [panel], _legend(), 1)


def _contenders(
    entry: Document, key: str, wanted: Callable[[str], bool] = lambda name: True
) -> tuple[list[tuple[str, float, str, str]], float]:
    """Rows of all contenders, with mgrade's coloured, and the time of the first of mgrade's."""
    found = {name: c for name, c in entry["contenders"].items() if wanted(name)}
    ours = next(c[key] for name, c in found.items() if name.startswith("mgrade") and key in c)
    rows = []
    for name, contender in found.items():
        time = contender.get(key, math.nan)
        written = f"{seconds(time)}, {times(time / ours)}" if key in contender else _why(contender)
        mine = name.startswith("mgrade")
        rows.append((name, time, seconds(time) if time == ours else written, colour("mgrade" if mine else "other")))
    return rows, ours


def _why(contender: Document) -> str:
    return f"unavailable: {contender['unavailable']}" if "unavailable" in contender else "failed"


def _shape(entry: Document) -> str:
    c = entry["configuration"]
    return f"batch {c['batch']}, {c['time']:,} steps, depth {c['depth']}, width {c['dim']}"


def _legend() -> list[Key]:
    return [Key("mgrade", colour("mgrade")), Key("others", colour("other"))]
