"""Spoken digits, several samples per step: the Free Spoken Digit Dataset, six speakers at 8 kHz.

The official distribution is a folder of WAV files; recordings 0 to 4 of each digit and speaker are its test set:

    DATA/fsdd/recordings/{digit}_{speaker}_{index}.wav

The same recordings are also read from a compact file:

    DATA/fsdd_8k.npz: audio (all samples, 16 bits), offsets, labels, split (2 for the test set, 0 for the others)

There is no official validation set: a share of the training set is held out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from mgrade.tasks.files import arrays, check_axis, check_table, spans
from mgrade.tasks.folder import fetching
from mgrade.tasks.labelled import HeldOut, Sequences
from mgrade.tasks.speech import read_wav
from mgrade.tasks.task import Batch, whole

RATE = 8000
"""Samples per second."""
TESTED = 5
"""The test set has the recordings of each digit and speaker with an index below this."""
LOUD = 2048
"""The sample value that the model reads as 1: about the standard deviation of the recordings."""

Sounds = Sequence[npt.NDArray[np.int16]]
_NAME = re.compile(r"([0-9])_([^_]+)_([0-9]+)\.wav")


@dataclass(frozen=True, kw_only=True)
class SpokenDigits(HeldOut):
    """Which digit was said: a step reads the next `frame` raw samples, one per input channel.

    Streams work the same way: a step takes `frame` 16-bit samples, divided by 2048. Samples at the end of a recording
    that do not fill a frame are dropped.
    """

    frame: int = 40
    """Samples per step."""
    max_samples: int = 8000
    """Longer recordings are cut to this: 20 of 3000 are longer than a second."""
    shifts: int = 1
    """Copies of a training recording, each starting `frame / shifts` samples later, so that frames start at different
    phases of a wave."""

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(frame=self.frame, max_samples=self.max_samples, shifts=self.shifts)
        if self.max_samples < self.frame:
            raise ValueError(f"max_samples must be at least frame = {self.frame}, got {self.max_samples}")
        if self.frame % self.shifts:
            raise ValueError(f"shifts must divide frame = {self.frame}, got {self.shifts}")

    @property
    def classes(self) -> int:
        """Ten digits."""
        return 10

    def model_fields(self) -> dict[str, Any]:
        """Samples of a frame in, digits out, averaged over time."""
        return {"inputs": self.frame, "outputs": self.classes, "tokens": False, "readout": "mean"}

    def facts(self) -> dict[str, Any]:
        """What an export says of inputs and outputs."""
        return {
            "title": "Spoken digits",
            "labels": tuple("0123456789"),
            "frame": self.frame,
            "samples_per_second": RATE,
            "gain": 32768 / LOUD,
        }

    def read(self, split: str, folder: Path) -> Sequences:
        """16-bit samples (count, frames, frame), padded with zeros; and lengths in frames."""
        here, compact = folder / "fsdd" / "recordings", folder / "fsdd_8k.npz"
        if here.is_dir():
            sounds, labels = _from_files(split, here)
        elif compact.is_file():
            sounds, labels = _from_compact(split, compact)
        else:
            raise ValueError(f"{folder} has neither fsdd/recordings nor fsdd_8k.npz; {fetching('fsdd')}")
        frames = np.zeros((len(sounds), self.max_samples // self.frame, self.frame), np.int16)
        lengths = np.zeros(len(sounds), np.int64)
        for index, sound in enumerate(sounds):
            lengths[index] = min(max(len(sound) // self.frame, 1), frames.shape[1])
            whole = sound[: lengths[index] * self.frame]
            frames[index].flat[: len(whole)] = whole
        return Sequences(frames, labels, lengths)

    def examples(self, split: str, seed: int, device: torch.device) -> Batch:
        """As in `HeldOut`, but the training set has all `shifts`; each but the first is a frame shorter."""
        values, labels, lengths = super().examples(split, seed, device)
        if split != "train":
            return values, labels, lengths
        later = [shift * self.frame // self.shifts for shift in range(self.shifts)]
        copies = [F.pad(values.flatten(1)[:, first:], (0, first)).view_as(values) for first in later]
        shorter = [lengths if first == 0 else (lengths - 1).clamp_min(1) for first in later]
        return torch.cat(copies), labels.repeat(self.shifts), torch.cat(shorter)

    def prepare(self, values: Tensor) -> Tensor:
        """Samples (batch, frames, frame) as numbers of about unit size."""
        return values.float() / LOUD


def _from_files(split: str, here: Path) -> tuple[Sounds, npt.NDArray[Any]]:
    """The recordings of a split, ordered by digit, speaker and index as in the compact file, and their digits."""
    paths = dict[tuple[int, str, int], Path]()
    for path in here.glob("*.wav"):
        name = _NAME.fullmatch(path.name)
        if name is None:
            raise ValueError(f"{path}: a recording must be named digit_speaker_index.wav, such as 7_jackson_32.wav")
        key = int(name[1]), name[2], int(name[3])
        if key in paths:
            raise ValueError(f"{path}: {paths[key].name} names the same recording")
        paths[key] = path
    chosen = [key for key in sorted(paths) if (key[2] < TESTED) == (split == "test")]
    if not chosen:
        indices = f"below {TESTED}" if split == "test" else f"of at least {TESTED}"
        raise ValueError(f"{here}: the {split} set has no recording, with an index {indices}")
    return [read_wav(paths[key], RATE) for key in chosen], np.array([digit for digit, _, _ in chosen])


def _from_compact(split: str, path: Path) -> tuple[Sounds, npt.NDArray[Any]]:
    """The recordings of a split in the order of the file, and their digits."""
    audio, offsets, labels, parts = arrays(path, "audio", "offsets", "labels", "split")
    check_axis(f"{path}: audio", audio, "16-bit samples")
    check_table(path, "all", audio, offsets, labels, 10)
    check_axis(f"{path}: split", parts, "numbers")
    if parts.shape != labels.shape or not np.isin(parts, (0, 2)).all():
        raise ValueError(f"{path}: split must be 0 or 2 for each of {len(labels)} recordings, got {np.unique(parts)}")
    chosen = (parts == 2) == (split == "test")
    if not chosen.any():
        raise ValueError(f"{path}: the {split} set has no recording, with split {2 if split == 'test' else 0}")
    sounds = [audio[begin:end] for (begin, end), taken in zip(spans(offsets), chosen, strict=True) if taken]
    return sounds, labels[chosen]
