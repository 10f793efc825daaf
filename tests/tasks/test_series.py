"""Japanese Vowels and Basic Motions: from the archive's files, compact ones or the package aeon; what is refused."""

import importlib.util
import sys

import numpy as np
import pytest
import torch

from mgrade.nn import Model, ModelConfig
from mgrade.tasks.folder import data_folder
from mgrade.tasks.series import PROBLEMS, Motions, Vowels

CPU = torch.device("cpu")
TASKS = [Vowels(), Motions()]
HAS_AEON = importlib.util.find_spec("aeon") is not None


@pytest.fixture(autouse=True)
def _without_aeon(request, monkeypatch):
    """Most tests are of files of their own."""
    if "real" not in request.node.name:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def some(task, each=4):
    """Random series of every class by split, rounded as the files are: [(values (time, channels), label)]."""
    source = np.random.default_rng(0)
    longest = 29 if isinstance(task, Vowels) else 9
    made = {}
    for split in ("train", "test"):
        rows = [(label, int(source.integers(7, longest + 1))) for label in range(task.classes) for _ in range(each)]
        values = [source.normal(3, 2, (size, task.channels)).round(6).astype(np.float32) for _, size in rows]
        made[split] = [(one, label) for one, (label, _) in zip(values, rows, strict=True)]
    return made


def write_ts(task, folder, made):
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in made.items():
        lines = [
            "#The archive's files begin with some words.",
            f"@problemName {task.problem}",
            "@timeStamps false",
            "@missing false",
            "@univariate false",
            f"@dimensions {task.channels}",
            "@equalLength false",
            f"@classLabel true {' '.join(reversed(task.names))}",
            "@data",
        ]
        for values, label in rows:
            channels = (",".join(f"{value:.6f}" for value in channel) for channel in values.T)
            lines.append(":".join((*channels, task.names[label])))
        (folder / f"{task.problem}_{split.upper()}.ts").write_text("\n".join(lines) + "\n")


def compact(task, made):
    """The arrays of a compact file."""
    found = {"class_names": np.array(task.names)}
    for split, rows in made.items():
        found[f"{split}_values"] = np.concatenate([values for values, _ in rows])
        found[f"{split}_offsets"] = np.cumsum([0, *(len(values) for values, _ in rows)])
        found[f"{split}_labels"] = np.array([label for _, label in rows], np.uint8)
    return found


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("form", ["ts", "ts in a folder", "compact", "aeon"])
def test_all_forms_hold_the_same_standardised_by_the_training_set(tmp_path, monkeypatch, task, form):
    made = some(task)
    if form == "compact":
        np.savez(tmp_path / f"{task.problem}.npz", **compact(task, made))
    elif form == "aeon":
        package = tmp_path / "packages" / "aeon"
        write_ts(task, package / "datasets" / "data" / task.problem, made)
        (package / "__init__.py").write_text("raise RuntimeError('it was imported')")
        monkeypatch.undo()
        monkeypatch.syspath_prepend(package.parent)
        monkeypatch.delitem(sys.modules, "aeon", raising=False)
    else:
        write_ts(task, tmp_path / task.problem if form == "ts in a folder" else tmp_path, made)
    steps = np.concatenate([values for values, _ in made["train"]]).astype(np.float64)
    for split, rows in made.items():
        found = task.read(split, tmp_path)
        assert found.labels.tolist() == [label for _, label in rows]
        assert found.lengths.tolist() == [len(values) for values, _ in rows]
        assert found.values.dtype == np.float32
        assert found.values.shape == (len(rows), max(found.lengths), task.channels)
        for (values, _), row in zip(rows, found.values, strict=True):
            expected = (values - steps.mean(0)) / steps.std(0)
            np.testing.assert_allclose(row[: len(values)], expected, rtol=0, atol=1e-5)
            assert not row[len(values) :].any()
    assert "aeon" not in sys.modules


def test_the_archives_files_go_before_compact_ones(tmp_path):
    task = Vowels()
    np.savez(tmp_path / "JapaneseVowels.npz", **compact(task, some(task)))
    assert task.source(tmp_path).name == "JapaneseVowels.npz"
    write_ts(task, tmp_path / "JapaneseVowels", some(task))
    assert task.source(tmp_path) == tmp_path / "JapaneseVowels"


def test_a_channel_that_never_changes_becomes_zero(tmp_path):
    task = Motions()
    made = {
        split: [(values * [0, 1, 1, 1, 1, 1], label) for values, label in rows] for split, rows in some(task).items()
    }
    write_ts(task, tmp_path, made)
    assert not task.read("train", tmp_path).values[..., 0].any()


@pytest.mark.parametrize("task", TASKS)
def test_a_tenth_is_held_out_and_a_model_trains(tmp_path, monkeypatch, task):
    write_ts(task, tmp_path, some(task, each=10))
    monkeypatch.setenv("MGRADE_DATA", str(tmp_path))
    count = 10 * task.classes
    sizes = [len(task.examples(split, 0, CPU)[1]) for split in ("train", "validation", "test")]
    assert sizes == [count * 9 // 10, count // 10, count]
    fields = task.model_fields()
    assert fields == {"inputs": task.channels, "outputs": task.classes, "tokens": False, "readout": "mean"}
    model = Model(ModelConfig(dim=4, depth=1, taps=2, max_delay=4, **fields))
    batch = tuple(tensor[:4] for tensor in task.examples("train", 0, CPU))
    assert len(batch) == 3
    total, number = task.loss(model, *batch)
    (total / number).backward()
    assert number == 4
    assert torch.isfinite(total)
    with torch.no_grad():
        assert torch.isfinite(task.judge(model, *batch)["surprise"][0])


def test_what_is_missing_is_said_with_what_gets_it(tmp_path):
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        Vowels().read("train", tmp_path)
    assert str(refusal.value) == (
        f"{tmp_path} has neither JapaneseVowels_TRAIN.ts nor JapaneseVowels.npz, and the package aeon, which has a"
        " copy, is not installed: `pip install --no-deps aeon` gets it, or --data names the folder of the files"
    )
    task = Motions()
    write_ts(task, tmp_path, some(task))
    (tmp_path / "BasicMotions_TEST.ts").unlink()
    with pytest.raises(ValueError, match=r"BasicMotions_TEST\.ts is missing, but the other of the two files exists"):
        task.read("test", tmp_path)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("class_names", lambda names: names[0], "class_names must be .*, got Badminton$"),
        ("class_names", lambda names: names[::-1], "class_names must be Badminton Running Standing Walking, got Walk"),
        (
            "train_values",
            lambda values: values[:, :5],
            r"train_values must be float32 \(steps, 6\), got float32 \(\d+, 5\)",
        ),
        ("train_values", lambda values: values.astype(np.float64), "train_values must be float32 .*, got float64"),
        (
            "train_values",
            lambda values: np.where(np.arange(len(values))[:, None] == len(values) - 1, np.float32(np.nan), values),
            "train row 15: a series must have finite numbers",
        ),
        ("train_values", lambda values: values[1:], r"train offsets do not divide \d+ symbols into 16 rows"),
        ("train_labels", lambda labels: labels + 1, "train row 12: label must be from 0 to 3, got 4"),
        ("train_labels", lambda labels: labels / 2, r"train row 4: label must be from 0 to 3, got 0\.5"),
        (
            "train_offsets",
            lambda offsets: np.array([0, 0, *offsets[2:]]),
            "train row 0 is empty",
        ),
    ],
)
def test_compact_files_of_another_kind_are_refused_by_name(tmp_path, name, change, message):
    task = Motions()
    found = compact(task, some(task))
    np.savez(tmp_path / "BasicMotions.npz", **{**found, name: change(found[name])})
    with pytest.raises(ValueError, match=rf"BasicMotions\.npz: {message}"):
        task.read("train", tmp_path)


def assert_real(task, folder):
    """Counts as published."""
    sizes = {"vowels": (270, 370, 7, 29), "motions": (40, 40, 100, 100)}
    name = next(name for name, other in PROBLEMS.items() if other == task)
    train, test = task.read("train", folder), task.read("test", folder)
    lengths = np.concatenate([train.lengths, test.lengths])
    assert (len(train.labels), len(test.labels), lengths.min(), lengths.max()) == sizes[name]
    assert len(set(np.bincount(train.labels))) == 1
    steps = np.concatenate([row[:size] for row, size in zip(train.values, train.lengths, strict=True)])
    np.testing.assert_allclose(steps.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(steps.std(0), 1, atol=1e-4)


@pytest.mark.parametrize("task", TASKS)
def test_a_folder_that_was_named_must_be_there(tmp_path, monkeypatch, task):
    monkeypatch.setenv("MGRADE_DATA", str(tmp_path / "typo"))
    with pytest.raises(ValueError, match=r"^MGRADE_DATA must be a folder, got .*typo$"):
        task.examples("train", 0, torch.device("cpu"))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.skipif(not HAS_AEON, reason="needs the package aeon")
def test_real_copies_in_aeon(tmp_path, task):
    assert_real(task, tmp_path)
    assert "aeon" not in sys.modules


@pytest.mark.skipif(
    not (data_folder() / "JapaneseVowels.npz").is_file(), reason="needs JapaneseVowels.npz in MGRADE_DATA"
)
def test_real_vowels():
    assert_real(Vowels(), data_folder())


@pytest.mark.skipif(not (data_folder() / "BasicMotions.npz").is_file(), reason="needs BasicMotions.npz in MGRADE_DATA")
def test_real_motions():
    assert_real(Motions(), data_folder())


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.skipif(
    not (HAS_AEON and (data_folder() / "JapaneseVowels.npz").is_file()),
    reason="needs the package aeon and JapaneseVowels.npz in MGRADE_DATA",
)
def test_real_copies_are_the_same_to_the_bit(tmp_path, task):
    for split in ("train", "test"):
        for one, other in zip(task.read(split, tmp_path), task.read(split, data_folder()), strict=True):
            assert np.array_equal(one, other)
