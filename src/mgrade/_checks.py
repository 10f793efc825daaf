"""Checks of single values, and the fields of options as plain values."""

from __future__ import annotations

import dataclasses
from typing import Any

LARGEST_FLOAT = 3.4028234663852886e38
"""The largest number that float32 holds."""


def is_number(value: Any) -> bool:
    """Whether `value` is a number that is finite in float32."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST_FLOAT


def check_whole(name: str, value: Any, most: int | None = None, least: int = 1) -> None:
    """Refuses a value that is not a whole number from `least` to `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if most is not None and value > most:
        raise ValueError(f"{name} must be at most {most}, got {value}")


def plain(options: Any) -> dict[str, Any]:
    """The fields of a dataclass as JSON and TOML hold them: tuples become lists."""
    fields = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
