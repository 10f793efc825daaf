"""ListOps: official files and generated ones are read alike, and what is generated follows the rules."""

import csv
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from mgrade import Model, ModelConfig
from mgrade.tasks import listops
from mgrade.tasks.listops import CLOSE, END, MAX, SYMBOLS, ListOps

COUNT = 4000
# Shares of the values 0 to 9 among 50,000 expressions that a plain recursion made by the same rules.
SHARES = (0.169, 0.092, 0.080, 0.083, 0.091, 0.086, 0.079, 0.069, 0.087, 0.165)


@pytest.fixture(scope="module")
def generated():
    source = listops.distinct_expressions(seed=0)
    return [next(source) for _ in range(COUNT)]


def depth(ids):
    """How deep the digits of an expression lie; the root alone would be at 1."""
    level = deepest = 1
    for word in (SYMBOLS[index] for index in ids):
        level += word.startswith("[")
        level -= word == "]"
        deepest = max(deepest, level)
    return deepest


def evaluate(ids):
    words = iter([SYMBOLS[index] for index in ids])
    result = value_of(words)
    assert next(words, None) is None
    return result


def value_of(words, word=None):
    word = next(words) if word is None else word
    if word.isdigit():
        return int(word)
    arguments = []
    while (after := next(words)) != "]":
        arguments.append(value_of(words, after))
    assert 2 <= len(arguments) <= 10
    if word == "[MED":
        return int(np.median(arguments))
    return {"[MIN": min, "[MAX": max, "[SM": lambda found: sum(found) % 10}[word](arguments)


def law_of_lengths():
    """The probability of every length below 2000, of a tree by LRA's rules."""
    law = np.zeros(2000)
    law[1] = 1
    for _ in range(9):
        above, power = np.zeros(2000), law
        above[1] = 0.75
        for _ in range(2, 11):
            power = np.convolve(power, law)[:2000]
            above[2:] += 0.25 / 9 * power[:-2]
        law = above
    return law


def test_values_are_those_of_a_plain_evaluator(generated):
    for ids, label in generated[:300]:
        assert evaluate(ids) == label


def test_expressions_are_distinct_deep_and_of_the_right_length(generated):
    assert len({ids for ids, _ in generated}) == COUNT
    lengths = [len(ids) for ids, _ in generated]
    assert min(lengths) > 500
    assert max(lengths) < 2000
    assert {depth(ids) for ids, _ in generated[:300]} == {10}


def test_lengths_follow_their_law(generated):
    law = law_of_lengths()
    law[:501] = 0
    law /= law.sum()
    lengths = np.array([len(ids) for ids, _ in generated])
    support = np.arange(2000)
    mean = (law * support).sum()
    deviation = np.sqrt((law * (support - mean) ** 2).sum())
    assert mean == pytest.approx(1035, abs=1)
    assert abs(lengths.mean() - mean) < 4 * deviation / np.sqrt(COUNT)
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        quantile = np.searchsorted(law.cumsum(), share)
        exact = law[: quantile + 1].sum()
        assert abs((lengths <= quantile).mean() - exact) < 4 * np.sqrt(exact * (1 - exact) / COUNT)


def test_one_tree_in_twelve_has_the_right_length():
    trees = 20000
    lengths = listops.measure(listops.grow(np.random.default_rng(0), trees))[0]
    kept = ((lengths > 500) & (lengths < 2000)).mean()
    exact = law_of_lengths()[501:].sum()
    assert exact == pytest.approx(1 / 12.08, rel=1e-3)
    assert abs(kept - exact) < 4 * np.sqrt(exact / trees)


def test_values_have_their_shares(generated):
    shares = np.bincount([label for _, label in generated], minlength=10) / COUNT
    assert (np.abs(shares - SHARES) < 4 * np.sqrt(np.array(SHARES) / COUNT)).all()


def test_operators_and_digits_are_drawn_evenly(generated):
    counts = np.bincount(np.frombuffer(b"".join(ids for ids, _ in generated), np.uint8), minlength=len(SYMBOLS))
    for equal in (counts[listops.MIN : listops.SM + 1], counts[listops.ZERO : listops.ZERO + 10]):
        assert (np.abs(equal - equal.mean()) < 5 * np.sqrt(equal.mean())).all()
    assert counts[listops.CLOSE] == counts[listops.MIN : listops.SM + 1].sum()


def test_a_set_is_a_function_of_the_seed(tmp_path):
    heard = []
    listops.generate_set(tmp_path / "a.npz", 3, 30, 4, 5, progress=lambda *told: heard.append(told))
    listops.generate_set(tmp_path / "b.npz", 3, 20, 14, 5)
    listops.generate_set(tmp_path / "c.npz", 4, 30, 4, 5)
    a, b, c = (np.load(tmp_path / f"{name}.npz") for name in "abc")
    assert heard[-1] == (39, 39)
    assert [len(a[f"{split}_labels"]) for split in ("train", "validation", "test")] == [30, 4, 5]
    assert a["train_tokens"].dtype == np.uint8
    np.testing.assert_array_equal(a["test_tokens"], b["test_tokens"])
    np.testing.assert_array_equal(a["train_labels"][:20], b["train_labels"])
    assert not np.array_equal(a["train_tokens"], c["train_tokens"])


def official(folder, rows, name="train"):
    """A file as the Long Range Arena writes it."""
    (folder / "listops").mkdir(exist_ok=True)
    path = folder / "listops" / f"basic_{name}.tsv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(["Source", "Target"])
        writer.writerows(rows)
    return path


ROWS = (("( ( ( ( [MAX 2 ) 9 ) ( ( ( [MIN 4 ) 7 ) ] ) ) ] )", 9), ("( ( ( [SM 5 ) 8 ) ] )", 3), ("7", 7))


def test_official_files(tmp_path):
    for name in ("train", "val", "test"):
        official(tmp_path, ROWS, name)
    for split in ("train", "validation", "test"):
        values, labels, lengths = ListOps().read(split, tmp_path)
        assert values.shape == (3, 2048)
        assert values.dtype == np.uint8
        assert labels.tolist() == [9, 3, 7]
        assert lengths.tolist() == [9, 5, 2]
        words = [[SYMBOLS[index] for index in row[:length]] for row, length in zip(values, lengths, strict=True)]
        assert words[0] == ["[MAX", "2", "9", "[MIN", "4", "7", "]", "]", "<eos>"]
        assert words[1] == ["[SM", "5", "8", "]", "<eos>"]
        assert words[2] == ["7", "<eos>"]
        assert not values[0, 9:].any()
        assert [evaluate(row[: length - 1]) for row, length in zip(values, lengths, strict=True)] == labels.tolist()


def test_long_expressions_are_cut_before_the_end(tmp_path):
    official(tmp_path, ROWS)
    values, _, lengths = ListOps(max_length=4).read("train", tmp_path)
    assert lengths.tolist() == [4, 4, 2]
    assert values[:2, 3].tolist() == [END, END]


def test_generated_files_are_read_as_they_were_made(tmp_path):
    listops.generate_set(tmp_path / "listops.npz", 0, 6, 2, 2)
    values, labels, lengths = ListOps().read("train", tmp_path)
    assert values.shape == (6, 2048)
    for row, label, length in zip(values, labels, lengths, strict=True):
        assert row[length - 1] == END
        assert evaluate(row[: length - 1]) == label
    assert len(ListOps().read("validation", tmp_path).labels) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Target\tSource\n", "row 1: the columns must be Source and Target"),
        ("Source\tTarget\n", "has no rows"),
        ("Source\tTarget\n7\t7\n( [MAX 1 2 ] )\n", "row 3: expected 2 columns, got 1"),
        ("Source\tTarget\n7\t10\n", "row 2: Target must be from 0 to 9, got '10'"),
        ("Source\tTarget\n7\tx\n", "row 2: Target must be from 0 to 9, got 'x'"),
        ("Source\tTarget\n7\t" + "x" * 9999 + "\n", "row 2: Target must be from 0 to 9, got '" + "x" * 40 + "'"),
        ("Source\tTarget\n( )\t7\n", "row 2: Source is empty"),
        ("Source\tTarget\n[FIRST 1 2 ]\t1\n", "row 2: Source must hold"),
        ("Source\tTarget\n[MAX 12 2 ]\t2\n", "row 2: Source must hold"),
        ("Source\tTarget\n7\t7\n[MAX 1 2\t2\n", "row 3: Source must be one expression"),
        ("Source\tTarget\n] ] 3 [MAX\t2\n", "row 2: Source must be one expression"),
        ("Source\tTarget\n[MAX 1 2 ] 3\t2\n", "row 2: Source must be one expression"),
        ("Source\tTarget\n1 2\t2\n", "row 2: Source must be one expression"),
        ("Source\tTarget\n[SM ]\t1\n", "row 2: Source must be one expression in which every operator has arguments"),
        ("Source\tTarget\n[MAX 1 [MIN ] ]\t1\n", "row 2: Source must be one expression"),
        ("Source\tTarget\n\x03 2 9 ]\t9\n", "row 2: Source has a control character, 3"),
    ],
)
def test_malformed_official_files(tmp_path, text, message):
    path = official(tmp_path, ())
    path.write_text(text)
    with pytest.raises(ValueError, match=r"^[^\n]*$") as error:
        ListOps().read("train", tmp_path)
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)


def test_malformed_generated_files(tmp_path):
    path = tmp_path / "listops.npz"
    good = {"train_tokens": np.uint8([8, 9]), "train_offsets": np.array([0, 1, 2]), "train_labels": np.array([1, 2])}
    for name, wrong, message in (
        ("train_tokens", np.uint8([8, 30]), "train row 1: no symbol has the id 30"),
        ("train_tokens", np.array([8, 7.5]), r"listops\.npz: train tokens must be whole numbers on one axis"),
        ("train_tokens", np.uint8([[8], [9]]), r"listops\.npz: train tokens must be whole numbers on one axis"),
        ("train_offsets", np.array([0, 2, 2]), r"listops\.npz: train row 1 is empty"),
        ("train_offsets", np.array([0, 1, 3]), "train offsets do not divide 2 symbols into 2 rows"),
        ("train_labels", np.array([1, 10]), "train row 1: label must be from 0 to 9, got 10"),
        ("train_tokens", np.uint8([8, CLOSE]), "train row 1 must be one expression in which every operator has arg"),
        ("train_tokens", np.uint8([MAX, CLOSE]), "train row 0 must be one expression"),
    ):
        np.savez(path, **{**good, name: wrong})
        with pytest.raises(ValueError, match=message):
            ListOps().read("train", tmp_path)
    with pytest.raises(ValueError, match="has no array 'test_tokens'"):
        ListOps().read("test", tmp_path)
    path.write_bytes(b"PK not really")
    with pytest.raises(ValueError, match="cannot be read"):
        ListOps().read("train", tmp_path)


def test_missing_files_are_named_and_how_to_make_them(tmp_path):
    with pytest.raises(ValueError, match="mgrade data generate listops --out") as error:
        ListOps().read("train", tmp_path)
    assert str(tmp_path) in str(error.value)
    official(tmp_path, ROWS)
    with pytest.raises(ValueError, match=r"basic_val.tsv is missing"):
        ListOps().read("validation", tmp_path)


def test_options_are_checked():
    with pytest.raises(ValueError, match="max_length must be a whole number of at least 2, got 1"):
        ListOps(max_length=1)
    with pytest.raises(ValueError, match="train must be a whole number of at least 1, got 0"):
        listops.generate_set(Path("nowhere.npz"), 0, train=0)
    with pytest.raises(ValueError, match="validation and test together must be at most 4000000, got 4000002"):
        listops.generate_set(Path("nowhere.npz"), 0, train=4_000_000, validation=1, test=1)
    assert not Path("nowhere.npz").exists()


def test_a_model_is_judged_and_padding_does_not_matter(tmp_path, monkeypatch):
    official(tmp_path, ROWS)
    monkeypatch.setenv("MGRADE_DATA", str(tmp_path))
    task = ListOps(max_length=12)
    values, labels, lengths = task.examples("train", 0, torch.device("cpu"))
    model = Model(ModelConfig.mgrade(**task.model_fields(), dim=8, depth=2, max_delay=4, taps=2))
    loss, count = task.loss(model, values, labels, lengths)
    assert torch.isfinite(loss)
    assert count == 3
    other = torch.where(torch.arange(12) < lengths[:, None], values, 5)
    assert not torch.equal(other, values)
    logits = [task._logits(model, ids, labels, lengths) for ids in (values, other)]
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=0)
    judged = task.judge(model, other, labels, lengths)
    assert judged["accuracy"][1] == 3
    assert torch.isfinite(judged["surprise"][0])


@pytest.mark.skipif(
    not (Path(os.environ.get("MGRADE_DATA", "")) / "listops.npz").is_file(), reason="MGRADE_DATA has no listops.npz"
)
def test_the_set_at_hand():
    values, labels, lengths = ListOps().read("test", Path(os.environ["MGRADE_DATA"]))
    for row, label, length in zip(values[:50], labels, lengths, strict=False):
        assert evaluate(row[: length - 1]) == label
