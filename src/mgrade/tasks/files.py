"""Data sets in files: named arrays, concatenated rows of unequal length, and rows padded to one length."""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Kinds of arrays, and NumPy's codes of their types.
_WHOLE = np.typecodes["AllInteger"]
_KINDS = {"numbers": _WHOLE + np.typecodes["Float"], "whole numbers": _WHOLE, "16-bit samples": "h", "bytes": "B"}

# Archive members above this many bytes are refused if compressed to less than a hundredth. Images of Path-X, which are
# mostly black, compress to a fifth.
_HARMLESS, _MOST_PACKED = 2**26, 100
_LONGEST = 160  # characters of another library's error message


def arrays(path: Path, *names: str) -> list[Array]:
    """Reads arrays of an npz file by name."""
    try:
        with open(path, "rb") as opened:
            if not zipfile.is_zipfile(opened):
                raise ValueError("it is not an npz archive, or incomplete")
            _check_members(opened)
            opened.seek(0)
            file = np.load(opened, allow_pickle=False)
            missing = [name for name in names if name not in file]
            if not missing:
                return [_array(file, name) for name in names]
    except Exception as error:  # a damaged archive may raise almost anything
        raise ValueError(f"{path} cannot be read: {_line(error) or 'it ends early'}") from None
    raise ValueError(f"{path} has no array {missing[0]!r}")


def _check_members(opened: BinaryIO) -> None:
    """Refuses duplicate members, and compressed members that would fill the memory."""
    names = set[str]()
    with zipfile.ZipFile(opened) as archive:
        for member in archive.infolist():
            if member.filename in names:
                raise ValueError(f"it holds {member.filename!r} twice")
            names.add(member.filename)
            if member.file_size > max(_HARMLESS, _MOST_PACKED * member.compress_size):
                packed, size = member.compress_size, member.file_size
                raise ValueError(f"{member.filename!r} would unpack to {size} bytes from {packed}")


def _array(file: np.lib.npyio.NpzFile, name: str) -> Array:
    found = file[name]
    if not isinstance(found, np.ndarray):  # NumPy returns the bytes of anything else
        raise ValueError(f"{name!r} is not an array")
    return found


def _line(error: Exception) -> str:
    """An error's message as one readable line: some repeat a file's content, which may be long."""
    line = " ".join(str(error).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"


def contents(path: Path) -> bytes:
    """A file's bytes."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None


def check_axis(where: str, array: Array, kind: str) -> None:
    """Refuses an array that is empty, of another kind, or without exactly one axis."""
    if array.ndim != 1 or not array.size or array.dtype.char not in _KINDS[kind]:
        given = f"{array.dtype} {array.shape}"
        raise ValueError(f"{where} must be {kind} on one axis, 1 or more, got {given}")


def check_labels(where: str, labels: Array, classes: int, name: str = "label") -> None:
    """Refuses labels that are not classes: whole numbers from 0, of any type."""
    check_axis(f"{where} {name}s", labels, "numbers")
    wrong = np.flatnonzero(~np.isin(labels, np.arange(classes)))
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(f"{where} row {row}: {name} must be from 0 to {classes - 1}, got {labels[row]}")


def check_names(where: str, names: Array, wanted: Sequence[str]) -> None:
    """Refuses other names or another order."""
    if names.tolist() != list(wanted):
        raise ValueError(f"{where} must be {' '.join(wanted)}, got {' '.join(map(str, names.ravel()))}")


def check_rows(where: str, data: Array, offsets: Array, count: int) -> None:
    """Refuses offsets that do not divide the data into `count` non-empty rows."""
    check_axis(f"{where} offsets", offsets, "whole numbers")
    begins, ends = offsets[:-1], offsets[1:]
    if not (len(ends) == count and offsets[0] == 0 and offsets[-1] == len(data) and (begins <= ends).all()):
        raise ValueError(f"{where} offsets do not divide {len(data)} symbols into {count} rows")
    empty = np.flatnonzero(begins == ends)
    if len(empty):
        raise ValueError(f"{where} row {empty[0]} is empty")


def check_table(path: Path, split: str, data: Array, offsets: Array, labels: Array, classes: int) -> None:
    """Refuses offsets that do not divide the data into non-empty rows, and labels that are not classes."""
    check_labels(f"{path}: {split}", labels, classes)
    check_rows(f"{path}: {split}", data, offsets, len(labels))


def padded(rows: Iterable[Array], count: int, longest: int, end: int, kind: Any) -> tuple[Array, Array]:
    """`count` rows of ids, each followed by `end` and right-padded to (count, longest); and their lengths.

    Long rows are cut so that `end` fits.
    """
    values, lengths = np.zeros((count, longest), kind), np.zeros(count, np.int64)
    for index, row in enumerate(rows):
        size = min(len(row), longest - 1)
        values[index, :size] = row[:size]
        values[index, size] = end
        lengths[index] = size + 1
    return values, lengths


def spans(offsets: Array) -> Iterable[tuple[int, int]]:
    """The begin and the end of each row."""
    return itertools.pairwise(offsets.tolist())
