"""Pathfinder images (Linsley et al. 2018), generated like those of the Long Range Arena (Tay et al. 2021).

Two long snakes of dashes ("paddles") wind over every image, with some short ones between them. Two discs mark the ends
of the same long snake (label 1), or one end each of both (label 0). Quirks of the published generator that affect its
images are kept. The work is done in C (`csrc/pathfinder.c`).
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from mgrade.tasks import _c
from mgrade.tasks.task import whole

Bytes = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.int32]

_MAX_MARGINS = 4
_LARGEST = {
    "canvas": 1024,
    "padding": 1024,
    "seed_distance": 1024,
    "antialias": 16,
    "contour_length": 1000,
    "distractor_length": 1000,
}
_NONE_ALLOWED = ("distractors", "paddle_retrials", "distractor_retrials")
_AT_LEAST_ONE = (
    "canvas",
    "paddle_length",
    "padding",
    "antialias",
    "seed_distance",
    "contour_length",
    "distractor_length",
)
_NUMBERS = ("paddle_thickness", "marker_radius", "continuity", "snake_contrast", "paddle_contrast")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What images look like. Lengths are in pixels."""

    canvas: int
    """Side of the image."""
    paddle_length: int = 5
    paddle_thickness: float
    margins: tuple[int, ...] = (1,)
    """Free space around a paddle; every image takes one of these at random."""
    padding: int = 1
    """Width of the frame that long snakes avoid."""
    antialias: int = 2
    """Factor by which shapes are drawn larger before reduction."""
    seed_distance: int
    """Distance of the first paddles of the long snakes from each other; the first keeps twice that from the edges."""
    marker_radius: float
    continuity: float = 1.8
    """Higher values make straighter snakes."""
    contour_length: int = 14
    """Paddles of a long snake."""
    distractor_length: int = 4
    """Paddles of a short snake."""
    distractors: int
    """The most short snakes; fewer if there is no room."""
    snake_contrast: float
    """Brightness of short snakes before scaling."""
    paddle_contrast: float = 1.0
    """Brightness of long snakes relative to short ones."""
    paddle_retrials: int = 2
    distractor_retrials: int = 4

    def __post_init__(self) -> None:
        whole(**{name: getattr(self, name) for name in _AT_LEAST_ONE})
        for name in _NONE_ALLOWED:
            value = getattr(self, name)
            if not isinstance(value, int) or not 0 <= value <= 1000:
                raise ValueError(f"{name} must be a whole number from 0 to 1000, got {value!r}")
        for name, limit in _LARGEST.items():
            if getattr(self, name) > limit:
                raise ValueError(f"{name} must be at most {limit}, got {getattr(self, name)}")
        for name in _NUMBERS:
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be a number above 0, got {getattr(self, name)!r}")
        if (self.paddle_thickness * self.antialias) % 1:
            raise ValueError(f"paddle_thickness must be a multiple of 1/{self.antialias}, got {self.paddle_thickness}")
        if not 1 <= len(self.margins) <= _MAX_MARGINS or min(self.margins) < 1:
            raise ValueError(f"margins must be 1 to {_MAX_MARGINS} numbers of at least 1, got {self.margins}")
        if self.canvas <= 2 * self.reach(max(self.margins)):
            least = 2 * self.reach(max(self.margins)) + 1
            raise ValueError(f"canvas must be at least {least} for such paddles, got {self.canvas}")

    def reach(self, margin: int) -> int:
        """How far the picture of a paddle and its margin extends from the start of the paddle."""
        return self.paddle_length + math.ceil(self.paddle_thickness) + margin

    def with_length(self, contour_length: int) -> Settings:
        """The same settings with snakes of another length; short ones have a third of it."""
        return replace(self, contour_length=contour_length, distractor_length=contour_length // 3)


PATH32 = Settings(
    canvas=32,
    paddle_length=2,
    paddle_thickness=0.5,
    seed_distance=7,
    marker_radius=1.5,
    continuity=1.0,
    distractors=5,
    snake_contrast=2.0,
    paddle_contrast=0.75,
)
PATHX = Settings(
    canvas=128,
    paddle_thickness=1.5,
    margins=(2, 3),
    seed_distance=20,
    marker_radius=3.0,
    distractors=8,
    snake_contrast=0.9,
)


class _CSettings(ctypes.Structure):
    """`Settings` of csrc/paddles.h."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("canvas", "padding", "length", "antialias", "seed_distance")),
        *((name, ctypes.c_int32) for name in ("contour_length", "distractor_length", "distractors")),
        *((name, ctypes.c_int32) for name in ("paddle_retrials", "distractor_retrials", "margin_count")),
        ("margins", ctypes.c_int32 * _MAX_MARGINS),
        *((name, ctypes.c_double) for name in ("thickness", "marker_radius", "continuity")),
        *((name, ctypes.c_double) for name in ("snake_contrast", "paddle_contrast")),
    ]


def _c_settings(settings: Settings) -> _CSettings:
    renamed = {
        "length": settings.paddle_length,
        "thickness": settings.paddle_thickness,
        "margins": (ctypes.c_int32 * _MAX_MARGINS)(*settings.margins),
        "margin_count": len(settings.margins),
    }
    fields = {field[0]: getattr(settings, field[0], None) for field in _CSettings._fields_}
    return _CSettings(**{**fields, **renamed})


def _library() -> ctypes.CDLL:
    if _c.LIBRARY is None:
        raise ValueError("pathfinder needs the C generator: reinstall mgrade with a C compiler present")
    return _c.LIBRARY


def generate(settings: Settings, seed: int, begin: int, end: int, threads: int | None = None) -> tuple[Bytes, Bytes]:
    """Images [begin, end) of a seed (count, canvas, canvas) and their labels (count).

    An image depends only on settings, seed and index, not on the range or the number of threads.
    """
    images, labels, _ = generate_counted(settings, seed, begin, end, threads)
    return images, labels


def generate_counted(
    settings: Settings, seed: int, begin: int, end: int, threads: int | None = None
) -> tuple[Bytes, Bytes, Counts]:
    """As `generate`, and for each image the numbers of snake pairs started and of short snakes that found room."""
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"seed must be from 0 to {(1 << 64) - 1}, got {seed}")
    if not 0 <= begin <= end < 1 << 63:
        raise ValueError(f"begin and end must be at least 0 and in order, got {begin}, {end}")
    whole(threads=1 if threads is None else threads)
    library, count, side = _library(), end - begin, settings.canvas
    images = np.empty((count, side, side), np.uint8)
    labels, counts = np.empty(count, np.uint8), np.empty((count, 2), np.int32)
    addresses = (array.ctypes.data for array in (images, labels, counts))
    wrong = library.mgrade_pathfinder(
        ctypes.byref(_c_settings(settings)), seed, begin, end, threads or torch.get_num_threads(), *addresses
    )
    if wrong == 1:
        raise MemoryError
    if wrong:
        raise ValueError(f"two snakes of contour_length {settings.contour_length} do not fit a canvas of {side}")
    return images, labels, counts


def paddle(settings: Settings, margin: int, angle: float) -> tuple[Bytes, Bytes]:
    """The picture of a paddle that starts in the middle, and that of its margin."""
    side = 2 * settings.reach(margin) + 1
    line, mask = np.empty((side, side), np.uint8), np.empty((side, side), np.uint8)
    found = _library().mgrade_pathfinder_paddle(
        ctypes.byref(_c_settings(settings)), margin, angle, line.ctypes.data, mask.ctypes.data
    )
    if found:
        raise MemoryError
    return line, mask
