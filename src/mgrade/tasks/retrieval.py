"""Retrieval of the Long Range Arena (Tay et al. 2021): are two papers of the ACL Anthology Network related by citation?

Each paper is compressed on its own, and a head compares the results. The vocabulary is printable ASCII, which together
with `<pad>`, `<unk>` and `<eos>` is as large as S4's for the distribution.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mgrade.nn import Model
from mgrade.tasks.files import Array, arrays, check_axis, check_rows, padded, spans
from mgrade.tasks.folder import data_folder, fetching
from mgrade.tasks.labelled import Labelled, Sequences
from mgrade.tasks.task import Batch, derive
from mgrade.tasks.text import END, SPECIAL, UNKNOWN, check_sizes, from_text, id_type

FILES = {"train": "train", "validation": "eval", "test": "test"}
COLUMNS = ("label", "first id", "second id", "first text", "second text")
STAND_IN = "acl_papers.npz"
FIRST_CHARACTER = ord(" ")


@dataclass(frozen=True, kw_only=True)
class Retrieval(Labelled):
    """Related or not, from the characters of two papers.

    The official files are `aan/new_aan_pairs.{train,eval,test}.tsv`. Without them, `acl_papers.npz` stands in: papers
    of the same kind, too few for a comparison with published results, but enough to try everything.
    """

    max_length: int = 4000
    """Characters of a paper, including `<eos>`; longer ones are cut."""
    vocabulary: int = 98
    """Width of the input: three special symbols, and characters from the space on; all others are `<unk>`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self.max_length, self.vocabulary)

    @property
    def classes(self) -> int:
        """Two: not related, and related."""
        return 2

    def model_fields(self) -> dict[str, Any]:
        """Characters of two documents in, two classes out, from the averages over each document."""
        return {"inputs": self.vocabulary, "outputs": 2, "tokens": True, "readout": "mean", "pair": True}

    def read(self, split: str, folder: Path) -> Sequences:
        """Character ids (count, 2, max_length) and lengths (count, 2)."""
        path = folder / "aan" / f"new_aan_pairs.{FILES[split]}.tsv"
        if path.is_file():
            return self._official(path)
        stand_in = folder / STAND_IN
        if path.parent.is_dir() or not stand_in.is_file():
            raise ValueError(f"{path} is missing: it comes with the Long Range Arena; {fetching('lra')}")
        return self._stand_in(split, stand_in)

    def prepare(self, values: Tensor) -> Tensor:
        """Ids as the model reads them."""
        return values.to(torch.int32)

    def lengths(self, *batch: Tensor) -> Tensor:
        """The length of the longer document of each pair."""
        return batch[2].amax(1)

    def cut(self, steps: int, *batch: Tensor) -> Batch:
        """The batch cut to the first `steps` characters of its documents."""
        return batch[0][:, :, :steps], *batch[1:]

    def examine(self, model: Model, seed: int, device: torch.device) -> dict[str, Any]:
        """The file that stands in for the official set, if it does."""
        return {"stand_in": STAND_IN} if self._stands_in() else {}

    def remark(self) -> str:
        """A remark if another set stands in."""
        return f"{STAND_IN} stands in for the official pairs: figures are not the paper's" if self._stands_in() else ""

    @staticmethod
    def _stands_in() -> bool:
        return not (data_folder() / "aan").is_dir()

    def _logits(self, model: Model, values: Tensor, labels: Tensor, lengths: Tensor | None = None) -> Tensor:
        documents = torch.cat([values[:, 0], values[:, 1]])
        both = None if lengths is None else torch.cat([lengths[:, 0], lengths[:, 1]])
        return super()._logits(model, documents, labels, both)

    def _official(self, path: Path) -> Sequences:
        with open(path, "rb") as file:
            count = sum(1 for _ in file)
        if not count:
            raise ValueError(f"{path} is empty")
        labels: list[int] = []
        values, lengths = self._padded((self._ids(text) for text in _texts(path, labels)), 2 * count)
        return Sequences(values.reshape(count, 2, -1), np.array(labels), lengths.reshape(count, 2))

    def _stand_in(self, split: str, path: Path) -> Sequences:
        data, offsets, cited = arrays(path, "bytes", "offsets", "citation_pairs")
        check_axis(f"{path}: bytes", data, "bytes")
        check_rows(f"{path}: papers", data, offsets, offsets.size - 1)
        _check_pairs(f"{path}: citation_pairs", cited, len(offsets) - 1)
        papers = [_paper(data[begin:end], f"{path}: row {row}") for row, (begin, end) in enumerate(spans(offsets))]
        values, lengths = self._padded((self._ids(paper) for paper in papers), len(papers))
        pairs, labels = stand_in_pairs(split, cited, len(papers), f"{path}: citation_pairs")
        return Sequences(values[pairs], labels, lengths[pairs])

    def _padded(self, rows: Iterator[Array], count: int) -> tuple[Array, Array]:
        return padded(rows, count, self.max_length, END, id_type(self.vocabulary))

    def _ids(self, text: str) -> Array:
        place = from_text(text[: self.max_length - 1]).astype(np.int64) - FIRST_CHARACTER
        return np.where((place >= 0) & (place < self.vocabulary - SPECIAL), place + SPECIAL, UNKNOWN)


def _texts(path: Path, labels: list[int]) -> Iterator[str]:
    """First and second text of every row in turn; the rows' labels are added to `labels`."""
    with open(path, "rb") as file:
        for row, line in enumerate(file, 1):
            # as in the Long Range Arena, quotation marks have no special meaning
            fields = line.rstrip(b"\r\n").split(b"\t")
            if len(fields) != len(COLUMNS):
                raise ValueError(f"{path} row {row}: expected {len(COLUMNS)} columns, got {len(fields)}")
            labels.append(_label(fields[0], f"{path} row {row}"))
            for column in (3, 4):
                yield _text(fields[column], f"{path} row {row}: the {COLUMNS[column]}")


def _label(field: bytes, where: str) -> int:
    try:
        label = float(field)
    except ValueError:
        label = -1.0
    if label not in (0.0, 1.0):
        raise ValueError(f"{where}: label must be 0.0 or 1.0, got {field[:40].decode(errors='replace')!r}")
    return int(label)


def _text(field: bytes, where: str) -> str:
    if not field:
        raise ValueError(f"{where} is empty")
    try:
        return field.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} is not UTF-8 at byte {error.start}") from None


def _paper(data: Array, where: str) -> str:
    """The text of a paper that was cut after a number of bytes, possibly within its last character."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data.tobytes())
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} is not UTF-8 at byte {error.start}") from None
    return text if text else _text(b"", where)


def _check_pairs(where: str, cited: Array, papers: int) -> None:
    """Refuses an empty list, and anything but pairs of different papers, given by their rows."""
    if cited.ndim != 2 or cited.shape[1] != 2 or not cited.size or cited.dtype.kind not in "iu":
        raise ValueError(f"{where} must be pairs of whole numbers (1 or more, 2), got {cited.dtype} {cited.shape}")
    wrong = np.flatnonzero(((cited < 0) | (cited >= papers)).any(1) | (cited[:, 0] == cited[:, 1]))
    if len(wrong):
        given = f"{cited[wrong[0]].tolist()} in row {wrong[0]}"
        raise ValueError(f"{where} must be two different rows each, of the {papers} papers, got {given}")


def stand_in_pairs(split: str, cited: Array, papers: int, where: str = "citation_pairs") -> tuple[Array, Array]:
    """Pairs of papers (count, 2) and labels: equally many with and without a citation; 80, 10 and 10 % by split.

    Two papers form a single pair, whichever cites the other.
    """
    source = np.random.default_rng(derive(0, "retrieval stand-in"))
    related: dict[tuple[int, int], tuple[int, int]] = {}
    for first, second in cited.tolist():
        related.setdefault(_either_way(first, second), (first, second))
    if len(related) < 5:
        raise ValueError(f"{where} must have at least 5 different pairs, got {len(related)}")
    if papers * (papers - 1) // 2 < 2 * len(related):
        raise ValueError(f"{where} must leave as many pairs of the {papers} papers unrelated: {len(related)} given")
    others: dict[tuple[int, int], tuple[int, int]] = {}
    while len(others) < len(related):
        first, second = source.integers(0, papers, 2).tolist()
        if first != second and _either_way(first, second) not in related:
            others.setdefault(_either_way(first, second), (first, second))
    pairs = np.array([*related.values(), *others.values()], np.int64)
    labels = np.repeat([1, 0], len(related))
    order = source.permutation(len(pairs))
    share = len(pairs) // 10
    parts = {"validation": order[:share], "test": order[share : 2 * share], "train": order[2 * share :]}
    return pairs[parts[split]], labels[parts[split]]


def _either_way(first: int, second: int) -> tuple[int, int]:
    return min(first, second), max(first, second)
