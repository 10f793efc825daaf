"""Spiking Heidelberg Digits: spoken digits, English and German, as spikes of 700 artificial nerve fibres.

    DATA/shd/shd_train.h5[.gz], DATA/shd/shd_test.h5[.gz]

The files are HDF5 and need the package h5py. There is no official validation set: a share of the training set is held
out. Two speakers are only in the test set.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from mgrade._checks import is_number
from mgrade.tasks.files import check_labels
from mgrade.tasks.folder import fetching
from mgrade.tasks.labelled import HeldOut, Sequences
from mgrade.tasks.task import whole
from mgrade.tasks.unpack import read_gzip

FIBRES = 700
CLASSES = 20
_MOST_BYTES = 2**32  # of an unpacked file
_DATASETS = ("spikes/times", "spikes/units", "labels")


@dataclass(frozen=True, kw_only=True)
class HeidelbergDigits(HeldOut):
    """Which of 20 digits was said: counts of spikes by time bin and group of fibres."""

    bin_ms: float = 5.0
    """Width of a time bin, in milliseconds."""
    group: int = 5
    """Neighbouring fibres summed into a channel."""
    max_steps: int = 280
    """Bins of a recording, right-padded; later spikes are dropped. The longest recording is under 1.4 s."""

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(group=self.group, max_steps=self.max_steps)
        if FIBRES % self.group:
            raise ValueError(f"group must divide {FIBRES}, got {self.group}")
        if not is_number(self.bin_ms) or not self.bin_ms > 0:
            raise ValueError(f"bin_ms must be a number above 0, got {self.bin_ms!r}")

    @property
    def classes(self) -> int:
        """Ten digits in two languages."""
        return CLASSES

    @property
    def channels(self) -> int:
        """Groups of fibres."""
        return FIBRES // self.group

    def model_fields(self) -> dict[str, Any]:
        """Channels in, classes out, summed over time."""
        return {"inputs": self.channels, "outputs": self.classes, "tokens": False, "readout": "sum"}

    def read(self, split: str, folder: Path) -> Sequences:
        """Spike counts (count, max_steps, channels) as bytes, and lengths up to the last spike."""
        path, times, units, labels = _spikes(folder / "shd" / f"shd_{split}.h5")
        check_labels(f"{path}:", labels, CLASSES)
        counts = np.zeros((len(labels), self.max_steps, self.channels), np.uint8)
        lengths = np.zeros(len(labels), np.int64)
        for index, (time, unit) in enumerate(zip(times, units, strict=True)):
            _check(f"{path}: recording {index}", time, unit)
            counts[index], lengths[index] = self.count(time, unit)
        return Sequences(counts, labels, lengths)

    def prepare(self, values: Tensor) -> Tensor:
        """Spike counts as float32."""
        return values.float()

    def count(self, times: npt.NDArray[Any], units: npt.NDArray[Any]) -> tuple[npt.NDArray[np.uint8], int]:
        """Spike counts (max_steps, channels) of a recording, at most 255 each, and its length in steps.

        times: seconds; units: fibres. The length includes the last spike, and is at least 1.
        """
        # times may be 16-bit floats, too coarse for the division
        step = np.floor(times.astype(np.float64) * 1000 / self.bin_ms)
        inside = step < self.max_steps
        step = step[inside].astype(np.int64)
        place = step * self.channels + units[inside].astype(np.int64) // self.group
        counts = np.bincount(place, minlength=self.max_steps * self.channels).reshape(self.max_steps, self.channels)
        length = int(step.max()) + 1 if len(step) else 1
        return np.minimum(counts, 255).astype(np.uint8), length


def _spikes(path: Path) -> tuple[Path, Sequence[Any], Sequence[Any], npt.NDArray[Any]]:
    """The file that exists, gzipped or not; times and units of every recording in it; and labels."""
    packed = path.with_name(path.name + ".gz")
    if not path.is_file() and not packed.is_file():
        raise ValueError(f"{path}[.gz] is missing; {fetching('shd')}")
    given = path if path.is_file() else packed
    try:
        h5py = importlib.import_module("h5py")
    except ImportError:
        raise ValueError(f"{path} is HDF5, which needs the package h5py; `pip install h5py` gets it") from None
    try:
        source = path if path.is_file() else io.BytesIO(read_gzip(packed, _MOST_BYTES))
        with h5py.File(source, "r") as file:
            found = [file.get(name) for name in _DATASETS]
            wrong = [name for name, data in zip(_DATASETS, found, strict=True) if getattr(data, "ndim", 0) != 1]
            if wrong:
                raise ValueError(f"{given} lacks a dataset of the Heidelberg digits: {wrong[0]}, with one axis")
            counts = [len(data) for data in found]
            if min(counts) != max(counts):
                raise ValueError(
                    f"{given}: {counts[0]} times, {counts[1]} units, {counts[2]} labels: all must be equal"
                )
            times, units, labels = (data[:] for data in found)
            return given, times, units, labels
    except (OSError, RuntimeError, MemoryError, TypeError) as error:
        raise ValueError(f"{given} cannot be read as HDF5: {error}") from None


def _check(where: str, times: Any, units: Any) -> None:
    """Refuses a recording unless it has finite times and a fibre for each."""
    if np.ndim(times) != 1 or np.shape(times) != np.shape(units):
        given = f"{np.shape(times)} and {np.shape(units)}"
        raise ValueError(f"{where} must be a row of times and a row of as many units, got shapes {given}")
    for name, values in (("times", times), ("units", units)):
        if values.dtype.kind not in "iuf":
            raise ValueError(f"{where}: {name} must be numbers, got {values.dtype}")
    for name, values, limit, fits in (
        ("times", times, "finite, from 0 on", np.isfinite(times) & (times >= 0)),
        ("units", units, f"from 0 to {FIBRES - 1}", np.isin(units, np.arange(FIBRES))),
    ):
        if not fits.all():
            raise ValueError(f"{where}: {name} must be {limit}, got {values[~fits][0]}")
