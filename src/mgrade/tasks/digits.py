"""Spoken digits, frame by frame: the Free Spoken Digit Dataset, six speakers at 8 kHz.

The official distribution is a folder of WAV files; recordings 0 to 4 of each digit and speaker are its test set:

    DATA/fsdd/recordings/{digit}_{speaker}_{index}.wav

The same recordings are also read from one compact file:

    DATA/fsdd_8k.npz: audio (all samples, 16 bits), offsets, labels, split (2 for the test set, 0 otherwise)

There is no official validation set: a share of the training set is held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from mgrade.tasks.task import Batch

from mgrade.tasks.files import arrays, check_table, spans
from mgrade.tasks.labelled import HeldOut, Sequences
from mgrade.tasks.speech import read_wav
from mgrade.tasks.task import positive

RATE = 8000
"""Samples per second."""
TESTED = 5
"""Recordings of each digit and speaker that are the test set: those with an index below this."""
LOUD = 2048
"""The sample that becomes 1: about the standard deviation of the recordings."""

Sound = npt.NDArray[np.int16]


@dataclass(frozen=True, kw_only=True)
class SpokenDigits(HeldOut):
    """Which digit was said: plain samples, `frame` of them at a step; what does not fill a frame at the end is left out.

    A stream is fed the same way: collect `frame` samples, divide them by 2048, make one step.
    """

    frame: int = 64
    """Samples of a step: its input channels."""
    max_samples: int = 8000
    """Where a recording is cut off; 99 % are shorter than a second."""

    shifts: int = 1
    flip: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(frame=self.frame, max_samples=self.max_samples)
        if self.max_samples < self.frame:
            raise ValueError(f"max_samples must be at least frame = {self.frame}, got {self.max_samples}")

    @property
    def classes(self) -> int:
        """Ten digits."""
        return 10

    def model_fields(self) -> dict[str, Any]:
        """The samples of a frame in, digits out, averaged over time."""
        return {"inputs": self.frame, "outputs": self.classes, "tokens": False, "readout": "mean"}

    def read(self, split: str, folder: Path) -> Sequences:
        """Samples (count, frames, frame), 16 bits each, with silence behind the end; and lengths in frames."""
        here, compact = folder / "fsdd" / "recordings", folder / "fsdd_8k.npz"
        if here.is_dir():
            sounds, labels = _from_files(split, here)
        elif compact.is_file():
            sounds, labels = _from_compact(split, compact)
        else:
            raise ValueError(f"{folder} has neither fsdd/recordings nor {compact.name}; `mgrade data fetch fsdd` gets it")
        frames = np.zeros((len(sounds), self.max_samples // self.frame, self.frame), np.int16)
        lengths = np.zeros(len(sounds), np.int64)
        for index, sound in enumerate(sounds):
            lengths[index] = min(max(1, len(sound) // self.frame), frames.shape[1])
            sound = sound[: lengths[index] * self.frame]
            frames[index].flat[: len(sound)] = sound
        return Sequences(frames, labels, lengths)

    def examples(self, split: str, seed: int, device: torch.device) -> Batch:
        values, labels, lengths = super().examples(split, seed, device)
        if split != "train" or self.shifts == 1:
            return values, labels, lengths
        flat = values.flatten(1)
        out = []
        for k in range(self.shifts):
            off = k * self.frame // self.shifts
            out.append(torch.nn.functional.pad(flat[:, off:], (0, off)).view_as(values))
        v = torch.cat(out)
        if self.flip:
            v[1::2] = -v[1::2].clamp_min(-32767)
        return v, labels.repeat(self.shifts), torch.cat([lengths] + [ (lengths - 1).clamp_min(1)] * (self.shifts - 1))

    def prepare(self, values: Tensor) -> Tensor:
        """Samples (batch, frames, frame) as numbers around 0."""
        return values.float() / LOUD


def _from_files(split: str, here: Path) -> tuple[Sequence[Sound], npt.NDArray[Any]]:
    """The recordings of a split in the order of their names, and their digits."""
    raise NotImplementedError


def _from_compact(split: str, path: Path) -> tuple[Sequence[Sound], npt.NDArray[Any]]:
    audio, offsets, labels, parts = arrays(path, "audio", "offsets", "labels", "split")
    check_table(path, "all", audio, offsets, labels, 10)
    wanted = 2 if split == "test" else 0
    chosen = np.flatnonzero(parts == wanted)
    bounds = list(spans(offsets))
    return [audio[slice(*bounds[row])] for row in chosen], labels[chosen]
