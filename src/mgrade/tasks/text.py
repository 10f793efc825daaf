"""Text of the Long Range Arena (Tay et al. 2021): is an IMDB film review (Maas et al. 2011) positive?

The model reads characters, not bytes. As in S4, the vocabulary is `<pad>`, `<unk>`, `<eos>`, and the characters that
occur at least 15 times in the training reviews, as far as the model reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mgrade.tasks.files import Array, arrays, check_axis, check_table, contents, padded, spans
from mgrade.tasks.folder import fetching
from mgrade.tasks.labelled import HeldOut, Sequences
from mgrade.tasks.task import whole

PAD, UNKNOWN, END = range(3)
SPECIAL = 3
LEAST_OCCURRENCES = 15
CLASSES = ("neg", "pos")


class Documents(NamedTuple):
    """Texts: all bytes in one array, the offset of each, labels, and their names in error messages."""

    data: Array
    offsets: Array
    labels: Array
    names: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Text(HeldOut):
    """Positive or negative, from the characters of a review.

    The distribution has no validation set, so others select the checkpoint on the test set; here, a share of the
    training set is held out for that.
    """

    max_length: int = 4096
    """Characters of a review, including `<eos>`; longer ones are cut."""
    vocabulary: int = 135
    """Width of the input, needed before the data are read: at least the vocabulary of the training set."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self.max_length, self.vocabulary)

    @property
    def classes(self) -> int:
        """Two: negative and positive."""
        return len(CLASSES)

    def model_fields(self) -> dict[str, Any]:
        """Characters in, two classes out, averaged over a review."""
        return {"inputs": self.vocabulary, "outputs": len(CLASSES), "tokens": True, "readout": "mean"}

    def facts(self) -> dict[str, Any]:
        """What an export says of inputs and outputs."""
        return {"title": "Film reviews: for or against", "labels": CLASSES}

    def read(self, split: str, folder: Path) -> Sequences:
        """Character ids (count, max_length), from `aclImdb/` or `imdb.npz`."""
        train = reviews("train", folder)
        texts = self._cut(train)
        table = vocabulary_table(np.concatenate(texts), LEAST_OCCURRENCES)
        size = int(table.max()) + 1
        if size > self.vocabulary:
            raise ValueError(f"vocabulary must be at least the {size} of the training set, got {self.vocabulary}")
        wanted = train
        if split != "train":
            wanted = reviews(split, folder)
            texts = self._cut(wanted)
        kind = id_type(self.vocabulary)
        ids = (table[np.minimum(text, len(table) - 1)].astype(kind) for text in texts)
        values, lengths = padded(ids, len(texts), self.max_length, END, kind)
        return Sequences(values, wanted.labels, lengths)

    def prepare(self, values: Tensor) -> Tensor:
        """Ids as the model reads them."""
        return values.to(torch.int32)

    def _cut(self, documents: Documents) -> list[Array]:
        codes, offsets = code_points(documents)
        return [codes[begin : min(begin + self.max_length - 1, end)] for begin, end in spans(offsets)]


def reviews(split: str, folder: Path) -> Documents:
    """The reviews of `train` or `test`, negative ones first, from the official folder or the compact file."""
    official, compact = folder / "aclImdb", folder / "imdb.npz"
    if official.is_dir():
        return _official(official / split)
    if not compact.is_file():
        raise ValueError(f"{folder} has neither aclImdb/ nor imdb.npz; {fetching('imdb')}")
    data, offsets, labels = arrays(compact, f"{split}_bytes", f"{split}_offsets", f"{split}_labels")
    check_axis(f"{compact}: {split} bytes", data, "bytes")
    check_table(compact, split, data, offsets, labels, len(CLASSES))
    return Documents(data, offsets, labels, [f"{compact}: {split} row {row}" for row in range(len(labels))])


def _official(folder: Path) -> Documents:
    paths, labels = [], []
    for label, name in enumerate(CLASSES):
        found = sorted((folder / name).glob("*.txt"))
        if not found:
            raise ValueError(f"{folder / name} has no reviews (*.txt)")
        paths += found
        labels += [label] * len(found)
    texts = list(map(contents, paths))
    offsets = np.cumsum([0, *map(len, texts)])
    data = np.frombuffer(b"".join(texts), np.uint8)
    return Documents(data, offsets, np.array(labels), list(map(str, paths)))


def code_points(documents: Documents) -> tuple[Array, Array]:
    """The code points of all documents, and the offset of each; refuses empty documents and invalid UTF-8."""
    data, offsets, _, names = documents
    empty = np.flatnonzero(np.diff(offsets) == 0)
    if len(empty):
        raise ValueError(f"{names[empty[0]]}: the document is empty")
    begins = (data & 0xC0) != 0x80  # the other bytes continue a character
    torn = np.flatnonzero(~begins[offsets[:-1]])
    if len(torn):
        raise ValueError(f"{names[torn[0]]}: not UTF-8 at byte 0")
    try:
        text = data.tobytes().decode()
    except UnicodeDecodeError as error:
        row = int(np.searchsorted(offsets, error.start, "right")) - 1
        raise ValueError(f"{names[row]}: not UTF-8 at byte {error.start - int(offsets[row])}") from None
    count = np.concatenate([[0], np.cumsum(begins)])
    return from_text(text), count[offsets]


def from_text(text: str) -> Array:
    """A string's code points."""
    return np.frombuffer(text.encode("utf-32-le"), "<u4")


def vocabulary_table(codes: Array, least: int) -> Array:
    """Ids by code point: ascending for those that occur `least` times; the last entry stands for all higher ones."""
    counts = np.bincount(codes)
    table = np.full(len(counts) + 1, UNKNOWN)
    often = np.flatnonzero(counts >= least)
    table[often] = SPECIAL + np.arange(len(often))
    return table


def id_type(vocabulary: int) -> Any:
    """The dtype that stores ids."""
    return np.uint8 if vocabulary <= 256 else np.int32


def check_sizes(max_length: int, vocabulary: int) -> None:
    """Refuses sizes that leave no room for a character."""
    whole(2, max_length=max_length)
    whole(SPECIAL + 1, vocabulary=vocabulary)
