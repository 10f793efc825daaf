"""Samples from the lines of a CSV file, in the shape that a model reads."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mgrade.deploy.about import LONGEST, About
from mgrade.nn import ModelConfig

Array = npt.NDArray[Any]
# What may separate the columns of a CSV file.
SEPARATORS = ",;\t"
# Advice for a field with a decimal comma.
WRITE_POINTS = ": decimal commas are not supported, write points"


def read_samples(path: Path, config: ModelConfig, known: About | None = None) -> Array:
    """Reads a CSV file of samples as (time, inputs), or token ids (time)."""
    try:
        with open(path, encoding="utf-8") as file:
            rows = list(parse_samples(file, config.inputs, config.tokens, str(path), known))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    if not rows:
        raise ValueError(f"{path}: has no samples")
    return np.stack(rows)


def parse_samples(
    lines: Iterable[str], inputs: int, tokens: bool, where: str, known: About | None = None
) -> Iterator[Array]:
    """Yields the inputs of each step as lines arrive. A line holds one sample, or the whole frame of a step.

    Columns are separated by commas, semicolons or tabs. A first line of names selects the columns to read if it names
    the `known` channels; otherwise it is skipped, as are empty lines.
    """
    known = known or About()
    widths = (1, 1) if tokens else (inputs // known.frame, inputs)
    rows = _rows(lines, known.channels, widths, where)
    waiting: list[Array] = []
    for fields, at in rows:
        whole = known.frame == 1 or len(fields) == inputs
        waiting.append(_sample(fields, inputs if whole else inputs // known.frame, inputs, tokens, at))
        if whole or len(waiting) == known.frame:
            yield waiting[0] if len(waiting) == 1 else np.concatenate(waiting)
            waiting.clear()


def _rows(
    lines: Iterable[str], channels: tuple[str, ...], widths: tuple[int, int], where: str
) -> Iterator[tuple[list[str], str]]:
    """Yields the fields and the place of every line; `widths`: columns of a sample, and of a step."""
    separator, chosen, columns, begins = "", None, 0, True
    try:
        for number, line in enumerate(lines, 1):
            if not line.strip("\ufeff\r\n \t"):
                continue
            if begins and not separator and (separator := told_separator(line)):
                continue
            separator = separator or separator_of(line, channels)
            fields = [field.strip() for field in next(csv.reader([line.lstrip("\ufeff")], delimiter=separator))]
            names = [field[:LONGEST] for field in fields]  # cut as in `About`
            first, begins = begins, False
            if first and (_are_named(channels, names) or all(as_number(field) is None for field in fields)):
                chosen, columns = _places(names, channels, f"{where}, line {number}"), len(fields)
                if chosen is None and len(fields) not in widths:
                    raise ValueError(
                        f"{where}, line {number}: must be numbers, or names of {widths[0]} columns,"
                        f" got {','.join(fields)[:60]!r}"
                    )
            elif chosen is None:
                yield fields, f"{where}, line {number}"
            elif len(fields) != columns:
                raise ValueError(f"{where}, line {number}: must have {columns} columns, got {len(fields)}")
            else:
                yield [fields[place] for place in chosen], f"{where}, line {number}"
    except UnicodeDecodeError:
        raise ValueError(f"{where}: must be UTF-8 text") from None
    except csv.Error as error:
        raise ValueError(f"{where}, line {number}: is not CSV: {error}") from None


def _are_named(channels: tuple[str, ...], fields: list[str]) -> bool:
    """Whether a line names all channels; names may look like numbers."""
    return bool(channels) and set(channels) <= set(fields)


def told_separator(line: str) -> str:
    """The separator that a line such as `sep=;` declares, which Excel writes first; empty for any other line."""
    told = re.fullmatch(r'"?sep=(.)"?', line.strip("\ufeff\r\n "), re.IGNORECASE)
    return told[1] if told else ""


def separator_of(line: str, names: Iterable[str] = ()) -> str:
    """The separator of a CSV file, judged by its first line: the one that yields all `names`, or else the most columns.

    In a tie, a comma wins over a semicolon, and a semicolon over a tab.
    """

    def fitness(sign: str) -> tuple[bool, int]:
        try:
            fields = next(csv.reader([line], delimiter=sign), [])
        except csv.Error:  # e.g. the whole line as one field, which is too long
            return False, 0
        return set(names) <= {field.strip("\ufeff\r\n \t") for field in fields}, len(fields)

    return max(SEPARATORS, key=fitness)


def _places(names: list[str], channels: tuple[str, ...], where: str) -> list[int] | None:
    """The columns of the channels; None if the header names none of them."""
    if not set(channels) & set(names):
        return None
    for name in channels:
        if name not in names:
            raise ValueError(f"{where}: has no column {name!r}; the channels are {', '.join(channels)}")
        if names.count(name) > 1:
            raise ValueError(f"{where}: column {name!r} must be named once, got {names.count(name)}")
    return [names.index(name) for name in channels]


def _sample(fields: list[str], width: int, inputs: int, tokens: bool, where: str) -> Array:
    width = 1 if tokens else width
    values = [as_number(field) for field in fields]
    real = np.array([np.nan if value is None else value for value in values], np.float64)
    with np.errstate(over="ignore"):
        narrow = real.astype(np.float32)
    if not np.isfinite(narrow).all():
        commas = any(map(has_decimal_comma, fields))
        shown, advice = (";", WRITE_POINTS) if commas else (",", "")
        raise ValueError(f"{where}: must be finite numbers, got {shown.join(fields)[:60]!r}{advice}")
    if len(values) != width:
        raise ValueError(f"{where}: must have {width} values, got {len(values)}")
    if not tokens:
        return narrow
    if real[0] != np.floor(real[0]) or not 0 <= real[0] < inputs:
        raise ValueError(f"{where}: must be a token id from 0 to {inputs - 1}, got {fields[0]}")
    return np.array(real[0], np.int64)


def as_number(field: str) -> float | None:
    """The number in a field; None if it is not a number."""
    try:
        return None if "_" in field else float(field)
    except ValueError:
        return None


def has_decimal_comma(field: str) -> bool:
    """Whether a field is a number with a decimal comma."""
    return re.fullmatch(r"[+-]?\d+,\d+", field) is not None
