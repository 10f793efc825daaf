"""From a CSV file of recordings to a classifier on a chip, in one go: what `mgrade fit` does."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
import shlex
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from mgrade._files import alone_in, make_folder
from mgrade.deploy import Program, verify, write_export
from mgrade.deploy.about import FILE as ABOUT
from mgrade.deploy.about import LONGEST
from mgrade.deploy.export import DESCRIPTION, TARGETS
from mgrade.deploy.export import check_folder as check_export
from mgrade.deploy.judge import Streamed
from mgrade.deploy.source import ESTIMATOR, SAMPLE, as_name
from mgrade.estimator import series
from mgrade.estimator.base import whole
from mgrade.estimator.budget import read_budget
from mgrade.estimator.classifier import StreamClassifier
from mgrade.estimator.recordings import Recordings
from mgrade.footprint import Chip
from mgrade.nn.storage import check_folder as check_model

# Bytes for parameters and state where neither is said: trains in seconds, and enough for most sensors.
BUDGET = 32 * 1024
# Of recordings with a median of fewer samples no movement can be learned: most likely they were told apart wrongly.
FEWEST_SAMPLES = 5
# Shares of a label that were found on fewer recordings say little.
FEWEST_JUDGED = 5
# A program may be right on so much less than its classifier before it is said.
MOST_LOST = 0.02


@dataclass(frozen=True)
class Fitted:
    """A classifier, the program it becomes, and what both say of recordings they have not seen."""

    classifier: StreamClassifier
    program: Program
    held_out: Recordings
    said: npt.NDArray[Any]
    """What the classifier says of every recording held out."""
    said_by_program: npt.NDArray[Any]
    seconds: float

    def right(self) -> dict[str, float]:
        """Shares of the recordings held out: by the classifier, and by the program."""
        truth = self.held_out.labels
        return {
            "classifier": float((self.said == truth).mean()),
            "program": float((self.said_by_program == truth).mean()),
        }

    def confusion(self) -> dict[str, dict[str, int]]:
        """Of each label, how many recordings the program takes for which."""
        counts: dict[str, dict[str, int]] = {}
        for truth in map(str, self.classifier.classes_):
            said, times = np.unique(self.said_by_program[self.held_out.labels == truth], return_counts=True)
            counts[truth] = {str(name): int(count) for name, count in zip(said, times, strict=True)}
        return counts

    def judged_on(self) -> dict[str, int]:
        """Of each label, how many recordings were held out, whole or in pieces."""
        held = self.held_out
        return {str(label): len(np.unique(held.names[held.labels == label])) for label in self.classifier.classes_}

    def shortfall(self) -> list[str]:
        """A line about a program that is right on much less than its classifier, if it is."""
        right = self.right()
        if right["classifier"] - right["program"] <= MOST_LOST:
            return []
        return [
            f"the {self.classifier.precision} program is right on {right['program']:.1%}, the classifier itself on"
            f" {right['classifier']:.1%}: take --precision float32, or a larger --budget"
        ]

    def stale(self, folder: Path, to: str) -> list[str]:
        """A line about every other program in `folder`, which is not of the classifier that is there now."""
        others = [folder / other for other in TARGETS if other != to and (folder / other / DESCRIPTION).is_file()]
        command = f"mgrade export {shlex.quote(str(folder / 'model'))}"
        return [
            f"{other} is of an earlier fit: `{command} --to {other.name} --out {shlex.quote(str(other))}` makes it anew"
            for other in others
        ]

    def write(self, folder: Path, to: str) -> dict[str, Any]:
        """The classifier in `folder`/model, the program in `folder`/`to`; what there is to say of the latter."""
        make_folder(folder)
        try:
            with alone_in(folder):
                with tempfile.TemporaryDirectory(dir=folder, prefix=".model.") as trial:
                    self.classifier.save(trial)  # what cannot be written is found out before anything is replaced
                    name, about = as_name(folder.absolute().name), self.classifier.about_
                    description = write_export(self.program, name, to, folder / to, about)
                self.classifier.save(folder / "model")
            return description
        except OSError as error:
            raise ValueError(f"{folder}: cannot be written: {error.strerror}") from None


def fit(
    training: Recordings,
    held_out: Recordings,
    budget: int,
    frame: int = 1,
    tell: Callable[[str], Any] = lambda line: None,
    window: int | None = None,
    warn: Callable[[str], Any] = warnings.warn,
    **parameters: Any,
) -> Fitted:
    """Trains within `budget` bytes and judges; `frame` and `parameters` are those of `StreamClassifier`.

    `window`: samples of every recording, if they are pieces of one length. `tell` is called with a line about every
    epoch, `warn` with one about every warning.
    """
    begun, met = time.monotonic(), list[str]()
    classifier = StreamClassifier(budget=budget, frame=frame, verbose=2, **parameters)
    with contextlib.redirect_stdout(_Lines(tell)), warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: met.append(str(message))
        classifier.fit(training.series, training.labels)
    for message in met:
        warn(_with_name(message, training.channels))
    classifier.verbose = 0
    names = tuple(name[:LONGEST] for name in training.channels)
    classifier.about_ = dataclasses.replace(classifier.about_, channels=names, window=window)
    seconds = time.monotonic() - begun
    program = classifier.program()
    said = classifier.predict(held_out.series)
    return Fitted(classifier, program, held_out, said, _predict(program, classifier, held_out), seconds)


def _with_name(message: str, channels: tuple[str, ...]) -> str:
    """What is said of a channel by its number, by its name."""
    return re.sub(r"^channel (\d+)", lambda match: f"column {channels[int(match[1])]!r}", message)


def check_recordings(recordings: Recordings) -> None:
    """Refuses recordings that no classifier can be learned from, or that were most likely told apart wrongly."""
    labels = [str(label) for label in np.unique(recordings.labels)]
    if len(labels) < 2:
        raise ValueError(f"recordings must have at least 2 labels, got {labels[0]!r} alone")
    longest = max(labels, key=len)
    if len(longest) > LONGEST:
        raise ValueError(f"labels must have at most {LONGEST} characters, got {len(longest)} in {longest[:20]!r}...")
    if all(_is_still(recordings, channel) for channel in range(len(recordings.channels))):
        raise ValueError(f"channels must vary, got one value throughout in {', '.join(map(repr, recordings.channels))}")
    lengths = recordings.lengths
    if (median := np.median(lengths)) < FEWEST_SAMPLES:
        names = ", ".join(repr(name) for at, name in enumerate(recordings.channels) if _few_values(recordings, at))
        raise ValueError(
            f"recordings must have a median of at least {FEWEST_SAMPLES} samples, got {len(lengths)} recordings of"
            f" {min(lengths)} to {max(lengths)}, median {median:g}: --sequence must name the column that tells them"
            f" apart{f'; it may be {names}' if names else ''}"
        )


def check_frame(recordings: Recordings, frame: int, window: int | None) -> None:
    """Refuses a frame that is longer than a recording, or that does not fill a window."""
    whole("frame", frame)
    if window is not None and window % frame:
        raise ValueError(f"window must be a multiple of frame, {frame}, got {window}")
    shortest = int(np.argmin(recordings.lengths))
    if frame > (length := recordings.lengths[shortest]):
        name = recordings.names[shortest]
        raise ValueError(
            f"frame must be at most {length}, the samples of the shortest recording, {str(name)!r}, got {frame}"
        )


def check_pieces(recordings: Recordings, pieces: Recordings, window: int | None) -> list[str]:
    """Refuses a window that leaves too few recordings of a label; a line about those that it leaves out."""
    before, after = set(map(str, recordings.names)), set(map(str, pieces.names))
    for label in map(str, np.unique(recordings.labels)):
        given, left = (np.unique(one.names[one.labels == label]).size for one in (recordings, pieces))
        if left < 2 <= given:
            raise ValueError(
                f"window must leave at least 2 recordings of {label!r}, one to train on and one to judge by; {window}"
                f" samples leave {left} of {given}"
            )
    lost = len(before - after)
    return [f"{lost} of {len(before)} recordings are shorter than the window, {window}, and left out"] if lost else []


def check_output(out: Path, to: str) -> None:
    """Refuses a folder that cannot be written, or whose files are not those of an earlier fit."""
    for folder in (out, out / "model", out / to):
        there = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.exists(path))
        if not there.is_dir() or not os.access(there, os.W_OK):
            raise ValueError(f"--out must be a folder that can be written, got {there}")
    check_model(out / "model", ESTIMATOR, SAMPLE, ABOUT)
    check_export(out / to, as_name(out.absolute().name), to)


def doubts(recordings: Recordings) -> list[str]:
    """What looks like a mistake in whole recordings but may be none, a line each."""
    alike: dict[str, list[str]] = {}
    for label in map(str, np.unique(recordings.labels)):
        alike.setdefault(label.casefold(), []).append(label)
    found = [
        f"labels {' and '.join(map(repr, labels))} differ only in case: write them alike if they are one"
        for labels in alike.values()
        if len(labels) > 1
    ]
    for place, name in enumerate(recordings.channels):
        if _is_still(recordings, place):
            found.append(f"column {name!r} has one value throughout: it is not learned from")
        elif _only_grows(recordings, place):
            found.append(
                f"column {name!r} only grows in every recording, as a time stamp does: if it is none of the sensor's,"
                " leave it out by naming the others with --channels"
            )
        elif _numbers_stretches(recordings, place):
            found.append(
                f"column {name!r} stays at one whole number for long, as the number of a recording does: name it with"
                " --sequence, or leave it out by naming the others with --channels"
            )
    return found


def _is_still(recordings: Recordings, channel: int) -> bool:
    """Whether a channel never changes."""
    return len({value for one in recordings.series for value in np.unique(one[channel])}) == 1


def _only_grows(recordings: Recordings, channel: int) -> bool:
    """Whether a channel nowhere falls within a recording, and ends higher than it begins in each."""
    rows = [one[channel] for one in recordings.series if one.shape[1] > 1]
    return bool(rows) and all(bool(row[-1] > row[0] and (np.diff(row) >= 0).all()) for row in rows)


def _numbers_stretches(recordings: Recordings, channel: int) -> bool:
    """Whether a channel has few values, each of them in one go, or one throughout every recording."""
    rows = [one[channel] for one in recordings.series]
    values = np.concatenate(rows)
    stretches = 1 + np.count_nonzero(np.diff(values))
    constant = all((row == row[0]).all() for row in rows)
    return _few_values(recordings, channel) and (constant or stretches == len(np.unique(values)))


def _few_values(recordings: Recordings, channel: int) -> bool:
    """Whether a channel may be the number of a recording: whole, and often the same."""
    values = np.concatenate([one[channel] for one in recordings.series])
    return bool((values == np.rint(values)).all() and 1 < len(np.unique(values)) <= len(values) / FEWEST_SAMPLES)


def budget_for(chip: Chip | None, asked: str | None) -> int:
    """Bytes for parameters and state: as asked for, or half of the chip's smaller memory, but no more than `BUDGET`."""
    if asked is not None:
        budget = read_budget(asked)
        if chip is not None and budget > (room := chip.flash or chip.ram):
            kind = "flash" if chip.flash else "memory"
            raise ValueError(f"--budget must be at most {room} bytes, the {kind} of {chip.name}, got {asked!r}")
        return budget
    if chip is None:
        return BUDGET
    return min(BUDGET, chip.ram // 2, (chip.flash or chip.ram) // 2)


def verify_on(chip: Chip, folder: Path) -> dict[str, Any]:
    """Runs a C export on the emulated core of `chip`, and says how many steps a second its clock allows at most."""
    found = verify(folder, chip.core.lower())
    rate = None if chip.mhz is None else chip.mhz * 1e6 / found["instructions"]
    return {**found, "steps_a_second": rate}


def _predict(program: Program, classifier: StreamClassifier, recordings: Recordings) -> npt.NDArray[Any]:
    """The classes that the program gives after the last sample of each recording."""
    steps = series.framed([one.T for one in recordings.series], classifier.frame_)
    values, lengths = series.pad(steps, torch.float32)
    outputs, _ = Streamed(program, classifier.config_)(values, lengths=lengths)
    return classifier.classes_[outputs.argmax(1).numpy()]


class _Lines(io.TextIOBase):
    """A file that hands every line on."""

    def __init__(self, tell: Callable[[str], Any]):
        self._tell = tell

    def write(self, text: str) -> int:
        if text.strip():
            self._tell(text.strip())
        return len(text)
