"""Images read pixel by pixel, row after row: CIFAR-10 in gray (Long Range Arena's Image) or in colour, and MNIST.

They come from the official distributions or from compact files of the same images:

    DATA/cifar-10-batches-bin/{data_batch_1..5,test_batch}.bin    or, for gray only, DATA/cifar10_gray.npz
    DATA/mnist/{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]  or DATA/mnist.npz
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mgrade.tasks.files import arrays, check_labels, contents
from mgrade.tasks.folder import fetching
from mgrade.tasks.labelled import HeldOut, Sequences
from mgrade.tasks.unpack import read_gzip

Bytes = npt.NDArray[np.uint8]

CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR_BATCHES = {"train": [f"data_batch_{number}.bin" for number in range(1, 6)], "test": ["test_batch.bin"]}
_PIXELS = 32 * 32
_RECORD = 1 + 3 * _PIXELS
_MOST_IDX = 2**27  # bytes: MNIST's largest file has 47 million


@dataclass(frozen=True, kw_only=True)
class _Pixels(HeldOut):
    """Images as sequences of pixels, ten classes; `shift` and `scale` per channel, for pixels from 0 to 1."""

    shift: ClassVar[tuple[float, ...]]
    scale: ClassVar[tuple[float, ...]]
    side: ClassVar[int] = 32
    """Pixels of a row."""

    @property
    def row(self) -> int:
        """Steps from a pixel to the one below."""
        return self.side

    @property
    def classes(self) -> int:
        """Ten kinds of things, or digits."""
        return 10

    def model_fields(self) -> dict[str, Any]:
        """Channels in, classes out, averaged over time."""
        return {"inputs": len(self.shift), "outputs": self.classes, "tokens": False, "readout": "mean"}

    def prepare(self, values: Tensor) -> Tensor:
        """Bytes (batch, time[, channels]) to standardised values (batch, time, channels)."""
        pixels = values if values.ndim == 3 else values[..., None]
        # numbers, not tensors: a tensor would have to be copied to the device
        sides = zip(pixels.unbind(-1), self.shift, self.scale, strict=True)
        return torch.stack([(side.float() / 255 - shift) / scale for side, shift, scale in sides], -1)


@dataclass(frozen=True, kw_only=True)
class Image(_Pixels):
    """CIFAR-10 in gray: 1024 steps of one channel (Long Range Arena)."""

    shift: ClassVar[tuple[float, ...]] = (122.6 / 255,)
    scale: ClassVar[tuple[float, ...]] = (61.0 / 255,)

    def facts(self) -> dict[str, Any]:
        """What an export says of inputs and outputs."""
        return {"title": "CIFAR-10, pixel by pixel", "labels": CIFAR_CLASSES}

    def read(self, split: str, folder: Path) -> Sequences:
        """Gray pixels (count, 1024)."""
        compact = folder / "cifar10_gray.npz"
        if not (folder / "cifar-10-batches-bin").is_dir() and compact.is_file():
            return _compact(compact, split, (32, 32))
        colours, labels = _cifar(folder, split, f"no {compact.name} and ")
        return Sequences(gray(colours), labels)


@dataclass(frozen=True, kw_only=True)
class SequentialCifar(_Pixels):
    """CIFAR-10 in colour: 1024 steps of three channels."""

    shift: ClassVar[tuple[float, ...]] = (0.4914, 0.4822, 0.4465)
    scale: ClassVar[tuple[float, ...]] = (0.247, 0.243, 0.261)

    def facts(self) -> dict[str, Any]:
        """What an export says of inputs and outputs."""
        return {"title": "CIFAR-10, pixel by pixel", "labels": CIFAR_CLASSES}

    def read(self, split: str, folder: Path) -> Sequences:
        """Red, green and blue of every pixel (count, 1024, 3)."""
        colours, labels = _cifar(folder, split)
        return Sequences(np.ascontiguousarray(colours.transpose(0, 2, 1)), labels)


@dataclass(frozen=True, kw_only=True)
class SequentialMnist(_Pixels):
    """Handwritten digits: 784 steps of one channel."""

    shift: ClassVar[tuple[float, ...]] = (0.1307,)
    scale: ClassVar[tuple[float, ...]] = (0.3081,)
    side: ClassVar[int] = 28

    def facts(self) -> dict[str, Any]:
        """What an export says of inputs and outputs."""
        return {"title": "Handwritten digits, pixel by pixel", "labels": tuple("0123456789")}

    def read(self, split: str, folder: Path) -> Sequences:
        """Gray pixels (count, 784)."""
        here, compact = folder / "mnist", folder / "mnist.npz"
        if not here.is_dir() and compact.is_file():
            return _compact(compact, split, (28, 28))
        begin = "t10k" if split == "test" else "train"
        path, images = _idx(here / f"{begin}-images-idx3-ubyte", 3)
        if images.shape[1:] != (28, 28):
            raise ValueError(f"{path}: images must be 28 x 28, got {images.shape[1]} x {images.shape[2]}")
        path, labels = _idx(here / f"{begin}-labels-idx1-ubyte", 1)
        return _checked(f"{path}:", images, labels)


def gray(colours: Bytes) -> Bytes:
    """Brightness (count, pixels) of red, green, blue (count, 3, pixels), rounded as in Pillow's mode L."""
    out = np.empty((len(colours), colours.shape[2]), np.uint8)
    for begin in range(0, len(colours), 1000):  # in parts: 32-bit numbers take four times the memory
        red, green, blue = colours[begin : begin + 1000].astype(np.uint32).transpose(1, 0, 2)
        out[begin : begin + 1000] = (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16
    return out


def _compact(path: Path, split: str, size: tuple[int, int]) -> Sequences:
    images, labels = arrays(path, f"{split}_images", f"{split}_labels")
    if images.shape[1:] != size or images.dtype != np.uint8:
        raise ValueError(f"{path}: {split}_images must be bytes {size}, got {images.dtype} {images.shape[1:]}")
    return _checked(f"{path}: {split}", images, labels)


def _checked(where: str, images: Bytes, labels: npt.NDArray[Any]) -> Sequences:
    check_labels(where, labels, 10)
    if len(images) != len(labels):
        raise ValueError(f"{where.rstrip(':')}: {len(images)} images but {len(labels)} labels")
    return Sequences(images.reshape(len(images), -1), labels)


def _cifar(folder: Path, split: str, also: str = "") -> tuple[Bytes, Bytes]:
    """Colours (count, 3, 1024) and labels of the binary version."""
    here = folder / "cifar-10-batches-bin"
    get = fetching("cifar10")
    if not here.is_dir():
        if (folder / "cifar-10-batches-py").is_dir():
            raise ValueError(
                f"{folder / 'cifar-10-batches-py'} is CIFAR-10's Python version, which is pickled and never read;"
                f" the binary version (cifar-10-binary.tar.gz) is needed: {get}"
            )
        raise ValueError(f"{folder} has {also}no cifar-10-batches-bin (CIFAR-10's binary version); {get}")
    colours, labels = [], []
    for name in CIFAR_BATCHES[split]:
        path = here / name
        if not path.is_file():
            raise ValueError(f"{path} is missing; {get}")
        data = np.fromfile(path, np.uint8)
        if not data.size or data.size % _RECORD:
            raise ValueError(f"{path}: its size must be a multiple of {_RECORD} bytes, got {data.size}")
        rows = data.reshape(-1, _RECORD)
        found = _checked(f"{path}:", rows[:, 1:], rows[:, 0])
        colours.append(found.values.reshape(-1, 3, _PIXELS))
        labels.append(found.labels)
    return np.concatenate(colours), np.concatenate(labels)


def _idx(path: Path, axes: int) -> tuple[Path, Bytes]:
    """Reads an IDX file of bytes with that many axes, gzipped or not; returns its path and its content."""
    packed = path.with_name(path.name + ".gz")
    if not path.is_file() and not packed.is_file():
        raise ValueError(f"{path}[.gz] is missing; {fetching('mnist')}")
    data = contents(path) if path.is_file() else read_gzip(packed, _MOST_IDX)
    path = path if path.is_file() else packed
    kind = int.from_bytes(data[:4], "big")
    if kind != 0x800 + axes:
        raise ValueError(f"{path}: its first four bytes must be 0x{0x800 + axes:08x}, got 0x{kind:08x}")
    if len(data) < 4 + 4 * axes:
        raise ValueError(f"{path}: its header must have {4 + 4 * axes} bytes, got {len(data)}")
    shape = [int.from_bytes(data[at : at + 4], "big") for at in range(4, 4 + 4 * axes, 4)]
    if 0 in shape:
        raise ValueError(f"{path}: its header must have 1 or more along every axis, got {shape}")
    body = np.frombuffer(data, np.uint8)[4 + 4 * axes :]
    if body.size != math.prod(shape):
        raise ValueError(f"{path}: its header says {math.prod(shape)} bytes follow, got {body.size}")
    return path, body.reshape(shape).copy()  # a copy, since `data` is read-only
