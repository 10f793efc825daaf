"""What a run was made from is told with its result, and asked for when it is judged again."""

import json

import numpy as np
import pytest
import torch

from mgrade.cli import main
from mgrade.deploy import open_source
from mgrade.deploy.source import Source
from mgrade.tasks import Lorenz, Motions
from mgrade.tasks.listops import generate_set
from mgrade.train import Stopped, judge_run, launch, load_recipe
from mgrade.train.fingerprint import described

SETTINGS = ("model.dim=4", "model.depth=1", "train.epochs=1", "train.batch=8", "train.evaluations=1")


@pytest.fixture
def trained(tmp_path, monkeypatch):
    monkeypatch.setenv("MGRADE_DATA", str(tmp_path / "data"))
    generate_set(tmp_path / "data" / "listops.npz", 0, train=16, validation=4, test=6)
    (result,) = launch(load_recipe("listops/mgrade", SETTINGS), root=tmp_path)
    return json.loads(result.read_text()), tmp_path / "runs/listops/mgrade/seed0"


def test_a_result_has_the_sizes_and_digests_of_its_sets(trained):
    found, folder = trained
    assert {name: one["examples"] for name, one in found["data"].items()} == {"train": 16, "validation": 4, "test": 6}
    assert len({one["digest"] for one in found["data"].values()}) == 3
    assert json.loads((folder / "data.json").read_text()) == found["data"]


def test_a_run_is_judged_on_its_own_test_set_alone(trained, tmp_path, capsys):
    found, folder = trained
    assert judge_run(folder, "cpu")["test_accuracy"] == found["metrics"]["test_accuracy"]
    generate_set(tmp_path / "data" / "listops.npz", 1, train=16, validation=4, test=6)
    message = (
        f"{folder} was judged on another test set: 6 examples, digest {found['data']['test']['digest']}; this one has"
    )
    with pytest.raises(ValueError, match=message):
        judge_run(folder, "cpu")
    source = open_source(folder)
    assert isinstance(source, Source)
    with pytest.raises(ValueError, match=message):
        source.test_sequences(2)
    with pytest.raises(SystemExit) as leaving:
        main(["evaluate", str(folder)])
    assert leaving.value.code == 2
    assert message in capsys.readouterr().err
    (folder / "data.json").unlink()  # as of a run of an older version
    assert judge_run(folder, "cpu").keys() == {"test_accuracy", "test_surprise"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"test": {}}',
        '{"test": {"examples": "x", "digest": ""}}',
        '{"test": {"examples": 1e999, "digest": ""}}',
    ],
)
def test_a_damaged_file_is_named(trained, text):
    _, folder = trained
    (folder / "data.json").write_text(text)
    with pytest.raises(ValueError, match=r"data\.json: is not what a run keeps of its data: "):
        judge_run(folder, "cpu")


def test_other_figures_are_another_set(tmp_path, monkeypatch):
    monkeypatch.setenv("MGRADE_DATA", str(tmp_path))
    archive = tmp_path / "BasicMotions.npz"
    parts = {"class_names": np.array(Motions.names)}
    for split in ("train", "test"):
        parts[f"{split}_values"] = np.linspace(-1, 1, 20 * 3 * 6, dtype=np.float32).reshape(60, 6)
        parts[f"{split}_offsets"], parts[f"{split}_labels"] = np.arange(0, 61, 3), np.arange(20) % 4
    np.savez(archive, **parts)
    launch(load_recipe("motions/mgrade", SETTINGS), root=tmp_path)
    folder = tmp_path / "runs/motions/mgrade/seed0"
    assert judge_run(folder, "cpu")
    parts["test_values"][7] *= 1.001
    np.savez(archive, **parts)
    with pytest.raises(ValueError, match="was judged on another test set"):
        judge_run(folder, "cpu")


@pytest.mark.parametrize("part", ["train", "validation"])
def test_a_run_goes_on_with_the_sets_it_began_with(tmp_path, monkeypatch, part):
    monkeypatch.setenv("MGRADE_DATA", str(tmp_path))
    recipe, archive = load_recipe("listops/mgrade", SETTINGS), tmp_path / "listops.npz"
    generate_set(archive, 0, train=16, validation=4, test=6)
    with pytest.raises(Stopped):
        launch(recipe, root=tmp_path, max_minutes=1e-9)
    arrays = dict(np.load(archive))
    arrays[f"{part}_labels"][0] = (arrays[f"{part}_labels"][0] + 1) % 10
    np.savez(archive, **arrays)
    with pytest.raises(ValueError, match="holds a run on other data, or of an earlier version"):
        launch(recipe, root=tmp_path, resume=True)


def test_what_a_task_draws_is_known_by_its_whole_numbers():
    task = Lorenz(trajectories=2, validation=2, test=2, length=40, overlap_trajectories=1)
    values, target = torch.rand(2, 3), torch.arange(2)
    assert described(task, (values, target)) == described(task, (values + 1e-7, target))
    assert described(task, (values, target)) != described(task, (values, target + 1))
    assert described(task, (values, target)) != described(task, (values[:, :2], target))


def test_what_a_reader_of_figures_must_know_is_told_on_standard_error(trained, monkeypatch, capsys):
    _, folder = trained
    monkeypatch.setattr("mgrade.tasks.ListOps.remark", lambda self: "these are no real expressions")
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["evaluate", str(folder), "--json"])
    out, err = capsys.readouterr()
    assert json.loads(out).keys() == {"test_accuracy", "test_surprise"}
    assert err == "mgrade: these are no real expressions\n"
