"""What a run or a recipe must not be: without finite weights, outside its folder, of a checkpoint that is none."""

import hashlib
import itertools
import json
import math

import pytest
import safetensors.torch

from mgrade.train import Stopped, launch, load_recipe
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
    recipe = small("flipflop/mgrade")
    with pytest.raises(Stopped):
        launch(recipe, seeds=[0], root=tmp_path, max_minutes=1e-9)
    folder = tmp_path / "runs/flipflop/mgrade/seed0/checkpoints"
    good = max(folder.iterdir())
    data = good.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    facts = json.dumps(change(json.loads(header["__metadata__"]["mgrade"])))
    bad = safetensors.torch.save(safetensors.torch.load(data), {"mgrade": facts})
    (folder / f"step-0000000099-{hashlib.sha256(bad).hexdigest()[:16]}.safetensors").write_bytes(bad)
    (path,) = launch(recipe, seeds=[0], root=tmp_path, resume=True)
    assert json.loads(path.read_text())["curves"]["step"][-1] == 40
