"""Export: accuracy and bytes of a model at every stage between training and a chip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mgrade.report.chart import rows_chart
from mgrade.report.figure import Figure
from mgrade.report.palette import colour
from mgrade.report.wording import percent, size, task_name


def stages(document: Mapping[str, Any], name: str) -> Figure:
    """Accuracy, weights and state after each stage."""
    found = document["stages"]
    first, last = found[0], found[-1]
    accuracy = [(s["name"], s["figures"]["accuracy"]) for s in found]
    weights, state = (
        [(s["name"], int(s[key]), size(int(s[key])), colour("mgrade")) for s in found]
        for key in ("parameter_bytes", "state_bytes")
    )
    panels = [
        rows_chart("Accuracy", "of the test set", [(n, a, percent(a, 2), colour("mgrade")) for n, a in accuracy]),
        rows_chart("Weights", "bytes", weights),
        rows_chart("State of a stream", "bytes", state),
    ]
    lowest, share = min(accuracy, key=lambda pair: pair[1])
    caption = (
        f"From {percent(first['figures']['accuracy'], 2)} with {first['parameter_bytes']:,} bytes of weights and "
        f"{first['state_bytes']:,} of state to {percent(last['figures']['accuracy'], 2)} with "
        f"{last['parameter_bytes']:,} and {last['state_bytes']:,}. Lowest accuracy: {percent(share, 2)}, {lowest}."
    )
    title = f"From training to a chip: {task_name(name)}"
    return Figure(f"stages-{name}", title, caption, panels)
