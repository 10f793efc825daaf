"""Checks of recordings and of the output folder before training, and remarks on likely mistakes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from mgrade.deploy.about import FILE as ABOUT
from mgrade.deploy.about import LONGEST
from mgrade.deploy.export import check_folder as check_export
from mgrade.deploy.source import ESTIMATOR, SAMPLE, as_name
from mgrade.estimator.base import whole
from mgrade.estimator.recordings import Recordings
from mgrade.nn.storage import check_folder as check_model

# Recordings with a smaller median of samples cannot show movement: most likely they were told apart wrongly.
FEWEST_SAMPLES = 5


def check_recordings(recordings: Recordings) -> None:
    """Refuses recordings that no classifier can learn from, or that were most likely told apart wrongly."""
    labels = [str(label) for label in np.unique(recordings.labels)]
    if len(labels) < 2:
        raise ValueError(f"recordings must have at least 2 labels, got only {labels[0]!r}")
    longest = max(labels, key=len)
    if len(longest) > LONGEST:
        raise ValueError(f"labels must have at most {LONGEST} characters, got {len(longest)} in {longest[:20]!r}...")
    if all(_is_still(recordings, channel) for channel in range(len(recordings.channels))):
        raise ValueError(f"channels must vary, got only constant ones: {', '.join(map(repr, recordings.channels))}")
    lengths = recordings.lengths
    if (median := np.median(lengths)) < FEWEST_SAMPLES:
        names = ", ".join(repr(name) for at, name in enumerate(recordings.channels) if _few_values(recordings, at))
        raise ValueError(
            f"recordings must have a median of at least {FEWEST_SAMPLES} samples, got {len(lengths)} recordings of"
            f" {min(lengths)} to {max(lengths)}, median {median:g}: --sequence must name the column that tells them"
            f" apart{f'; it may be {names}' if names else ''}"
        )


def check_frame(recordings: Recordings, frame: int, window: int | None) -> None:
    """Refuses a frame that is longer than a recording, or that does not divide the window."""
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
    """Refuses a window that leaves too few recordings of a label; a remark on the recordings it leaves out."""
    before, after = set(map(str, recordings.names)), set(map(str, pieces.names))
    for label in map(str, np.unique(recordings.labels)):
        given, left = (np.unique(one.names[one.labels == label]).size for one in (recordings, pieces))
        if left < 2 <= given:
            raise ValueError(
                f"window must leave at least 2 recordings of {label!r}, one for training and one for testing; {window}"
                f" samples leave {left} of {given}"
            )
    lost = len(before - after)
    return [f"{lost} of {len(before)} recordings are left out: shorter than the window, {window}"] if lost else []


def check_output(out: Path, to: str) -> None:
    """Refuses a folder that cannot be written, or that has files of other origin than an earlier fit."""
    for folder in (out, out / "model", out / to):
        there = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.exists(path))
        if not there.is_dir() or not os.access(there, os.W_OK):
            raise ValueError(f"--out must be a folder that can be written, got {there}")
    check_model(out / "model", ESTIMATOR, SAMPLE, ABOUT)
    check_export(out / to, as_name(out.absolute().name), to)


def doubts(recordings: Recordings) -> list[str]:
    """Remarks on possible mistakes in whole recordings, a line each."""
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
            found.append(f"column {name!r} is constant: nothing is learned from it")
        elif _only_grows(recordings, place):
            found.append(
                f"column {name!r} only grows in every recording, like a time stamp: if it is not from the sensor,"
                " leave it out by naming the others with --channels"
            )
        elif _numbers_stretches(recordings, place):
            found.append(
                f"column {name!r} keeps a whole number for long stretches, like the number of a recording: name it with"
                " --sequence, or leave it out by naming the others with --channels"
            )
    return found


def _is_still(recordings: Recordings, channel: int) -> bool:
    """Whether a channel never changes."""
    return len({value for one in recordings.series for value in np.unique(one[channel])}) == 1


def _only_grows(recordings: Recordings, channel: int) -> bool:
    """Whether a channel never falls within a recording, and ends each higher than it began."""
    rows = [one[channel] for one in recordings.series if one.shape[1] > 1]
    return bool(rows) and all(bool(row[-1] > row[0] and (np.diff(row) >= 0).all()) for row in rows)


def _numbers_stretches(recordings: Recordings, channel: int) -> bool:
    """Whether a channel has few values, each in a single run, or is constant within every recording."""
    rows = [one[channel] for one in recordings.series]
    values = np.concatenate(rows)
    stretches = 1 + np.count_nonzero(np.diff(values))
    constant = all((row == row[0]).all() for row in rows)
    return _few_values(recordings, channel) and (constant or stretches == len(np.unique(values)))


def _few_values(recordings: Recordings, channel: int) -> bool:
    """Whether a channel may hold numbers of recordings: whole ones, each repeated often."""
    values = np.concatenate([one[channel] for one in recordings.series])
    return bool((values == np.rint(values)).all() and 1 < len(np.unique(values)) <= len(values) / FEWEST_SAMPLES)
