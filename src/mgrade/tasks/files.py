"""How sets lie in files: arrays by name, rows of unequal length one after the other, and rows padded to one length."""

from __future__ import annotations

import itertools
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def arrays(path: Path, *names: str) -> list[Array]:
    """Arrays of an npz file by name."""
    try:
        with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
            missing = [name for name in names if name not in file]
            if not missing:
                return [file[name] for name in names]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    raise ValueError(f"{path} has no array {missing[0]!r}")


def check_table(path: Path, split: str, data: Array, offsets: Array, labels: Array, classes: int) -> None:
    """Refuses rows that do not fit their data, and labels that are no class."""
    fits = offsets.ndim == 1 and len(offsets) == len(labels) + 1 > 1
    if not (fits and offsets[0] == 0 and offsets[-1] == len(data) and (np.diff(offsets) >= 0).all()):
        raise ValueError(f"{path}: {split} offsets do not divide {len(data)} symbols into {len(labels)} rows")
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(f"{path}: {split} row {row}: label must be from 0 to {classes - 1}, got {labels[row]}")


def padded(rows: Iterable[Array], count: int, longest: int, end: int, kind: Any) -> tuple[Array, Array]:
    """`count` rows of ids, each with `end` after it, as (count, longest) with padding on the right; and lengths.

    What does not fit is cut off, so that `end` does.
    """
    values, lengths = np.zeros((count, longest), kind), np.zeros(count, np.int64)
    for index, row in enumerate(rows):
        size = min(len(row), longest - 1)
        values[index, :size] = row[:size]
        values[index, size] = end
        lengths[index] = size + 1
    return values, lengths


def spans(offsets: Array) -> Iterable[tuple[int, int]]:
    """Where each row begins and ends."""
    return itertools.pairwise(offsets.tolist())
