"""Spoken words, sample by sample: Google Speech Commands, all 35 words or the ten commands.

The official distribution (v0.02, or v0.01 for the ten commands) is a folder of WAV files by word and two lists:

    DATA/speech_commands/WORD/*.wav, validation_list.txt, testing_list.txt

The ten commands at 8 kHz are also read from compact files, as 8-bit mu-law codes:

    DATA/speech10_train.npz, DATA/speech10_val_test.npz: codes (count, 8000), labels, split, length, words
"""

from __future__ import annotations

import math
import wave
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mgrade.tasks.files import arrays, check_axis, check_labels, check_names, contents
from mgrade.tasks.folder import fetching
from mgrade.tasks.labelled import Labelled, Sequences
from mgrade.tasks.task import SPLITS, generator

COMMANDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
_OTHERS = """backward bed bird cat dog eight five follow forward four happy house learn marvin nine one seven sheila
six three tree two visual wow zero"""
WORDS = tuple(sorted((*COMMANDS, *_OTHERS.split())))
RATE = 16000
"""Samples per second of the distribution; a clip is a second long."""
_NAME = "speech_commands"
_COMPACT = {"train": "speech10_train.npz", "validation": "speech10_val_test.npz", "test": "speech10_val_test.npz"}


@dataclass(frozen=True, kw_only=True)
class Speech(Labelled):
    """Which word was said: raw sound, one channel, padded with silence at the end to one second."""

    words: str = "35"
    """`35` (all words of v0.02) or `10` (the commands yes, no, up, down, left, right, on, off, stop, go)."""
    rate: int = 16000
    """Samples per second: 16000, or 8000 by averaging neighbours 1:2:1 and keeping every second sample."""
    exact_length_only: bool = False
    """Skip clips that are not exactly a second long."""
    parts: str = "lists"
    """`lists`: validation and test as listed by the distribution, no speaker in two sets; `random`: 70, 15 and 15 % of
    all clips at random, with shared speakers, as in papers on the ten commands (24482 / 5246 / 5247)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        words: Any = self.words
        if type(words) is int:  # in a recipe, without quotes
            object.__setattr__(self, "words", str(words))
        for name, choices in (("words", ("35", "10")), ("rate", (16000, 8000)), ("parts", ("lists", "random"))):
            if getattr(self, name) not in choices or type(getattr(self, name)) is not type(choices[0]):
                given = ", ".join(map(str, choices))
                raise ValueError(f"{name} must be one of {given}, got {getattr(self, name)!r}")
        if not isinstance(self.exact_length_only, bool):
            raise ValueError(f"exact_length_only must be true or false, got {self.exact_length_only!r}")

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The words, in the order of their classes."""
        return WORDS if self.words == "35" else COMMANDS

    @property
    def classes(self) -> int:
        """The number of words."""
        return len(self.vocabulary)

    def model_fields(self) -> dict[str, Any]:
        """One channel in, words out, averaged over time."""
        return {"inputs": 1, "outputs": self.classes, "tokens": False, "readout": "mean"}

    def facts(self) -> dict[str, Any]:
        """What an export says of inputs and outputs."""
        return {"title": "Spoken words", "labels": self.vocabulary, "samples_per_second": self.rate}

    def read(self, split: str, folder: Path) -> Sequences:
        """16-bit samples (count, rate), or 8-bit mu-law codes (count, rate) of the compact files."""
        here = folder / "speech_commands"
        if here.is_dir():
            return self._from_clips(split, here)
        if (self.words, self.rate, self.parts) == ("10", 8000, "lists"):
            if (folder / _COMPACT[split]).is_file():
                return self._from_codes(split, folder / _COMPACT[split])
            raise ValueError(f"{folder} has neither speech_commands nor {_COMPACT[split]}; {fetching(_NAME)}")
        raise ValueError(f"{here} is missing; {fetching(_NAME)}")

    def prepare(self, values: Tensor) -> Tensor:
        """Samples or codes (batch, time) to sound (batch, time, 1) from -1 to 1."""
        if values.dtype != torch.uint8:
            return (values.float() / 32768)[..., None]
        # the table is computed on the device: for 256 entries, that is simpler than keeping one per device
        table = expand(torch.arange(256, device=values.device))
        return table.index_select(0, values.flatten().int()).view(*values.shape, 1)

    def _from_clips(self, split: str, here: Path) -> Sequences:
        paths = self._listed(split, here) if self.parts == "lists" else self._drawn(split, here)
        sound = np.zeros((len(paths), self.rate), np.int16)
        labels = np.zeros(len(paths), np.uint8)
        kept = 0
        for path in paths:
            clip = read_wav(path)
            if self.exact_length_only and len(clip) != RATE:
                continue
            clip = clip[:RATE] if self.rate == RATE else halve(clip[:RATE])
            sound[kept, : len(clip)] = clip
            labels[kept] = self.vocabulary.index(path.parent.name)
            kept += 1
        return self._some(Sequences(sound[:kept], labels[:kept]), split, here)

    def _some(self, found: Sequences, split: str, path: Path) -> Sequences:
        if not len(found.labels):
            raise ValueError(f"{path}: the {split} set has no clip" + " of exactly a second" * self.exact_length_only)
        return found

    def _clips(self, here: Path) -> list[Path]:
        """All clips of the words, in a fixed order."""
        paths: list[Path] = []
        for word in self.vocabulary:
            found = sorted((here / word).glob("*.wav"))
            if not found:
                version = " (all 35 words are in v0.02 only)" * (self.words == "35")
                raise ValueError(f"{here / word} has no clips{version}; {fetching(_NAME)}")
            paths += found
        return paths

    def _listed(self, split: str, here: Path) -> list[Path]:
        """The clips of an official list, or, for training, those in neither list."""
        paths = {f"{path.parent.name}/{path.name}": path for path in self._clips(here)}
        lists = {}
        for part, name in (("validation", "validation_list.txt"), ("test", "testing_list.txt")):
            if not (here / name).is_file():
                raise ValueError(f"{here / name} is missing; {fetching(_NAME)}")
            lists[part] = self._named(here / name, paths)
        if both := sorted(set.intersection(*lists.values()) - {""}):
            raise ValueError(f"{here / 'testing_list.txt'}: {both[0]} is also in validation_list.txt")
        taken = lists.get(split, set.union(*lists.values()))
        return [path for name, path in paths.items() if (name in taken) == (split in lists)]

    def _named(self, path: Path, there: Collection[str]) -> set[str]:
        """The clips named by a list, including those of unwanted words; the wanted ones must exist."""
        other = set(WORDS).difference(self.vocabulary)
        try:
            lines = contents(path).decode().splitlines()
        except UnicodeDecodeError:
            raise ValueError(f"{path} must be lines of text") from None
        names = [line.strip() for line in lines]
        for number, name in enumerate(names, 1):
            if name and name not in there and name.split("/")[0] not in other:
                raise ValueError(f"{path}: line {number}: {path.parent / name} is missing; {fetching(_NAME)}")
        return set(names)

    def _drawn(self, split: str, here: Path) -> list[Path]:
        """A random 70, 15 or 15 % of the clips, the same for all seeds."""
        paths = self._clips(here)
        if self.exact_length_only:
            paths = [path for path in paths if len(read_wav(path)) == RATE]
        first = int(0.7 * len(paths))
        ends = (0, first, first + (len(paths) - first) // 2, len(paths))
        order = torch.randperm(len(paths), generator=generator(0, "speech parts", len(paths))).tolist()
        part = SPLITS.index(split)
        return [paths[index] for index in sorted(order[ends[part] : ends[part + 1]])]

    def _from_codes(self, split: str, path: Path) -> Sequences:
        codes, labels, parts, lengths, words = arrays(path, "codes", "labels", "split", "length", "words")
        check_names(f"{path}: words", words, COMMANDS)
        check_labels(f"{path}:", labels, len(COMMANDS))
        check_labels(f"{path}:", parts, len(SPLITS), "split")
        check_axis(f"{path}: length", lengths, "numbers")
        for name, array in (("split", parts), ("length", lengths)):
            if array.shape != labels.shape:
                raise ValueError(f"{path}: {name} must be one for each of {len(labels)} labels, got {array.shape}")
        if codes.dtype != np.uint8 or codes.shape != (len(labels), 8000):
            raise ValueError(f"{path}: codes must be bytes ({len(labels)}, 8000), got {codes.dtype} {codes.shape}")
        chosen = parts == SPLITS.index(split)
        if self.exact_length_only:
            chosen &= lengths == 8000
        return self._some(Sequences(codes[chosen], labels[chosen]), split, path)


def expand(codes: Tensor) -> Tensor:
    """Sound of mu-law codes 0..255, from -1 to 1."""
    bent = codes.float() / 255 * 2 - 1
    return bent.sign() * (torch.exp(bent.abs() * math.log(256)) - 1) / 255


def halve(clip: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
    """A clip at half the rate: every second sample after a filter (1, 2, 1) / 4.

    The filter blocks the highest old frequency and halves the amplitude at the highest new one: simple, not steep.
    """
    wide = np.pad(clip.astype(np.int32), 1)
    smooth = (wide[:-2] + 2 * wide[1:-1] + wide[2:] + 2) >> 2
    return smooth[::2].astype(np.int16)


def read_wav(path: Path, rate: int | None = RATE) -> npt.NDArray[np.int16]:
    """The samples of a WAV file with one channel of 16 bits, `rate` samples per second (None: any), and not empty.

    Any other file is refused.
    """
    try:
        with wave.open(str(path), "rb") as file:
            header = file.getparams()
            data = file.readframes(header.nframes)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (wave.Error, EOFError, RuntimeError) as error:
        raise ValueError(f"{path} is not a WAV file of PCM samples: {str(error) or 'it ends early'}") from None
    wanted = (
        ("nchannels", "channels", 1),
        ("sampwidth", "bytes per sample", 2),
        ("framerate", "samples a second", rate),
    )
    for field, name, limit in wanted:
        if limit is not None and getattr(header, field) != limit:
            raise ValueError(f"{path}: {name} must be {limit}, got {getattr(header, field)}")
    if len(data) != 2 * header.nframes:
        raise ValueError(f"{path}: its header says {2 * header.nframes} bytes of sound, got {len(data)}")
    if not data:
        raise ValueError(f"{path} has no samples")
    return np.frombuffer(data, "<i2").astype(np.int16, copy=False)
