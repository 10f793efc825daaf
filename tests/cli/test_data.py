"""`mgrade data`: what is there, what is missing, and the command that gets it."""

import errno
import importlib.util
import json
import os
import shlex
import signal

import numpy as np
import pytest
import typer

from mgrade.cli import main
from mgrade.cli.data import data_app
from mgrade.tasks.folder import data_folder
from mgrade.tasks.images import Image
from mgrade.tasks.inventory import GENERATED
from mgrade.tasks.listops import ListOps
from mgrade.tasks.pathfinder import Pathfinder
from mgrade.tasks.series import PROBLEMS
from mgrade.tasks.sources import SOURCES
from mgrade.tasks.text import Text

COMMAND = typer.main.get_command(data_app)


@pytest.fixture(autouse=True)
def _without_aeon(monkeypatch):
    """Data comes from the data folder alone."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def call(*arguments):
    COMMAND(list(map(str, arguments)), standalone_mode=False)


def listed(capsys, folder):
    call("list", "--data", folder, "--json")
    return {row["name"]: row for row in json.loads(capsys.readouterr().out)["sources"]}


def test_an_empty_folder_lacks_everything_and_says_how_to_get_it(tmp_path, capsys):
    rows = listed(capsys, tmp_path)
    assert set(rows) == {*SOURCES, *GENERATED, *PROBLEMS}
    assert {row["state"] for row in rows.values()} == {"missing"}
    assert rows["mnist"]["command"] == f"mgrade data fetch mnist --data {tmp_path}"
    assert rows["listops"]["command"] == f"mgrade data generate listops --data {tmp_path}"
    assert rows["vowels"]["command"] == "pip install --no-deps aeon"
    assert rows["vowels"]["missing"] == ["JapaneseVowels_TRAIN.ts", "JapaneseVowels_TEST.ts"]


def test_a_folder_that_is_not_there_is_said_to_be_missing(tmp_path, capsys):
    for folder, said in ((tmp_path, ""), (tmp_path / "nope", ", which does not exist")):
        call("list", "--data", folder)
        first, _ = capsys.readouterr().out.replace("\n", " ").split("name", 1)
        assert first.strip().endswith(f"{folder.name}{said}")


def test_commands_that_are_shown_are_quoted_for_a_shell(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "my data; $HOME"
    monkeypatch.setenv("MGRADE_DATA", str(folder))
    shown = [row["command"] for name, row in listed(capsys, folder).items() if name not in PROBLEMS]
    for task in (ListOps(), Pathfinder(size=128, contour_length=6), Image(), Text()):
        with pytest.raises(ValueError, match="`mgrade data ") as refusal:
            task.read("train", folder)
        shown.append(str(refusal.value).split("`")[1])
    for command in shown:
        assert shlex.split(command)[:2] == ["mgrade", "data"]
        assert shlex.split(command)[-1] == str(folder)


def test_what_is_there_is_listed_in_full_in_part_or_in_its_compact_form(tmp_path, capsys):
    (tmp_path / "shd").mkdir()
    (tmp_path / "shd" / "shd_train.h5.gz").touch()
    (tmp_path / "cifar10_gray.npz").touch()
    (tmp_path / "pathfinder32" / "curv_contour_length_14").mkdir(parents=True)
    (tmp_path / "listops").mkdir()
    (tmp_path / "speech10_train.npz").touch()
    (tmp_path / "fsdd_8k.npz").touch()
    (tmp_path / "JapaneseVowels.npz").touch()
    (tmp_path / "BasicMotions_TEST.ts").touch()
    for need in SOURCES["imdb"].needs:
        (tmp_path / need).mkdir(parents=True)
    rows = listed(capsys, tmp_path)
    states = {name: row["state"] for name, row in rows.items() if row["state"] != "missing"}
    assert states == {
        "cifar10": "compact",
        "fsdd": "compact",
        "imdb": "there",
        "lra": "incomplete",
        "motions": "incomplete",
        "pathfinder": "there",
        "shd": "incomplete",
        "speech_commands": "incomplete",
        "vowels": "compact",
    }
    assert rows["shd"]["missing"] == ["shd/shd_test.h5"]
    assert rows["shd"]["in_the_way"] == [str(tmp_path / "shd")]
    assert rows["lra"]["in_the_way"] == [str(tmp_path / "listops")]
    assert rows["imdb"]["in_the_way"] == rows["mnist"]["in_the_way"] == []
    assert rows["motions"]["missing"] == ["BasicMotions_TRAIN.ts"]
    assert rows["cifar10"]["there"] == ["cifar10_gray.npz"]
    assert rows["cifar10"]["only_for"] == "image"
    assert rows["fsdd"]["only_for"] is None
    assert rows["imdb"]["command"] is None


def test_what_training_would_read_first_decides(tmp_path, capsys):
    (tmp_path / "listops").mkdir()
    (tmp_path / "listops" / "basic_test.tsv").touch()
    (tmp_path / "pathfinder32").mkdir()
    (tmp_path / "pathfinder32.npz").touch()
    (tmp_path / "pathfinder128.npz").touch()
    rows = listed(capsys, tmp_path)
    assert [rows[name]["state"] for name in ("listops", "pathfinder", "pathx")] == ["incomplete", "incomplete", "there"]
    assert rows["listops"]["missing"] == ["listops/basic_train.tsv", "listops/basic_val.tsv"]
    assert rows["pathfinder"]["missing"] == ["pathfinder32/curv_contour_length_14"]
    (tmp_path / "cifar-10-batches-bin").mkdir()
    (tmp_path / "cifar10_gray.npz").touch()
    assert listed(capsys, tmp_path)["cifar10"]["state"] == "incomplete"
    with pytest.raises(ValueError, match=r"data_batch_1\.bin is missing"):
        Image().read("train", tmp_path)
    (tmp_path / "pathfinder32").rmdir()
    assert listed(capsys, tmp_path)["pathfinder"]["state"] == "there"


def test_the_table_shows_the_same(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MGRADE_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    call("list")
    out = capsys.readouterr().out
    assert out.startswith("data folder: ")
    assert all(name in out for name in (*SOURCES, *GENERATED, *PROBLEMS))
    assert "mgrade data fetch cifar10" in out
    odd = tmp_path / "[red]a[/x] :smile:"
    call("list", "--data", odd)
    out = capsys.readouterr().out
    assert "[red]a[/x] :smile:" in out.replace("\n", "")
    (tmp_path / "shd").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MGRADE_DATA", ".")
    call("list")
    assert "move shd away, then mgrade data fetch shd" in capsys.readouterr().out


def test_a_fetch_names_its_place_or_refuses_in_one_line(tmp_path, capsys):
    for need in SOURCES["imdb"].needs:
        (tmp_path / need).mkdir(parents=True)
    call("fetch", "imdb", "--data", tmp_path)
    assert capsys.readouterr().out == f"imdb: {tmp_path / 'aclImdb'}\n"
    with pytest.raises(ValueError, match="for listops: mgrade data generate listops"):
        call("fetch", "listops", "--data", tmp_path)
    with pytest.raises(ValueError, match="for vowels: pip install --no-deps aeon"):
        call("fetch", "vowels", "--data", tmp_path)
    with pytest.raises(ValueError, match=r"name must be one of cifar10, .*, got 'cifar'"):
        call("fetch", "cifar", "--data", tmp_path)
    with pytest.raises(ValueError, match="sha256 must be 64 hexadecimal digits, got 'x'"):
        call("fetch", "cifar10", "--data", tmp_path, "--sha256", "x")


def test_listops_is_generated_where_the_task_reads_it(tmp_path, capsys):
    call("generate", "listops", "--data", tmp_path / "new", "--train", 8, "--validation", 3, "--test", 2, "--seed", 1)
    assert f"listops: {tmp_path / 'new' / 'listops.npz'}" in capsys.readouterr().out
    assert len(ListOps().read("train", tmp_path / "new").labels) == 8
    with pytest.raises(ValueError, match=r"listops\.npz exists already"):
        call("generate", "listops", "--data", tmp_path / "new")


@pytest.mark.parametrize(("name", "size"), [("pathfinder", 32), ("pathx", 128)])
def test_pathfinder_is_generated_where_the_task_reads_it(tmp_path, name, size):
    call("generate", name, "--out", tmp_path, "--count", 10)
    values = Pathfinder(size=size).read("train", tmp_path).values
    assert values.shape == (8, size * size)
    assert values.dtype == np.uint8


def test_a_file_for_a_data_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"file: must be a folder, is a file$"):
        call("generate", "listops", "--out", tmp_path / "file")


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", full)
    for name in ("listops", "pathfinder"):
        with pytest.raises(ValueError, match=rf"{name}\w*\.npz cannot be written: No space left on device$"):
            call("generate", name, "--out", tmp_path)
    assert not list(tmp_path.iterdir())


def full(_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_wrong_options_are_refused_by_name(tmp_path):
    for arguments, message in (
        (("text",), "name must be one of listops, pathfinder, pathx, got 'text'"),
        (("listops", "--seed", "-1"), "seed must be at least 0, got -1"),
        (("listops", "--count", "3"), "--count does not go with listops, got 3"),
        (("pathx", "--train", "3"), "--train does not go with pathx, got 3"),
        (("pathfinder", "--count", "5"), "count must be a whole number from 10 to 10000000, got 5"),
        (("pathx", "--count", "1000000000000"), "count must be a whole number from 10 to 10000000, got 10"),
        (("listops", "--train", "0"), "train must be a whole number of at least 1, got 0"),
        (("pathfinder", "--contour-length", "7"), "contour_length must be 6, 9 or 14, got 7"),
    ):
        with pytest.raises(ValueError, match=message):
            call("generate", *arguments, "--data", tmp_path / "new")
    assert not list(tmp_path.iterdir())


def test_an_interrupted_command_says_so_and_leaves_nothing(tmp_path, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("mgrade.tasks.pathfinder.generate", interrupted)
    with pytest.raises(SystemExit, match="130"):
        main(["data", "generate", "pathfinder", "--out", str(tmp_path)])
    assert capsys.readouterr().err == "mgrade: interrupted\n"
    assert not list(tmp_path.iterdir())


def test_a_terminated_command_tidies_up(tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("os.replace", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit, match="143"):
        main(["data", "generate", "pathfinder", "--out", str(tmp_path), "--count", "10"])
    assert not list(tmp_path.iterdir())
    assert signal.getsignal(signal.SIGTERM) is before
