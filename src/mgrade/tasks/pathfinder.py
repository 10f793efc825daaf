"""Pathfinder (Linsley et al. 2018, Tay et al. 2021): do two discs mark the ends of the same dashed curve?

Images are read pixel by pixel, row after row: 1024 steps, or 16384 in Path-X. They are the official ones, or generated
by the same rules:

    DATA/pathfinder32/curv_contour_length_14/{metadata/*.npy,imgs/*/sample_*.png}    or DATA/pathfinder32.npz
    DATA/pathfinder128/...                                                           or DATA/pathfinder128.npz
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mgrade._files import prepare_place, replace
from mgrade.tasks.files import arrays, check_labels, contents
from mgrade.tasks.folder import option
from mgrade.tasks.labelled import Labelled, Sequences
from mgrade.tasks.pathfinder_images import PATH32, PATHX, generate
from mgrade.tasks.png import read_gray
from mgrade.tasks.task import generator

Bytes = npt.NDArray[np.uint8]

SETTINGS = {32: PATH32, 128: PATHX}
FOLDERS = {6: "curv_baseline", 9: "curv_contour_length_9", 14: "curv_contour_length_14"}
"""The official folders, by the number of dashes of a curve."""

_AT_ONCE = 1000  # images between two reports of progress
_MOST = 10_000_000


@dataclass(frozen=True, kw_only=True)
class Pathfinder(Labelled):
    """One curve or two. A tenth of the images is for validation, another for the test, the same for all seeds."""

    size: int = 32
    """Side of the images: 32, or 128 for Path-X."""
    contour_length: int = 14
    """Dashes of a curve: 6, 9 or 14, the usual version."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self.size, self.contour_length)

    @property
    def row(self) -> int:
        """Steps from a pixel to the one below."""
        return self.size

    @property
    def classes(self) -> int:
        """Two: different curves, or the same one."""
        return 2

    def model_fields(self) -> dict[str, Any]:
        """Brightness in, two classes out, averaged over the image."""
        return {"inputs": 1, "outputs": 2, "tokens": False, "readout": "mean"}

    def prepare(self, values: Tensor) -> Tensor:
        """Bytes (batch, time) to (batch, time, 1), from -1 to 1."""
        return ((values.float() / 255 - 0.5) / 0.5)[..., None]

    def read(self, split: str, folder: Path) -> Sequences:
        """Pixels (count, size x size)."""
        official, made = folder / f"pathfinder{self.size}", folder / file_name(self.size, self.contour_length)
        if official.is_dir():
            return _official(official / FOLDERS[self.contour_length], self.size, split)
        if made.is_file():
            return _generated(made, self.size, split)
        name = "pathfinder" if self.size == 32 else "pathx"
        length = "" if self.contour_length == 14 else f" --contour-length {self.contour_length}"
        raise ValueError(
            f"{folder} has neither a folder {official.name} nor {made.name}:"
            f" run `mgrade data generate {name}{length}{option('--out', folder)}`"
        )


def file_name(size: int = 32, contour_length: int = 14) -> str:
    """The file name of a generated set in the data folder."""
    return f"pathfinder{size}.npz" if contour_length == 14 else f"pathfinder{size}-{contour_length}.npz"


def generate_set(
    path: Path,
    seed: int,
    size: int = 32,
    count: int = 200_000,
    contour_length: int = 14,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Writes `count` images (all splits together) and their labels, determined by the seed.

    progress receives the number of images so far and the total, from time to time.
    """
    _check(size, contour_length)
    if not isinstance(count, int) or isinstance(count, bool) or not 10 <= count <= _MOST:
        raise ValueError(f"count must be a whole number from 10 to {_MOST}, got {count!r}")
    prepare_place(Path(path))
    settings = SETTINGS[size].with_length(contour_length)
    images, labels = np.empty((count, size, size), np.uint8), np.empty(count, np.uint8)
    for begin in range(0, count, _AT_ONCE):
        end = min(begin + _AT_ONCE, count)
        images[begin:end], labels[begin:end] = generate(settings, seed, begin, end)
        if progress is not None:
            progress(end, count)
    file = io.BytesIO()
    np.savez_compressed(file, images=images, labels=labels)
    replace(Path(path), file.getvalue())


def _check(size: int, contour_length: int) -> None:
    if type(size) is not int or size not in SETTINGS:
        raise ValueError(f"size must be 32 or 128, got {size!r}")
    if type(contour_length) is not int or contour_length not in FOLDERS:
        raise ValueError(f"contour_length must be 6, 9 or 14, got {contour_length!r}")


def _chosen(count: int, split: str, path: Path) -> npt.NDArray[np.int64]:
    """The indices of a split's images."""
    held = count // 10
    if not held:
        raise ValueError(f"{path}: there must be at least 10 images, got {count}")
    order: npt.NDArray[np.int64] = torch.randperm(count, generator=generator(42, "pathfinder", count)).numpy()
    parts = {"train": order[2 * held :], "validation": order[:held], "test": order[held : 2 * held]}
    return np.sort(parts[split])


def _generated(path: Path, size: int, split: str) -> Sequences:
    images, labels = arrays(path, "images", "labels")
    if images.dtype != np.uint8 or images.shape[1:] != (size, size):
        raise ValueError(f"{path}: images must be bytes {(size, size)}, got {images.dtype} {images.shape[1:]}")
    if labels.shape != images.shape[:1]:
        raise ValueError(f"{path}: {len(images)} images but labels of shape {labels.shape}")
    check_labels(f"{path}:", labels, 2)
    chosen = _chosen(len(labels), split, path)
    return Sequences(images[chosen].reshape(len(chosen), -1), labels[chosen])


def _official(folder: Path, size: int, split: str) -> Sequences:
    """Reads the Long Range Arena's folder of one contour length, without empty files: it is known to have one."""
    listed = [(path, label) for path, label in _listed(folder) if path.stat().st_size]
    chosen = _chosen(len(listed), split, folder)
    values = np.empty((len(chosen), size * size), np.uint8)
    for row, index in enumerate(chosen):
        values[row] = read_gray(listed[index][0], size).reshape(-1)
    return Sequences(values, np.array([listed[index][1] for index in chosen], np.uint8))


def _listed(folder: Path) -> Iterator[tuple[Path, int]]:
    """All images and labels in the order of the metadata: text, despite its name, with the label in field 3."""
    files = [path for path in (folder / "metadata").glob("*.npy") if path.stem.isascii() and path.stem.isdigit()]
    if not files:
        raise ValueError(f"{folder} has no metadata/*.npy")
    seen = set[Path]()
    for path in sorted(files, key=lambda path: int(path.stem)):
        try:
            lines = contents(path).decode().splitlines()
        except UnicodeDecodeError:
            raise ValueError(f"{path} must be lines of text") from None
        for number, line in enumerate(lines, 1):
            fields = line.split()
            if len(fields) < 4 or fields[3] not in ("0", "1"):
                given = line[:80]
                raise ValueError(f"{path}: line {number} must be folder, file, index, label 0 or 1, …, got {given!r}")
            inside = Path(fields[0], fields[1])
            image = folder / inside
            if inside.is_absolute() or ".." in inside.parts:
                raise ValueError(f"{path}: line {number}: {image} lies outside {folder}")
            if image in seen:
                raise ValueError(f"{path}: line {number}: {image} is named twice")
            seen.add(image)
            if not image.is_file():
                raise ValueError(f"{path}: line {number}: {image} is missing")
            yield image, int(fields[3])
