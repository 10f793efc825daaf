"""Text: reviews from the official folder and from the compact file become the same characters."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from mgrade import Model, ModelConfig
from mgrade.tasks.text import END, PAD, UNKNOWN, Text

# Characters that occur 15 times in the training set are " ", "a", "b" and "é"; "z", "!" and "😀" do not.
REVIEWS = {
    ("train", "neg"): ("a" * 15 + "z", "b" * 10),
    ("train", "pos"): ("b" * 5 + " " * 15, "é" * 15 + "!😀"),
    ("test", "neg"): ("ab",),
    ("test", "pos"): ("é😀aΩ", "b z"),
}
IDS = {character: 3 + index for index, character in enumerate(" abé")}


def official(folder, reviews=REVIEWS):
    for (split, name), texts in reviews.items():
        place = folder / "aclImdb" / split / name
        place.mkdir(parents=True)
        for index, text in enumerate(texts):
            (place / f"{index}_7.txt").write_bytes(text.encode())


def compact(folder, reviews=REVIEWS):
    arrays = {}
    for split in ("train", "test"):
        texts = [text.encode() for name in ("neg", "pos") for text in reviews[split, name]]
        arrays[f"{split}_bytes"] = np.frombuffer(b"".join(texts), np.uint8)
        arrays[f"{split}_offsets"] = np.cumsum([0, *map(len, texts)])
        arrays[f"{split}_labels"] = np.repeat([0, 1], [len(reviews[split, name]) for name in ("neg", "pos")])
    np.savez(folder / "imdb.npz", **arrays)
    return arrays


@pytest.mark.parametrize("layout", [official, compact])
def test_reviews_become_ids_of_characters(tmp_path, layout):
    layout(tmp_path)
    values, labels, lengths = Text().read("test", tmp_path)
    assert values.shape == (3, 4096)
    assert values.dtype == np.uint8
    assert labels.tolist() == [0, 1, 1]
    assert lengths.tolist() == [3, 5, 4]
    assert values[0, :4].tolist() == [IDS["a"], IDS["b"], END, PAD]
    assert values[1, :6].tolist() == [IDS["é"], UNKNOWN, IDS["a"], UNKNOWN, END, PAD]
    assert values[2, :5].tolist() == [IDS["b"], IDS[" "], UNKNOWN, END, PAD]
    train = Text().read("train", tmp_path)
    assert train.labels.tolist() == [0, 0, 1, 1]
    assert train.lengths.tolist() == [17, 11, 21, 18]
    assert train.values[3, 13:19].tolist() == [IDS["é"], IDS["é"], UNKNOWN, UNKNOWN, END, PAD]


def test_what_is_cut_off_does_not_count(tmp_path):
    official(tmp_path)
    values, _, lengths = Text(max_length=16).read("train", tmp_path)
    assert lengths.tolist() == [16, 11, 16, 16]
    # of " ", 10 are left: only "a", "b" and "é" are in the vocabulary
    assert values[2].tolist() == [4] * 5 + [UNKNOWN] * 10 + [END]


def test_a_vocabulary_that_is_too_large_is_refused_with_its_size(tmp_path):
    official(tmp_path)
    Text(vocabulary=7).read("train", tmp_path)
    with pytest.raises(ValueError, match="vocabulary must be at least the 7 of the training set, got 6"):
        Text(vocabulary=6).read("test", tmp_path)
    assert Text(vocabulary=300).read("test", tmp_path).values.dtype == np.int32


def message_of(folder, split="train"):
    with pytest.raises(ValueError, match=r"^[^\n]*$") as error:
        Text().read(split, folder)
    return str(error.value)


def test_malformed_folders(tmp_path):
    assert "neither aclImdb/ nor imdb.npz" in message_of(tmp_path)
    official(tmp_path)
    folder = tmp_path / "aclImdb" / "train" / "pos"
    (folder / "0_7.txt").write_bytes(b"")
    assert message_of(tmp_path) == f"{folder / '0_7.txt'}: the document is empty"
    (folder / "0_7.txt").write_bytes(b"caf\xe9 noir")
    assert message_of(tmp_path) == f"{folder / '0_7.txt'}: not UTF-8 at byte 3"
    (folder / "0_7.txt").write_bytes("é".encode()[:1])
    (folder / "1_7.txt").write_bytes("é".encode()[1:])
    assert message_of(tmp_path) == f"{folder / '1_7.txt'}: not UTF-8 at byte 0"
    (folder / "2_7.txt").mkdir()
    assert message_of(tmp_path) == f"{folder / '2_7.txt'} cannot be read: Is a directory"
    (folder / "2_7.txt").rmdir()
    for path in folder.glob("*"):
        path.unlink()
    assert message_of(tmp_path) == f"{folder} has no reviews (*.txt)"


def test_malformed_compact_files(tmp_path):
    good, path = compact(tmp_path), tmp_path / "imdb.npz"
    labels = good["train_labels"].copy()
    labels[2] = 2
    np.savez(path, **{**good, "train_labels": labels})
    assert message_of(tmp_path) == f"{path}: train row 2: label must be from 0 to 1, got 2"
    np.savez(path, **{**good, "train_offsets": good["train_offsets"][:-1]})
    assert "train offsets do not divide" in message_of(tmp_path)
    np.savez(path, **{**good, "train_bytes": good["train_bytes"].astype(float)})
    assert message_of(tmp_path).startswith(f"{path}: train bytes must be bytes on one axis, 1 or more, got float64")
    np.savez(path, **{**good, "train_offsets": np.array([0, 0, *good["train_offsets"][2:]])})
    assert message_of(tmp_path) == f"{path}: train row 0 is empty"
    data = good["train_bytes"].copy()
    data[good["train_offsets"][1] + 4] = 255
    np.savez(path, **{**good, "train_bytes": data})
    assert message_of(tmp_path) == f"{path}: train row 1: not UTF-8 at byte 4"
    np.savez(path, **{name: array for name, array in good.items() if name != "test_bytes"})
    assert message_of(tmp_path, "test") == f"{path} has no array 'test_bytes'"


def test_options_are_checked():
    with pytest.raises(ValueError, match="max_length must be a whole number of at least 2, got 0"):
        Text(max_length=0)
    with pytest.raises(ValueError, match="vocabulary must be a whole number of at least 4, got 3"):
        Text(vocabulary=3)


def test_a_model_is_judged_and_padding_does_not_matter(tmp_path, monkeypatch):
    official(tmp_path)
    monkeypatch.setenv("MGRADE_DATA", str(tmp_path))
    task = Text(max_length=24, held_out=0.25)
    device = torch.device("cpu")
    assert len(task.examples("validation", 0, device)[0]) == 1
    values, labels, lengths = task.examples("train", 0, device)
    model = Model(ModelConfig.mgrade(**task.model_fields(), dim=8, depth=2, max_delay=4, taps=2))
    loss, count = task.loss(model, values, labels, lengths)
    assert torch.isfinite(loss)
    assert count == 3
    other = torch.where(torch.arange(24) < lengths[:, None], values, 5)
    logits = [task._logits(model, ids, labels, lengths) for ids in (values, other)]
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=0)
    judged = task.judge(model, other, labels, lengths)
    assert judged["accuracy"][1] == 3
    assert torch.isfinite(judged["surprise"][0])


@pytest.mark.skipif(
    not (Path(os.environ.get("MGRADE_DATA", "")) / "imdb.npz").is_file(), reason="MGRADE_DATA has no imdb.npz"
)
def test_the_reviews_at_hand():
    values, labels, lengths = Text().read("train", Path(os.environ["MGRADE_DATA"]))
    assert np.bincount(labels).tolist() == [12500, 12500]
    assert values.max() + 1 == 134
    assert lengths.max() == 4096
