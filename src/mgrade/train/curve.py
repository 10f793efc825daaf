"""The curve of a run: a point per evaluation, with the step, the mean loss since the last one, and the figures."""

from __future__ import annotations

from typing import Any


def checked(given: list[Any]) -> list[dict[str, Any]]:
    """The points of a curve; refused if they are anything else."""
    for point in given:
        if not (
            isinstance(point, dict) and type(point.get("step")) is int and isinstance(point.get("validation"), dict)
        ):
            raise ValueError(f"a point of the curve must have a step and validation figures, got {point!r}")
    return given


def columns(points: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """A curve as result files hold it: steps, losses, and every validation figure."""
    curves: dict[str, list[Any]] = {"step": [], "loss": []}
    for point in points:
        curves["step"].append(point["step"])
        curves["loss"].append(point["loss"])
        for name, value in point["validation"].items():
            curves.setdefault(f"validation_{name}", []).append(value)
    return curves
