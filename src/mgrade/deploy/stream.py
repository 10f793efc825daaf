"""Streams samples through an export as they arrive, from CSV lines or a WAV file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mgrade.deploy.about import About
from mgrade.deploy.c import compile_if_possible
from mgrade.deploy.interpreter import Interpreter, dequantise_output, quantise_input
from mgrade.deploy.program import Program
from mgrade.deploy.samples import parse_samples
from mgrade.tasks.speech import read_wav

Array = npt.NDArray[Any]


class Stream(Protocol):
    """Something that takes one sample after another."""

    def step(self, x: npt.ArrayLike) -> Array:
        """One sample -> outputs."""

    def reset(self) -> None:
        """Restarts the stream."""


class _Interpreted:
    """The interpreter for one stream, used where there is no C compiler."""

    def __init__(self, program: Program):
        self._interpreter = Interpreter(program)

    def step(self, x: npt.ArrayLike) -> Array:
        """One sample -> outputs."""
        return self._interpreter.step(np.asarray(x)[None])[0]

    def reset(self) -> None:
        """Restarts the stream."""
        self._interpreter.reset()


def open_stream(program: Program) -> Stream:
    """The program compiled for this machine; interpreted where that is not possible."""
    return compile_if_possible(program) or _Interpreted(program)


def stream(program: Program, samples: Iterable[Array], known: About | None = None) -> Iterator[Array]:
    """Real outputs, one set per sample, as samples arrive; restarts after every window, if one is `known`."""
    running = open_stream(program)
    window = None if known is None or known.window is None else known.window // known.frame
    for count, sample in enumerate(samples):
        if window and count and count % window == 0:
            running.reset()
        yield dequantise_output(program, running.step(quantise_input(program, sample)))


def csv_samples(program: Program, lines: Iterable[str], where: str, known: About | None = None) -> Iterator[Array]:
    """The inputs of every step, from the lines of a CSV file."""
    return parse_samples(lines, program.inputs, program.tokens, where, known)


def wav_samples(program: Program, path: Path, known: About | None = None) -> Iterator[Array]:
    """Frames of a 16-bit mono WAV file, with as many samples as the program has inputs; an incomplete frame is dropped.

    If the gain and rate of the training data are `known`, sound is scaled by that gain and must have that rate.
    """
    return iter(_frames(program, path, known))


def _frames(program: Program, path: Path, known: About | None) -> Array:
    if program.tokens:
        raise ValueError(f"{path}: the program reads token ids, not sound")
    if known is not None and known.samples_per_second is None and (known.channels or program.inputs != known.frame):
        reads = ", ".join(known.channels)[:60] or f"{program.inputs // known.frame} channels"
        raise ValueError(f"{path}: the program reads {reads}, not sound")
    known = known or About()
    sound = read_wav(path, known.samples_per_second).astype(np.float32) * np.float32(known.gain / 32768)
    if len(sound) < program.inputs:
        raise ValueError(f"{path}: must hold {program.inputs} samples or more, got {len(sound)}")
    return sound[: len(sound) // program.inputs * program.inputs].reshape(-1, program.inputs)
