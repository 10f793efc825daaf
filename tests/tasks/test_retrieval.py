"""Retrieval: pairs of documents from the official files, and from the papers that stand in for them."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from mgrade import Model, ModelConfig
from mgrade.tasks.retrieval import Retrieval, stand_in_pairs
from mgrade.tasks.text import END, PAD, UNKNOWN
from mgrade.train import launch, load_recipe

ROWS = (
    ("1.0", "P01-1001", "P02-1002", "A grammar.", 'The "parser"'),
    ("0.0", "P01-1001", "W03-0003", "A grammar.", "~café"),
    ("1.0", "E12-1000", "W03-0003", "b'x'", " "),
)


def official(folder, rows=ROWS, name="train"):
    (folder / "aan").mkdir(exist_ok=True)
    path = folder / "aan" / f"new_aan_pairs.{name}.tsv"
    path.write_bytes("".join("\t".join(row) + "\n" for row in rows).encode())
    return path


def papers(folder, count=12, text="A paper é", **changes):
    """A file as the compact one is: its texts may end within a character."""
    texts = [f"{index} {text}".encode()[:-1] for index in range(count)]
    cited = np.stack([np.arange(10), np.arange(1, 11)], 1).astype(np.int32)
    arrays = {
        "bytes": np.frombuffer(b"".join(texts), np.uint8),
        "offsets": np.cumsum([0, *map(len, texts)]),
        "ids": np.array([f"P01-{index}" for index in range(count)]),
        "citation_pairs": cited,
    }
    np.savez(folder / "acl_papers.npz", **{**arrays, **changes})


def ids(text):
    return [ord(character) - 29 if " " <= character <= "~" else UNKNOWN for character in text] + [END]


def test_official_files(tmp_path):
    for name in ("train", "eval", "test"):
        official(tmp_path, name=name)
    for split in ("train", "validation", "test"):
        values, labels, lengths = Retrieval().read(split, tmp_path)
        assert values.shape == (3, 2, 4000)
        assert values.dtype == np.uint8
        assert labels.tolist() == [1, 0, 1]
        assert lengths.tolist() == [[11, 13], [11, 6], [5, 2]]
        for row, fields in enumerate(ROWS):
            for which in (0, 1):
                length = lengths[row, which]
                assert values[row, which, :length].tolist() == ids(fields[3 + which])
                assert (values[row, which, length:] == PAD).all()
    assert values.max() == 97


def test_long_documents_are_cut_and_other_characters_unknown(tmp_path):
    official(tmp_path)
    values, _, lengths = Retrieval(max_length=4, vocabulary=13).read("train", tmp_path)
    assert lengths.tolist() == [[4, 4], [4, 4], [4, 2]]
    assert values[2, 0].tolist() == [UNKNOWN, 10, UNKNOWN, END]
    wide = Retrieval(vocabulary=300).read("train", tmp_path).values
    assert wide.dtype == np.int32
    assert wide[1, 1, 4] == ord("é") - 29


def row(*fields):
    return ROWS[0], fields


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((), "is empty"),
        (row("1.0", "a", "b", "text"), "row 2: expected 5 columns, got 4"),
        (row("2.0", "a", "b", "text", "text"), "row 2: label must be 0.0 or 1.0, got '2.0'"),
        (row("yes", "a", "b", "text", "text"), "row 2: label must be 0.0 or 1.0, got 'yes'"),
        (row("y" * 9999, "a", "b", "text", "text"), "row 2: label must be 0.0 or 1.0, got '" + "y" * 40 + "'"),
        (row("0.0", "a", "b", "text", ""), "row 2: the second text is empty"),
    ],
)
def test_malformed_official_files(tmp_path, rows, message):
    path = official(tmp_path, rows)
    with pytest.raises(ValueError, match=r"^[^\n]*$") as error:
        Retrieval().read("train", tmp_path)
    assert str(error.value) == f"{path} {message}"


def test_bad_utf8_and_missing_files(tmp_path):
    with pytest.raises(ValueError, match=r"new_aan_pairs.train.tsv is missing"):
        Retrieval().read("train", tmp_path)
    path = official(tmp_path)
    path.write_bytes(b"0.0\ta\tb\tcaf\xe9\ttext\n")
    with pytest.raises(ValueError, match=r"row 1: the first text is not UTF-8 at byte 3$"):
        Retrieval().read("train", tmp_path)
    papers(tmp_path)
    with pytest.raises(ValueError, match=r"new_aan_pairs.eval.tsv is missing"):
        Retrieval().read("validation", tmp_path)


def test_papers_stand_in(tmp_path, monkeypatch):
    papers(tmp_path)
    monkeypatch.setenv("MGRADE_DATA", str(tmp_path))
    task = Retrieval(max_length=16)
    sizes = {split: task.read(split, tmp_path) for split in ("train", "validation", "test")}
    assert [len(found.labels) for found in sizes.values()] == [16, 2, 2]
    assert sum(int(found.labels.sum()) for found in sizes.values()) == 10
    found = sizes["train"]
    assert found.values.shape == (16, 2, 16)
    # the last character of a paper was cut in two
    text = "".join(chr(29 + value) for value in found.values[0, 0, : found.lengths[0, 0] - 1])
    assert text.endswith(" A paper ")
    assert task.examine(None, 0, torch.device("cpu")) == {"stand_in": "acl_papers.npz"}
    assert task.remark() == "acl_papers.npz stands in for the official pairs: figures are not the paper's"
    official(tmp_path)
    assert task.examine(None, 0, torch.device("cpu")) == {}
    assert task.remark() == ""


def test_figures_of_a_stand_in_are_not_set_beside_the_papers(tmp_path, monkeypatch, capsys):
    papers(tmp_path)
    monkeypatch.setenv("MGRADE_DATA", str(tmp_path))
    settings = ["task.max_length=16", "model.dim=4", "train.steps=2", "train.batch=4", "train.evaluations=1"]
    recipe = load_recipe("retrieval/mgrade", settings)
    assert "test_accuracy" in recipe.paper
    for _ in range(2):  # when it ends, and when it is there already
        launch(recipe, seeds=[0], root=tmp_path)
        out = capsys.readouterr().out
        assert "acl_papers.npz stands in" in out or "is finished" in out
        assert "test_accuracy" in out
        assert "paper:" not in out


def test_pairs_that_stand_in_are_distinct_and_rightly_labelled():
    cited = np.array([[index, index + 1] for index in range(40)])
    parts = [stand_in_pairs(split, cited, 50) for split in ("train", "validation", "test")]
    pairs = [(*pair, label) for found, labels in parts for pair, label in zip(found.tolist(), labels, strict=True)]
    assert len(set(pairs)) == 80
    for first, second, label in pairs:
        assert first != second
        assert (abs(first - second) == 1 and min(first, second) < 40) == bool(label)


def test_two_papers_are_one_pair_whichever_cites_the_other():
    one_way = [[index, index + 1] for index in range(40)]
    cited = np.array(one_way + [pair[::-1] for pair in one_way])
    parts = [stand_in_pairs(split, cited, 50)[0] for split in ("train", "validation", "test")]
    pairs = [tuple(sorted(pair)) for found in parts for pair in found.tolist()]
    assert len(pairs) == len(set(pairs)) == 80


def test_pairs_are_whole_numbers_of_any_size(tmp_path):
    papers(tmp_path)
    expected = Retrieval(max_length=16).read("train", tmp_path)
    papers(tmp_path, citation_pairs=np.stack([np.arange(10), np.arange(1, 11)], 1).astype(np.uint64))
    for one, other in zip(expected, Retrieval(max_length=16).read("train", tmp_path), strict=True):
        assert np.array_equal(one, other)


def test_malformed_stand_ins(tmp_path):
    papers(tmp_path, citation_pairs=np.array([[0, 12]]))
    with pytest.raises(ValueError, match=r"must be two different rows each, of the 12 papers, got \[0, 12\] in row 0"):
        Retrieval().read("train", tmp_path)
    papers(tmp_path, citation_pairs=np.array([[0, 1], [3, 3]]))
    with pytest.raises(ValueError, match=r"must be two different rows each, of the 12 papers, got \[3, 3\] in row 1"):
        Retrieval().read("train", tmp_path)
    papers(tmp_path, count=5, citation_pairs=np.array([[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]))
    with pytest.raises(ValueError, match=r"acl_papers\.npz: citation_pairs must leave"):
        Retrieval().read("train", tmp_path)
    papers(tmp_path, citation_pairs=np.array([[0, 1], [1, 0], [0, 2], [0, 3], [1, 2]]))
    with pytest.raises(ValueError, match="citation_pairs must have at least 5 different pairs, got 4"):
        Retrieval().read("train", tmp_path)
    papers(tmp_path, bytes=np.full(12 * 11 + 2, 255, np.uint8))
    with pytest.raises(ValueError, match="row 0 is not UTF-8 at byte 0"):
        Retrieval().read("train", tmp_path)
    papers(tmp_path, offsets=np.array([0, 3]))
    with pytest.raises(ValueError, match="papers offsets do not divide"):
        Retrieval().read("train", tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"citation_pairs": np.array([[0.0, 1.0]])},
            r"citation_pairs must be pairs of whole numbers .*float64 \(1, 2\)",
        ),
        ({"citation_pairs": np.zeros((0, 2), int)}, r"citation_pairs must be pairs of whole numbers .*int64 \(0, 2\)"),
        (
            {"offsets": np.array([], int)},
            r"papers offsets must be whole numbers on one axis, 1 or more, got int64 \(0,\)",
        ),
        ({"offsets": np.array(7)}, r"papers offsets must be whole numbers on one axis, 1 or more, got int64 \(\)"),
        ({"bytes": np.zeros(134)}, r"bytes must be bytes on one axis, 1 or more, got float64 \(134,\)"),
    ],
)
def test_stand_ins_of_another_kind_are_refused_by_file(tmp_path, changes, message):
    papers(tmp_path, **changes)
    with pytest.raises(ValueError, match=rf"acl_papers\.npz: {message}"):
        Retrieval().read("train", tmp_path)


def test_options_are_checked():
    with pytest.raises(ValueError, match="max_length must be a whole number of at least 2, got 1"):
        Retrieval(max_length=1)
    with pytest.raises(ValueError, match=r"vocabulary must be a whole number of at least 4, got 1\.5"):
        Retrieval(vocabulary=1.5)


def test_a_model_is_judged_and_padding_does_not_matter(tmp_path, monkeypatch):
    official(tmp_path)
    monkeypatch.setenv("MGRADE_DATA", str(tmp_path))
    task = Retrieval(max_length=16)
    values, labels, lengths = task.examples("train", 0, torch.device("cpu"))
    model = Model(ModelConfig.mgrade(**task.model_fields(), dim=8, depth=2, max_delay=4, taps=2))
    loss, count = task.loss(model, values, labels, lengths)
    assert torch.isfinite(loss)
    assert count == 3
    other = torch.where(torch.arange(16) < lengths[..., None], values, 5)
    logits = [task._logits(model, ids, labels, lengths) for ids in (values, other)]
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=0)
    judged = task.judge(model, other, labels, lengths)
    assert judged["accuracy"][1] == 3
    assert torch.isfinite(judged["surprise"][0])


def test_each_pair_is_judged_on_its_own(tmp_path, monkeypatch):
    official(tmp_path)
    monkeypatch.setenv("MGRADE_DATA", str(tmp_path))
    task = Retrieval(max_length=16)
    batch = task.examples("train", 0, torch.device("cpu"))
    model = Model(ModelConfig.mgrade(**task.model_fields(), dim=8, depth=1, max_delay=4, taps=2))
    single = sum(task.loss(model, *(tensor[row : row + 1] for tensor in batch))[0] for row in range(3))
    torch.testing.assert_close(task.loss(model, *batch)[0], single)


@pytest.mark.skipif(
    not (Path(os.environ.get("MGRADE_DATA", "")) / "acl_papers.npz").is_file(),
    reason="MGRADE_DATA has no acl_papers.npz",
)
def test_the_papers_at_hand(tmp_path):
    (tmp_path / "acl_papers.npz").symlink_to(Path(os.environ["MGRADE_DATA"]).resolve() / "acl_papers.npz")
    values, labels, lengths = Retrieval().read("train", tmp_path)
    assert values.shape[1:] == (2, 4000)
    assert 0.45 < labels.mean() < 0.55
    assert (values == UNKNOWN).sum() < 0.01 * lengths.sum()
