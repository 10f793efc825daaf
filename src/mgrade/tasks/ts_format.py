"""The .ts format of the UEA and UCR archives of time series, as far as numeric classification problems need it.

    # a comment
    @problemName JapaneseVowels
    @timeStamps false
    @dimensions 12
    @equalLength false
    @classLabel true 1 2 3
    @data
    1.86,1.89,1.93:-0.20,-0.19,-0.23:...:1

Each row is a series: values separated by commas, channels by colons, and the class at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

Series = npt.NDArray[np.float32]
LARGEST = 1e30  # results of standardisation still fit float32


def read_ts(path: Path, channels: int, names: Sequence[str]) -> tuple[list[Series], npt.NDArray[np.int64]]:
    """The series (time, channels) of a file, possibly of unequal lengths, and their classes as indices into `names`.

    Messages count the lines of the file, from 1. Missing values and time stamps are refused.
    """
    header: dict[str, list[str]] = {}
    series, labels = [], []
    try:
        # invalid bytes are replaced, which is harmless in comments and refused anywhere else
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    for number, line in enumerate(text.split("\n"), 1):
        line, where = line.strip(), f"{path} row {number}"
        if not line or line.startswith("#"):
            continue
        if "@data" in header:
            values, name = _series(line, channels, where)
            _check_length(values, header, where)
            if name not in names:
                raise ValueError(f"{where}: class must be one of {', '.join(names)}, got {name!r}")
            series.append(values)
            labels.append(names.index(name))
        elif line.startswith("@"):
            key, *words = line.split()
            header[key.lower()] = words
            if key.lower() == "@data":
                _check_header(header, channels, names, path)
        else:
            raise ValueError(f"{where}: before @data a row must begin with # or @, got {line[:40]!r}")
    if not series:
        raise ValueError(f"{path} has " + ("no rows after @data" if "@data" in header else "no row @data"))
    return series, np.array(labels)


def _check_header(header: dict[str, list[str]], channels: int, names: Sequence[str], path: Path) -> None:
    """Refuses a file of another kind or another problem."""
    for key, name in (("@timestamps", "@timeStamps"), ("@missing", "@missing")):
        if [word.lower() for word in header.get(key, ["false"])] != ["false"]:
            raise ValueError(f"{path}: {name} must be false, got {' '.join(header[key])!r}")
    if header.get("@dimensions", [str(channels)]) != [str(channels)]:
        raise ValueError(f"{path}: @dimensions must be {channels}, got {' '.join(header['@dimensions'])!r}")
    labelled, *classes = header.get("@classlabel", ["false"]) or ["false"]
    if labelled.lower() != "true" or set(classes) != set(names):
        given = " ".join((labelled, *classes))
        raise ValueError(f"{path}: @classLabel must be true and the classes {' '.join(names)}, got {given!r}")
    if _equal(header) and not (
        len(size := header.get("@serieslength", [])) == 1 and size[0].isdecimal() and len(size[0]) < 10
    ):
        raise ValueError(f"{path}: @seriesLength must be a whole number with @equalLength true, got {' '.join(size)!r}")


def _series(line: str, channels: int, where: str) -> tuple[Series, str]:
    """The values (time, channels) of a row, and the name of its class."""
    *parts, name = line.split(":")
    if len(parts) != channels:
        raise ValueError(f"{where}: expected {channels} channels and a class after colons, got {len(parts)} channels")
    rows: list[list[float]] = []
    for channel, part in enumerate(parts, 1):
        rows.append([_number(word, f"{where}, channel {channel}") for word in part.split(",")])
        if len(rows[-1]) != len(rows[0]):
            raise ValueError(
                f"{where}: channel {channel} must have {len(rows[0])} values like channel 1, got {len(rows[-1])}"
            )
    return np.ascontiguousarray(np.array(rows, np.float32).T), name.strip()


def _number(word: str, where: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = np.nan
    if not abs(value) <= LARGEST:
        raise ValueError(f"{where}: values must be finite numbers of at most {LARGEST:g}, got {word.strip()!r}")
    return value


def _check_length(values: Series, header: dict[str, list[str]], where: str) -> None:
    if _equal(header) and len(values) != (size := int(header["@serieslength"][0])):
        raise ValueError(f"{where}: a series must have @seriesLength = {size} steps, got {len(values)}")


def _equal(header: dict[str, list[str]]) -> bool:
    return [word.lower() for word in header.get("@equallength", [])] == ["true"]
