"""Labelled recordings from a CSV file with one sample per line, and a part of them set aside for judging.

A column says what each sample is labelled, another which recording it is of; the rest are the sensor's channels.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np
import numpy.typing as npt


class Recordings(NamedTuple):
    """Labelled series, as `StreamClassifier.fit(series, labels)` takes them."""

    series: list[npt.NDArray[np.float64]]
    """Each (channels, time)."""
    labels: npt.NDArray[np.str_]
    """What each is an example of."""
    names: npt.NDArray[np.str_]
    """Which recording each is of, or is a piece of."""
    channels: tuple[str, ...]
    """Names of the columns they come from."""

    def chosen(self, wanted: npt.NDArray[np.bool_]) -> Recordings:
        """Those for which `wanted` is true."""
        series = [one for one, want in zip(self.series, wanted, strict=True) if want]
        return Recordings(series, self.labels[wanted], self.names[wanted], self.channels)


def read_csv(
    path: str | Path,
    *,
    label: str = "label",
    sequence: str | None = None,
    channels: Sequence[str] | None = None,
    window: int | None = None,
) -> Recordings:
    """Reads a CSV file whose first line names its columns.

    label: the column of labels. sequence: the column that tells recordings apart; without one, a new recording begins
    where the label changes. channels: the columns to learn from; without them, all others.
    window: cuts recordings into pieces of so many samples; what is left at an end is dropped.
    """
    if window is not None and window < 1:
        raise ValueError(f"window must be at least 1, got {window}")
    labels: dict[str, str] = {}
    samples: dict[str, list[list[float]]] = {}
    with _opened(Path(path)) as file:
        lines = csv.reader(file)
        header = next(lines, [])
        columns = _columns(path, header, label, sequence, channels)
        for name, tag, sample in _samples(path, lines, header, label, sequence, columns):
            if labels.setdefault(name, tag) != tag:
                raise ValueError(f"{path}: recording {name!r} must have one {label}, got {labels[name]!r} and {tag!r}")
            samples.setdefault(name, []).append(sample)
    if not samples:
        raise ValueError(f"{path}: has no samples")
    found = {name: np.array(rows).T for name, rows in samples.items()}
    pieces = [(name, piece) for name, whole in found.items() for piece in _pieces(whole, window)]
    if not pieces:
        raise ValueError(f"{path}: window must be at most the longest recording, got {window}")
    names = [name for name, _ in pieces]
    return Recordings([one for _, one in pieces], np.array([labels[n] for n in names]), np.array(names), columns)


def split(recordings: Recordings, share: float, seed: int = 0) -> tuple[Recordings, Recordings]:
    """What to train on and what to judge by: `share` of every label's recordings, at least one, whole ones only."""
    if not 0 < share < 1:
        raise ValueError(f"share must lie between 0 and 1, got {share}")
    source = np.random.default_rng(seed)
    held: set[str] = set()
    for label in map(str, np.unique(recordings.labels)):
        names = np.unique(recordings.names[recordings.labels == label])
        if len(names) < 2:
            raise ValueError(f"label {label!r} must have at least 2 recordings, one to train on and one to judge by")
        count = min(len(names) - 1, max(1, round(share * len(names))))
        held.update(source.permutation(names)[:count])
    apart = np.isin(recordings.names, list(held))
    return recordings.chosen(~apart), recordings.chosen(apart)


def _opened(path: Path) -> TextIO:
    try:
        return open(path, encoding="utf-8-sig", newline="")
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None


def _columns(
    path: str | Path, header: list[str], label: str, sequence: str | None, channels: Sequence[str] | None
) -> tuple[str, ...]:
    """The channels, after a look at the names in the first line."""
    for name in (label, *([] if sequence is None else [sequence]), *(channels or ())):
        if name not in header:
            raise ValueError(f"{path}: has no column {name!r}; its first line names {', '.join(header) or 'none'}")
    found = tuple(channels) if channels else tuple(name for name in header if name not in (label, sequence))
    if not found:
        raise ValueError(f"{path}: has no column beside {label!r}")
    return found


def _samples(
    path: str | Path,
    lines: Iterator[list[str]],
    header: list[str],
    label: str,
    sequence: str | None,
    columns: tuple[str, ...],
) -> Iterator[tuple[str, str, list[float]]]:
    """Recording, label and values of every line."""
    places = [header.index(name) for name in columns]
    tagged, before, count = header.index(label), None, 0
    for number, line in enumerate(lines, 2):
        if not line:
            continue
        if len(line) != len(header):
            raise ValueError(f"{path}: line {number} must have {len(header)} columns, got {len(line)}")
        tag = line[tagged]
        count += tag != before
        before = tag
        values = [_number(path, number, name, line[place]) for name, place in zip(columns, places, strict=True)]
        yield str(count) if sequence is None else line[header.index(sequence)], tag, values


def _number(path: str | Path, line: int, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{path}: line {line}, column {column!r} must be a number, got {text!r}")
    return value


def _pieces(whole: npt.NDArray[np.float64], window: int | None) -> list[npt.NDArray[np.float64]]:
    if window is None:
        return [whole]
    return [whole[:, begin : begin + window] for begin in range(0, whole.shape[1] - window + 1, window)]
