"""From a CSV file of recordings to a classifier on a chip: what `mgrade fit` does."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import shlex
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from mgrade._files import alone_in, make_folder
from mgrade.deploy import Program, verify, write_export
from mgrade.deploy.about import LONGEST
from mgrade.deploy.export import DESCRIPTION, TARGETS
from mgrade.deploy.judge import Streamed
from mgrade.deploy.source import as_name
from mgrade.estimator import series
from mgrade.estimator.budget import read_budget
from mgrade.estimator.checks import check_frame, check_pieces, check_recordings, doubts
from mgrade.estimator.classifier import StreamClassifier
from mgrade.estimator.recordings import Recordings, read_csv, split
from mgrade.footprint import Chip

# The default bytes for parameters and state: trains in seconds, and is enough for most sensors.
BUDGET = 32 * 1024
# The accuracy of a label on fewer recordings says little.
FEWEST_JUDGED = 5
# A program that loses more accuracy than this to its classifier gets a remark.
MOST_LOST = 0.02


@dataclass(frozen=True)
class Prepared:
    """The checked recordings of a file, split for training and testing."""

    whole: Recordings
    training: Recordings
    held_out: Recordings
    remarks: list[str]
    """About the recordings, a line each."""
    unit: str
    """What the series are: recordings, or pieces of so many samples."""
    lengths: dict[str, float]
    """The count of whole recordings, and the samples of the shortest, the median and the longest."""


@dataclass(frozen=True)
class Fitted:
    """A classifier, its program, and the predictions of both for recordings held out."""

    classifier: StreamClassifier
    program: Program
    held_out: Recordings
    said: npt.NDArray[Any]
    """The classifier's predictions for the recordings held out."""
    said_by_program: npt.NDArray[Any]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The facts of the training and the test, as JSON holds them."""
        return {
            "held_out": len(self.held_out.series),
            "seconds": self.seconds,
            "dim": self.classifier.config_.dim,
            "depth": self.classifier.config_.depth,
            "right": self.right(),
            "confusion": self.confusion(),
            "judged_on": self.judged_on(),
        }

    def right(self) -> dict[str, float]:
        """The accuracy on the recordings held out, of the classifier and of the program."""
        truth = self.held_out.labels
        return {
            "classifier": float((self.said == truth).mean()),
            "program": float((self.said_by_program == truth).mean()),
        }

    def confusion(self) -> dict[str, dict[str, int]]:
        """For each label, how many of its recordings the program takes for which."""
        counts: dict[str, dict[str, int]] = {}
        for truth in map(str, self.classifier.classes_):
            said, times = np.unique(self.said_by_program[self.held_out.labels == truth], return_counts=True)
            counts[truth] = {str(name): int(count) for name, count in zip(said, times, strict=True)}
        return counts

    def judged_on(self) -> dict[str, int]:
        """For each label, how many recordings were held out, whole or in pieces."""
        held = self.held_out
        return {str(label): len(np.unique(held.names[held.labels == label])) for label in self.classifier.classes_}

    def shortfall(self) -> list[str]:
        """A line if the program is much less accurate than its classifier."""
        right = self.right()
        if right["classifier"] - right["program"] <= MOST_LOST:
            return []
        return [
            f"the {self.classifier.precision} program is right on {right['program']:.1%}, the classifier itself on"
            f" {right['classifier']:.1%}: try --precision float32, or a larger --budget"
        ]

    def stale(self, folder: Path, to: str) -> list[str]:
        """A line about every other program in `folder`, which belongs to an earlier classifier."""
        others = [folder / other for other in TARGETS if other != to and (folder / other / DESCRIPTION).is_file()]
        command = f"mgrade export {shlex.quote(str(folder / 'model'))}"
        return [
            f"{other} is from an earlier fit: `{command} --to {other.name} --out {shlex.quote(str(other))}` renews it"
            for other in others
        ]

    def write(self, folder: Path, to: str) -> dict[str, Any]:
        """Writes the classifier to `folder`/model and the program to `folder`/`to`; the latter's description."""
        make_folder(folder)
        try:
            with alone_in(folder):
                with tempfile.TemporaryDirectory(dir=folder, prefix=".model.") as trial:
                    self.classifier.save(trial)  # fails before anything is replaced
                    name, about = as_name(folder.absolute().name), self.classifier.about_
                    description = write_export(self.program, name, to, folder / to, about)
                self.classifier.save(folder / "model")
            return description
        except OSError as error:
            raise ValueError(f"{folder}: cannot be written: {error.strerror}") from None


def prepare(
    path: Path,
    *,
    label: str,
    sequence: str | None,
    channels: Sequence[str] | None,
    window: int | None,
    frame: int,
    test: float,
    seed: int,
) -> Prepared:
    """Reads a CSV file as `read_csv` does, checks it, and holds out the share `test` of its recordings."""
    found = read_csv(path, label=label, sequence=sequence, channels=channels)
    check_recordings(found)
    known = found if window is None else found.cut(window)
    check_frame(known, frame, window)
    left_out = check_pieces(found, known, window)
    training, held_out = split(known, test, seed)
    count, shortest, longest = len(found.lengths), min(found.lengths), max(found.lengths)
    median = statistics.median(found.lengths)
    spread = f"{shortest} samples" if shortest == longest else f"{shortest} to {longest} samples, median {median:g}"
    return Prepared(
        found,
        training,
        held_out,
        remarks=[*doubts(found), *left_out, f"{count} recordings of {spread}"],
        unit="recordings" if window is None else f"pieces of {window} samples",
        lengths={"count": count, "shortest": shortest, "median": median, "longest": longest},
    )


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
    """Trains within `budget` bytes and tests; `frame` and `parameters` are those of `StreamClassifier`.

    window: samples of every recording, if they are pieces of one length. `tell` receives a line per epoch, `warn` a
    line per warning.
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
    """A message about a channel, with its name instead of its number."""
    return re.sub(r"^channel (\d+)", lambda match: f"column {channels[int(match[1])]!r}", message)


def budget_for(chip: Chip | None, asked: str | None) -> int:
    """Bytes for parameters and state: as asked, or half of the chip's smaller memory, but no more than `BUDGET`."""
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
    """Runs a C export on the emulated core of `chip`; adds the most steps per second that its clock allows."""
    found = verify(folder, chip.core.lower())
    rate = None if chip.mhz is None else chip.mhz * 1e6 / found["instructions"]
    return {**found, "steps_a_second": rate}


def _predict(program: Program, classifier: StreamClassifier, recordings: Recordings) -> npt.NDArray[Any]:
    """The program's predictions after the last sample of each recording."""
    steps = series.framed([one.T for one in recordings.series], classifier.frame_)
    values, lengths = series.pad(steps, torch.float32)
    outputs, _ = Streamed(program, classifier.config_)(values, lengths=lengths)
    return classifier.classes_[outputs.argmax(1).numpy()]


class _Lines(io.TextIOBase):
    """A file that passes every line on."""

    def __init__(self, tell: Callable[[str], Any]):
        self._tell = tell

    def write(self, text: str) -> int:
        if text.strip():
            self._tell(text.strip())
        return len(text)
