"""Short series of several channels: who says a vowel (Japanese Vowels), how someone moves (Basic Motions).

They are read from the archive's own files, from compact files of the same values, or from the copies inside the package
aeon, if it is installed (which is never imported):

    DATA/[PROBLEM/]PROBLEM_{TRAIN,TEST}.ts    or DATA/PROBLEM.npz    or aeon/datasets/data/PROBLEM/

with PROBLEM JapaneseVowels or BasicMotions. A compact file has {train,test}_values (all steps, channels), _offsets,
_labels, and class_names. There is no official validation set: a share of the training set is held out.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mgrade.tasks.files import arrays, check_names, check_table, spans
from mgrade.tasks.labelled import HeldOut, Sequences
from mgrade.tasks.ts_format import Series, read_ts

GET = "pip install --no-deps aeon"


@dataclass(frozen=True, kw_only=True)
class Archived(HeldOut):
    """A classification problem of the archive, with each channel standardised over all steps of the training set."""

    problem: ClassVar[str]
    title: ClassVar[str]
    channels: ClassVar[int]
    names: ClassVar[tuple[str, ...]]
    """The classes, in their order."""

    @property
    def classes(self) -> int:
        """The number of names."""
        return len(self.names)

    def model_fields(self) -> dict[str, Any]:
        """Channels in, classes out, averaged over time."""
        return {"inputs": self.channels, "outputs": self.classes, "tokens": False, "readout": "mean"}

    def facts(self) -> dict[str, Any]:
        """What an export says of inputs and outputs."""
        return {"title": self.title, "labels": self.names}

    def read(self, split: str, folder: Path) -> Sequences:
        """Standardised values (count, longest, channels), padded with zeros, and lengths."""
        shift, scale = self.standard(folder)
        series, labels = self._series(split, folder)
        lengths = np.array([len(one) for one in series])
        values = np.zeros((len(series), lengths.max(), self.channels), np.float32)
        for row, one in zip(values, series, strict=True):
            row[: len(one)] = (one - shift) / scale
        return Sequences(values, labels, lengths)

    def standard(self, folder: Path) -> tuple[Series, Series]:
        """Mean and standard deviation (channels) of all steps of the training set, including those held out.

        Inputs of a trained model must have this mean subtracted, and be divided by the deviation.
        """
        steps = np.concatenate(self._series("train", folder)[0]).astype(np.float64)
        scale = steps.std(0)
        return steps.mean(0).astype(np.float32), np.where(scale > 0, scale, 1).astype(np.float32)

    @property
    def files(self) -> tuple[str, str]:
        """The archive's own files, for training and test."""
        return f"{self.problem}_TRAIN.ts", f"{self.problem}_TEST.ts"

    def source(self, folder: Path) -> Path | None:
        """The folder of .ts files or the compact file to read; None if there is neither, not even in aeon."""
        compact, inside = folder / f"{self.problem}.npz", _inside_aeon(self.problem)
        for place in (folder, folder / self.problem):
            if any((place / file).is_file() for file in self.files):
                return place
        return compact if compact.is_file() else inside

    def _series(self, split: str, folder: Path) -> tuple[Sequence[Series], npt.NDArray[Any]]:
        """The recorded series (time, channels) of a split, and their classes."""
        source = self.source(folder)
        if source is None:
            raise ValueError(
                f"{folder} has neither {self.files[0]} nor {self.problem}.npz, and the package aeon, which has a"
                f" copy, is not installed: `{GET}` gets it, or --data names the folder of the files"
            )
        if source.is_file():
            return self._compact(split, source)
        if not (path := source / self.files[split == "test"]).is_file():
            raise ValueError(f"{path} is missing, but the other of the two files exists")
        return read_ts(path, self.channels, self.names)

    def _compact(self, split: str, path: Path) -> tuple[Sequence[Series], npt.NDArray[Any]]:
        parts = [f"{split}_{part}" for part in ("values", "offsets", "labels")]
        values, offsets, labels, names = arrays(path, *parts, "class_names")
        check_names(f"{path}: class_names", names, self.names)
        if values.dtype != np.float32 or values.shape[1:] != (self.channels,):
            given = f"{values.dtype} {values.shape}"
            raise ValueError(f"{path}: {parts[0]} must be float32 (steps, {self.channels}), got {given}")
        check_table(path, split, values, offsets, labels, self.classes)
        series = [values[begin:end] for begin, end in spans(offsets)]
        for row, one in enumerate(series):
            if not np.isfinite(one).all():
                raise ValueError(f"{path}: {split} row {row}: a series must have finite numbers")
        return series, labels


@dataclass(frozen=True, kw_only=True)
class Vowels(Archived):
    """Which of nine men says two vowels: 7 to 29 steps of 12 cepstral coefficients; 270 for training, 370 for test."""

    problem: ClassVar[str] = "JapaneseVowels"
    title: ClassVar[str] = "Japanese Vowels: nine speakers, 12 channels"
    channels: ClassVar[int] = 12
    names: ClassVar[tuple[str, ...]] = tuple("123456789")


@dataclass(frozen=True, kw_only=True)
class Motions(Archived):
    """How someone moves: 100 steps of a watch's accelerometer and gyroscope, at 10 Hz; 40 for training, 40 for test."""

    problem: ClassVar[str] = "BasicMotions"
    title: ClassVar[str] = "Basic Motions: four activities, 6 channels"
    channels: ClassVar[int] = 6
    names: ClassVar[tuple[str, ...]] = ("Badminton", "Running", "Standing", "Walking")

    def facts(self) -> dict[str, Any]:
        """What an export says of inputs and outputs."""
        return super().facts() | {"steps_per_second": 10.0}


PROBLEMS: dict[str, Archived] = {"vowels": Vowels(), "motions": Motions()}


def _inside_aeon(problem: str) -> Path | None:
    """The folder of a problem inside the package aeon, if installed; does not import it."""
    found = importlib.util.find_spec("aeon")
    for place in (found and found.submodule_search_locations) or ():
        if (folder := Path(place) / "datasets" / "data" / problem).is_dir():
            return folder
    return None
