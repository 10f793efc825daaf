"""Labelled recordings from a CSV file with one sample per line, and their split for training and testing.

One column holds labels, another tells recordings apart; the rest are the sensor's channels.
"""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np
import numpy.typing as npt

from mgrade.deploy.samples import WRITE_POINTS, as_number, has_decimal_comma, separator_of, told_separator
from mgrade.estimator.series import LARGEST

# Limits of a message: columns to name, and characters of a name or a field to show.
_SHOWN, _LONGEST = 12, 40


class Recordings(NamedTuple):
    """Labelled series, as `StreamClassifier.fit(series, labels)` takes them."""

    series: list[npt.NDArray[np.float64]]
    """Each (channels, time)."""
    labels: npt.NDArray[np.str_]
    """The label of each."""
    names: npt.NDArray[np.str_]
    """The name of each recording; pieces share that of their recording."""
    channels: tuple[str, ...]
    """Names of the columns."""

    @property
    def lengths(self) -> list[int]:
        """Samples of each."""
        return [one.shape[1] for one in self.series]

    def chosen(self, wanted: npt.NDArray[np.bool_]) -> Recordings:
        """Those for which `wanted` is true."""
        series = [one for one, want in zip(self.series, wanted, strict=True) if want]
        return Recordings(series, self.labels[wanted], self.names[wanted], self.channels)

    def cut(self, window: int) -> Recordings:
        """Pieces of `window` samples; drops the rest at the end of a recording."""
        if window < 1:
            raise ValueError(f"window must be at least 1, got {window}")
        for label in map(str, np.unique(self.labels)):
            longest = max(self.chosen(self.labels == label).lengths)
            if window > longest:
                raise ValueError(f"window must be at most {longest}, the longest recording of {label!r}, got {window}")
        counts = [length // window for length in self.lengths]
        pieces = [
            one[:, begin * window : (begin + 1) * window]
            for one, count in zip(self.series, counts, strict=True)
            for begin in range(count)
        ]
        return Recordings(pieces, np.repeat(self.labels, counts), np.repeat(self.names, counts), self.channels)


def read_csv(
    path: str | Path,
    *,
    label: str = "label",
    sequence: str | None = None,
    channels: Sequence[str] | None = None,
    window: int | None = None,
) -> Recordings:
    """Reads a CSV file whose first line names its columns, separated by commas, semicolons or tabs.

    label: the column of labels. sequence: the column that tells recordings apart; by default, a new recording begins
    where the label changes. Lines of several recordings may be interleaved, as a logger of many sensors writes them:
    lines with the same name form one recording, in the order of the file.
    channels: the columns to learn from; by default, all others.
    window: cuts recordings into pieces of this many samples; drops the rest at the end of a recording.
    """
    if isinstance(channels, str):
        raise ValueError(f"channels must be a list of names, got {channels!r}")
    labels: dict[str, str] = {}
    samples: dict[str, list[list[float]]] = {}
    with _opened(Path(path)) as file:
        lines = _lines(path, file, [label, *([] if sequence is None else [sequence]), *(channels or ())])
        _, header = next(lines, ("", []))
        columns = _columns(path, header, label, sequence, channels)
        for where, name, tag, sample in _samples(path, lines, header, label, sequence, columns):
            if labels.setdefault(name, tag) != tag:
                raise ValueError(
                    f"{path}: {where}: recording {name!r} must have one {label}, got {labels[name]!r} and {tag!r}"
                )
            samples.setdefault(name, []).append(sample)
    if not samples:
        raise ValueError(f"{path}: has no samples")
    series = [np.array(rows).T for rows in samples.values()]
    found = Recordings(series, np.array([labels[name] for name in samples]), np.array(list(samples)), columns)
    return found if window is None else found.cut(window)


def split(recordings: Recordings, share: float, seed: int = 0) -> tuple[Recordings, Recordings]:
    """Splits into training and test: `share` of every label's recordings, at least one, and only whole ones."""
    if not 0 < share < 1:
        raise ValueError(f"share must be between 0 and 1, got {share}")
    source = np.random.default_rng(seed)
    held: set[str] = set()
    for label in map(str, np.unique(recordings.labels)):
        names = np.unique(recordings.names[recordings.labels == label])
        if len(names) < 2:
            raise ValueError(
                f"label {label!r} must have at least 2 recordings, one for training and one for testing, got 1"
            )
        count = min(len(names) - 1, max(1, round(share * len(names))))
        held.update(source.permutation(names)[:count])
    apart = np.isin(recordings.names, list(held))
    return recordings.chosen(~apart), recordings.chosen(apart)


def _opened(path: Path) -> TextIO:
    try:
        return open(path, encoding="utf-8-sig", newline="")
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None


def _lines(path: str | Path, file: TextIO, names: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Every non-empty line, as its place in the file and its stripped fields; a quoted field may span several lines.

    names: the expected columns.
    """
    above, number = 0, 1
    try:
        first, separator = file.readline(), ""
        while first and (not first.strip() or (not separator and (separator := told_separator(first)))):
            first, above = file.readline(), above + 1
        reader = csv.reader(itertools.chain([first], file), delimiter=separator or separator_of(first, names))
        number += above
        for fields in reader:
            last = above + reader.line_num
            if any("\0" in field for field in fields):
                raise csv.Error("line contains NUL")
            if len(fields) > 1 or any(map(str.strip, fields)):
                where = f"line {number}" if last == number else f"lines {number} to {last} (joined by a quote)"
                yield where, [field.strip() for field in fields]
            number = last + 1
    except csv.Error as error:
        raise ValueError(f"{path}: line {number} is not CSV: {error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: must be text in UTF-8: save it again as 'CSV UTF-8'") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None


def _columns(
    path: str | Path, header: list[str], label: str, sequence: str | None, channels: Sequence[str] | None
) -> tuple[str, ...]:
    """The channels, after checking the names in the first line."""
    if not header:
        raise ValueError(f"{path}: is empty")
    named = [label, *([] if sequence is None else [sequence])]
    found = tuple(name for name in header if name not in named) if channels is None else tuple(channels)
    for name, times in Counter((*named, *found)).items():
        if name not in header:
            raise ValueError(f"{path}: has no column {name!r}; its first line names {_named(header) or 'none'}")
        if header.count(name) > 1:
            raise ValueError(f"{path}: column {name!r} must be named once, got {header.count(name)}")
        if times > 1:
            raise ValueError(
                f"column {name!r} must be the label, the sequence or a channel, once; got it {times} times"
            )
    if "" in found:
        raise ValueError(f"{path}: column {header.index('') + 1} has no name: name it, or the channels (--channels)")
    if not found:
        raise ValueError(f"{path}: has no columns besides {' and '.join(map(repr, named))}")
    return found


def _named(header: list[str]) -> str:
    """Names of columns, shortened to one line: the file may be something else altogether."""
    shown = [name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…" for name in header[:_SHOWN]]
    return ", ".join(shown) + (f", … ({len(header)} in all)" if len(header) > _SHOWN else "")


def _samples(
    path: str | Path,
    lines: Iterator[tuple[str, list[str]]],
    header: list[str],
    label: str,
    sequence: str | None,
    columns: tuple[str, ...],
) -> Iterator[tuple[str, str, str, list[float]]]:
    """Place, recording, label and values of every line."""
    before, count = "", 0
    for where, fields in lines:
        if len(fields) != len(header):
            raise ValueError(f"{path}: {where} must have {len(header)} columns, got {len(fields)}")
        line = dict(zip(header, fields, strict=True))
        for name in (label, sequence):
            if name is not None and not line[name]:
                raise ValueError(f"{path}: {where}, column {name!r} must not be empty")
        tag = line[label]
        count += tag != before
        before = tag
        values = [_number(f"{path}: {where}", name, line[name], sequence is None) for name in columns]
        yield where, str(count) if sequence is None else line[sequence], tag, values


def _number(where: str, column: str, text: str, unnamed: bool) -> float:
    value = as_number(text)
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    if value is None or not math.isfinite(value):
        raise ValueError(f"{where}, column {column!r} must be a number, got {shown!r}{_advice(text, unnamed)}")
    if abs(value) > LARGEST:
        raise ValueError(f"{where}, column {column!r} must be within {LARGEST:.2g} of 0, got {shown!r}")
    return value


def _advice(text: str, unnamed: bool) -> str:
    """What to do about a field that is not a number, if there is anything to say; `unnamed`: without --sequence."""
    if has_decimal_comma(text):
        return WRITE_POINTS
    amiss = re.fullmatch(
        r"[+-]?(nan|inf|infinity|[\d.,_]+(e[+-]?\d+)?)", text, re.IGNORECASE
    )  # a number, but not a usable one
    if amiss or not text:
        return ": correct it, or cut the recording there"
    if unnamed:
        return ": name the column that tells recordings apart (--sequence), or the channels (--channels)"
    return ": correct it, or leave the column out by naming the others (--channels)"
