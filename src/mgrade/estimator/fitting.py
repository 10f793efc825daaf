"""From a CSV file of recordings to a classifier on a chip, in one go: what `mgrade fit` does."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from mgrade.deploy import Program, verify, write_export
from mgrade.deploy.judge import Streamed
from mgrade.deploy.source import as_name
from mgrade.estimator import series
from mgrade.estimator.classifier import StreamClassifier
from mgrade.estimator.programs import read_budget
from mgrade.estimator.recordings import Recordings
from mgrade.footprint import Chip

# Bytes for parameters and state where neither is said: trains in seconds, and enough for most sensors.
BUDGET = 32 * 1024


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

    def write(self, folder: Path, to: str) -> dict[str, Any]:
        """The classifier in `folder`/model, the program in `folder`/`to`; what there is to say of the latter."""
        self.classifier.save(folder / "model")
        name = folder.absolute().name
        return write_export(self.program, as_name(name), to, folder / to, self.classifier._about())


def fit(training: Recordings, held_out: Recordings, budget: int, frame: int = 1, **parameters: Any) -> Fitted:
    """Trains within `budget` bytes and judges; `frame` and `parameters` are those of `StreamClassifier`."""
    for recordings in (training, held_out):
        for one, name in zip(recordings.series, recordings.names, strict=True):
            if one.shape[1] < frame:
                raise ValueError(f"frame must be at most {one.shape[1]}, the length of recording {name}, got {frame}")
    begun = time.monotonic()
    classifier = StreamClassifier(budget=budget, frame=frame, **parameters).fit(training.series, training.labels)
    seconds = time.monotonic() - begun
    program = classifier.program()
    said = classifier.predict(held_out.series)
    return Fitted(classifier, program, held_out, said, _predict(program, classifier, held_out), seconds)


def budget_for(chip: Chip | None, asked: str | None) -> int:
    """Bytes for parameters and state: as asked for, or half of the chip's smaller memory, but no more than `BUDGET`."""
    if asked is not None:
        return read_budget(asked)
    if chip is None:
        return BUDGET
    return min(BUDGET, chip.ram // 2, (chip.flash or chip.ram) // 2)


def verify_on(chip: Chip, folder: Path) -> dict[str, Any]:
    """Runs a C export on the emulated core of `chip`, and says how many steps a second its clock allows."""
    found = verify(folder, chip.core.lower())
    rate = None if chip.mhz is None else chip.mhz * 1e6 / found["instructions"]
    return {**found, "steps_a_second": rate}


def _predict(program: Program, classifier: StreamClassifier, recordings: Recordings) -> npt.NDArray[Any]:
    """The classes that the program gives after the last sample of each recording."""
    steps = series.framed([one.T for one in recordings.series], classifier.frame_)
    values, lengths = series.pad(steps, torch.float32)
    outputs, _ = Streamed(program, classifier.config_)(values, lengths=lengths)
    return classifier.classes_[outputs.argmax(1).numpy()]
