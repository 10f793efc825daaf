"""What a run or a recipe must not be: without finite weights, outside its folder, of a checkpoint that is none."""

import errno
import hashlib
import itertools
import json
import math
import os
import re

import numpy as np
import pytest
import safetensors.torch
import torch

from mgrade.tasks import Lorenz
from mgrade.train import Stopped, launch, load_recipe
from mgrade.train.recipe import source
from small import small


def test_weights_that_end_in_infinity_are_no_result(tmp_path):
    recipe = small("flipflop/mgrade", "train.steps=1", "train.evaluations=1", "train.rate=3e38", "train.decay=100.0")
    with pytest.raises(ValueError, match=r"^the weights after step 1 are not finite: .*, first tensor: \w+.*; "):
        launch(recipe, seeds=[0], root=tmp_path)
    assert not (tmp_path / "results").exists()


def test_any_figure_is_better_than_none(tmp_path, monkeypatch):
    figures = itertools.chain([math.nan], itertools.repeat(0.5))
    monkeypatch.setattr("mgrade.train.run.evaluate", lambda *_: {"accuracy": next(figures)})
    (path,) = launch(small("flipflop/mgrade"), seeds=[0], root=tmp_path)
    assert json.loads(path.read_text())["metrics"]["validation_accuracy"] == 0.5


def test_a_recipe_beside_this_folder_has_the_name_of_its_own(tmp_path, monkeypatch):
    (tmp_path / "mine" / "deeper").mkdir(parents=True)
    (tmp_path / "mine" / "own.toml").write_text('seeds = [0]\n[task]\nname = "flipflop"\n[model]\n[train]\nsteps = 1\n')
    monkeypatch.chdir(tmp_path / "mine" / "deeper")
    assert load_recipe("../own.toml").experiment == "mine"


@pytest.mark.parametrize("name", ["../../escape", "a/b", "", "x" * 101, "a\\nb"])
def test_variants_have_names_that_fit_into_paths(tmp_path, name):
    path = tmp_path / "own.toml"
    path.write_text(f'[task]\nname = "flipflop"\n[model]\n[train]\nsteps = 1\n[variants."{name}"]\ntrain.rate = 0.1\n')
    with pytest.raises(ValueError, match="variants must have names of 1 to 100 characters without /, got "):
        load_recipe(str(path))


@pytest.mark.parametrize("place", ["results", "results/flipflop", "results/flipflop/mgrade"])
def test_a_file_where_results_would_lie_is_seen_before_the_first_step(tmp_path, place):
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text("mine")
    with pytest.raises(ValueError, match=rf"{place}: must be a folder, is a file$"):
        launch(small("flipflop/mgrade"), seeds=[0], root=tmp_path)
    assert not (tmp_path / "runs").exists()


def begun(root):
    """A run that is stopped after its first step, at which validation looks."""
    recipe = small("flipflop/mgrade", "train.evaluations=40")
    with pytest.raises(Stopped):
        launch(recipe, seeds=[0], root=root, max_minutes=1e-9)
    return recipe


def alter(root, change):
    """Puts a checkpoint beside the newest that has what `change` makes of its tensors and facts, and a fitting name."""
    folder = root / "runs/flipflop/mgrade/seed0/checkpoints"
    data = max(folder.iterdir()).read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    tensors, facts = change(safetensors.torch.load(data), json.loads(header["__metadata__"]["mgrade"]))
    other = safetensors.torch.save(tensors, {"mgrade": json.dumps(facts)})
    (folder / f"step-0000000099-{hashlib.sha256(other).hexdigest()[:16]}.safetensors").write_bytes(other)


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: [],
        lambda facts: {**facts, "step": None},
        lambda facts: {**facts, "step": math.inf},
        lambda facts: {**facts, "step": -5},
        lambda facts: {"step": 3},
        lambda facts: {**facts, "recipe": None},
        lambda facts: {**facts, "points": None},
    ],
)
def test_a_whole_file_that_is_no_checkpoint_is_passed_over(tmp_path, change):
    recipe = begun(tmp_path)
    alter(tmp_path, lambda tensors, facts: (tensors, change(facts)))
    (path,) = launch(recipe, seeds=[0], root=tmp_path, resume=True)
    assert json.loads(path.read_text())["curves"]["step"][-1] == 40


WEIGHT = "encoder.weight"


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        (f"optimiser.exp_avg.{WEIGHT}", torch.zeros(3), rf"exp_avg.{WEIGHT} must have shape \(8, 5\), got \(3,\)"),
        (f"optimiser.exp_avg_sq.{WEIGHT}", torch.zeros(8, 5).long(), rf"exp_avg_sq.{WEIGHT} must have shape"),
        (f"optimiser.step.{WEIGHT}", torch.zeros(2), rf"step.{WEIGHT} must have shape \(\), got \(2,\)"),
        (f"optimiser.exp_avg.{WEIGHT}", None, f"exp_avg of {WEIGHT} is missing"),
        ("optimiser.count", torch.tensor([40]), r"count must be from 0 to 39, got \[40\]"),
        ("optimiser.count", torch.tensor([1, 1]), r"count must be from 0 to 39, got \[1, 1\]"),
        ("optimiser.count", None, "count is missing"),
        (f"best.{WEIGHT}", None, "the best weights have different names or shapes"),
        (f"best.{WEIGHT}", torch.zeros(3), "the best weights have different names or shapes"),
        ("loss_sum", None, "loss_sum is missing"),
    ],
)
def test_tensors_of_another_model_are_refused(tmp_path, name, tensor, message):
    recipe = begun(tmp_path)

    def change(tensors, facts):
        del tensors[name]
        return tensors | ({} if tensor is None else {name: tensor}), {**facts, "step": 2}

    alter(tmp_path, change)
    with pytest.raises(ValueError, match=rf"the checkpoint of step 2 is of another model: {message}"):
        launch(recipe, seeds=[0], root=tmp_path, resume=True)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"best": 5}, "best must have a step and a value, got 5"),
        ({"best": {"step": 1, "value": "high"}}, "best must have a step and a value, got "),
        ({"points": [1]}, "a point of the curve must have a step and validation figures, got 1"),
    ],
)
def test_facts_of_another_kind_are_refused(tmp_path, facts, message):
    recipe = begun(tmp_path)
    alter(tmp_path, lambda tensors, told: (tensors, {**told, **facts, "step": 2}))
    with pytest.raises(ValueError, match=rf"the checkpoint of step 2 is of another model: {message}"):
        launch(recipe, seeds=[0], root=tmp_path, resume=True)


def test_a_run_does_not_go_on_with_other_data(tmp_path, monkeypatch):
    few = [
        "task.trajectories=80",
        "task.validation=4",
        "task.overlap_trajectories=4",
        "task.length=40",
        "train.epochs=2",
    ]
    recipe = load_recipe("lorenz/mgrade", few)
    with pytest.raises(Stopped):
        launch(recipe, seeds=[0], root=tmp_path, max_minutes=1e-9)
    draw = Lorenz.draw
    monkeypatch.setattr(Lorenz, "draw", lambda *given: (draw(*given)[0].long(), *draw(*given)[1:]))
    with pytest.raises(ValueError, match="holds a run on other data, or of an earlier version"):
        launch(recipe, seeds=[0], root=tmp_path, resume=True)


@pytest.mark.parametrize("field", ["seed", "metrics"])
def test_a_result_without_figures_is_none(tmp_path, field):
    (path,) = launch(small("flipflop/mgrade"), seeds=[0], root=tmp_path)
    result = json.loads(path.read_text())
    del result[field]
    path.write_text(json.dumps(result))
    with pytest.raises(ValueError, match=rf"seed0\.json: is not a result file: {field} is missing$"):
        launch(small("flipflop/mgrade"), seeds=[0], root=tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("metrics", 3, "is not a result file: metrics must be an object of numbers, got 3"),
        ("metrics", {"a": None}, "is not a result file: metrics must be an object of numbers, got {'a': None}"),
        ("seed", 1, "is the result of another seed: seed must be 0, got 1"),
    ],
)
def test_a_result_of_something_else_is_not_taken_for_this_one(tmp_path, field, value, message):
    (path,) = launch(small("flipflop/mgrade"), seeds=[0], root=tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(ValueError, match=rf"seed0\.json: {re.escape(message)}$"):
        launch(small("flipflop/mgrade"), seeds=[0], root=tmp_path)


def test_more_epochs_than_can_be_planned_are_refused(tmp_path):
    few = ["task.trajectories=80", "task.validation=4", "task.overlap_trajectories=4", "task.length=40"]
    recipe = load_recipe("lorenz/mgrade", [*few, "train.epochs=100000000"])
    with pytest.raises(
        ValueError, match=r"train.epochs must be at most [0-9]+ for this task and batch, got 100000000$"
    ):
        launch(recipe, seeds=[0], root=tmp_path)


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    folder = tmp_path / "runs/flipflop/mgrade/seed0"
    folder.mkdir(parents=True)
    (tmp_path / "precious").write_text("mine")
    (folder / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(ValueError, match=r"lock: cannot be written: "):
        launch(small("flipflop/mgrade"), seeds=[0], root=tmp_path)
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_file_system_without_locks_is_not_taken_for_another_process(tmp_path, monkeypatch):
    def unable(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", unable)
    with pytest.raises(ValueError, match="cannot be written: No locks available"):
        launch(small("flipflop/mgrade"), seeds=[0], root=tmp_path)


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("flipflop/tcn", "train.recurrence_rate=0.5", r"train\.recurrence_rate needs a recurrence, got 0\.5 for a"),
        (
            "flipflop/mgrade",
            "train.recurrence_decay=0.1",
            r"train\.recurrence_decay needs an LRU, got 0\.1 for .*'mingru'",
        ),
        (
            "flipflop/tcn",
            "train.sigma_from=2.0",
            r"train\.sigma_from needs learnable delays, got 2\.0 for conv 'dilated'",
        ),
        (
            "flipflop/mgrade",
            "train.sigma_until=0.5",
            r"train\.sigma_until needs sigma_from: the width from which taps narrow, got 0\.5",
        ),
        ("flipflop/mgrade", "task.test=2147483648", r"task\.test must be at most 67108864 at 32 numbers each, got 2"),
        ("flipflop/mgrade", "task.recalls=2147483648", r"task\.recalls must be at most 10000, got 2147483648"),
    ],
)
def test_what_a_recipe_has_no_use_or_no_room_for_is_refused(name, setting, message):
    with pytest.raises(ValueError, match=message):
        small(name, setting)


@pytest.mark.parametrize(
    ("settings", "most", "numbers"),
    [(["task.test=20000000"], 13015052, 165), (["task.test=20000000", "task.features=1000"], 2147483, 1000)],
)
def test_what_a_drawn_set_asks_for_is_counted_in_all_its_numbers(settings, most, numbers):
    with pytest.raises(
        ValueError, match=rf"^task\.test must be at most {most} at {numbers} numbers each, got 20000000$"
    ):
        load_recipe("highfreq/mgrade-1l", settings)


@pytest.mark.parametrize("read", [load_recipe, source])
@pytest.mark.parametrize("name", ["flipflop/mgrade@", "flipflop/mgrade@nope"])
def test_a_variant_that_is_not_there_is_refused(read, name):
    with pytest.raises(ValueError, match=r"recipe flipflop/mgrade has no variant '(nope)?'"):
        read(name)


def test_a_recipe_without_a_name_is_refused(tmp_path):
    (tmp_path / "...toml").write_text("")
    with pytest.raises(ValueError, match=r"must have a name before \.toml"):
        load_recipe(str(tmp_path / "...toml"))


def test_a_test_set_that_cannot_be_read_is_refused_before_the_first_step(tmp_path, monkeypatch):
    images, labels = np.zeros((20, 32, 32), np.uint8), np.arange(20) % 10
    np.savez(tmp_path / "cifar10_gray.npz", train_images=images, train_labels=labels)
    monkeypatch.setenv("MGRADE_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"cifar10_gray\.npz has no array 'test_images'"):
        launch(load_recipe("image/mgrade", ["train.batch=4"]), root=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_tensorboard_is_refused_early_where_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="--tensorboard needs the package tensorboard: pip install tensorboard"):
        launch(small(), seeds=[0], root=tmp_path, tensorboard=True)
    assert list(tmp_path.iterdir()) == []
