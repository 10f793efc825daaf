"""Recipes: what ships, how they are changed, and how mistakes are named."""

import json

import pytest

from mgrade.nn import Model
from mgrade.train import load_recipe, shipped
from mgrade.train.recipe import from_dict, heading, of_experiment


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_recipe_is_whole(name):
    recipe = load_recipe(name)
    assert f"{recipe.experiment}/{recipe.name}" == name
    assert recipe.paper, "what the paper reports stands beside it"
    assert "The paper:" in heading(name)
    assert "Expected time:" in heading(name)
    assert sum(p.numel() for p in Model(recipe.model).parameters()) > 0


def test_the_experiments_of_the_papers_theory_are_there_with_their_baselines():
    every_depth = [f"{model}-{depth}l" for model in ("mgrade", "mingru") for depth in (1, 2)]
    for experiment, models in (
        ("lorenz", ["mgrade", "mingru"]),
        ("flipflop", ["lru-dcls", "mgrade", "tcn"]),
        ("selective-copying", ["lru-dcls", "mgrade", "tcn"]),
        ("highfreq", every_depth),
    ):
        plain = [name for name in of_experiment(experiment) if "@" not in name]
        assert plain == [f"{experiment}/{model}" for model in models]
    seeds = {name: len(load_recipe(name).seeds) for name in shipped()}
    for experiment, count in (("lorenz", 5), ("highfreq", 5), ("flipflop", 3), ("selective-copying", 2)):
        assert all(seeds[name] == count for name in of_experiment(experiment))


def test_groups_are_the_papers_tables():
    assert len(of_experiment("lra")) == 10
    assert len(of_experiment("ablation")) == 12
    assert set(of_experiment("theory")) > {"lorenz/mgrade", "selective-copying/tcn"}


def test_values_are_set_by_dotted_keys():
    recipe = load_recipe("flipflop/mgrade", ["model.dim=64", "train.steps=7", "task.targets=all", "seeds=[4, 5]"])
    assert (recipe.model.dim, recipe.train.steps, recipe.task.targets, recipe.seeds) == (64, 7, "all", (4, 5))
    assert load_recipe("flipflop/mgrade", ["model.gate_bias=-2.5"]).model.gate_bias == -2.5
    assert load_recipe("flipflop/mgrade", ["model.gate_bias=open"]).model.gate_bias == "open"
    assert load_recipe("flipflop/mgrade", ["model.sigma=.5", "model.gate_bias=-4."]).model.gate_bias == -4.0
    assert load_recipe("lorenz/mgrade", ["train.steps=9"]).train.epochs is None


def test_a_variant_changes_what_it_says_and_nothing_else():
    base, variant = load_recipe("highfreq/mgrade-1l").to_dict(), load_recipe("highfreq/mgrade-1l@1.0").to_dict()
    assert base["task"].pop("frequency") != variant["task"].pop("frequency")
    assert base == variant


def test_a_recipe_survives_json():
    recipe = load_recipe("selective-copying/tcn", ["train.clip_norm=2.0", "model.skips=['conv']"])
    table = json.loads(json.dumps(recipe.to_dict()))
    assert from_dict(table, recipe.experiment, recipe.name).to_dict() == recipe.to_dict()


def test_a_file_is_taken_by_its_path(tmp_path):
    path = tmp_path / "mine" / "tiny.toml"
    path.parent.mkdir()
    path.write_text('[task]\nname = "flipflop"\n[model]\ndim = 8\ndepth = 1\n[train]\nsteps = 3\n')
    recipe = load_recipe(str(path))
    assert (recipe.experiment, recipe.name, recipe.seeds) == ("mine", "tiny", (0,))


def test_a_path_may_have_an_at_sign(tmp_path):
    path = tmp_path / "a@b" / "x@y.toml"
    path.parent.mkdir()
    path.write_text('[task]\nname = "flipflop"\n[model]\n[train]\nsteps = 3\n[variants.short]\ntrain.steps = 2\n')
    for variant, name, steps in (("", "x@y", 3), ("@short", "x@y@short", 2)):
        recipe = load_recipe(f"{path}{variant}")
        assert (recipe.experiment, recipe.name, recipe.train.steps) == ("a@b", name, steps)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.dimm=64", "model has no field 'dimm'; did you mean 'dim'?"),
        ("model.dim=0", "model.dim must be a whole number of at least 1, got 0"),
        ("model.inputs=3", "model.inputs is set by the task, to 5"),
        ("model.preset=mgrad", "model.preset must be one of mgrade, mingru, dcls, tcn, lru, lru_dcls, got 'mgrad'"),
        ("train.step=3", "train has no option 'step'; did you mean 'steps'?"),
        ("train.rate=-1", "train.rate must be a number above 0, got -1"),
        ("train.rate=fast", "train.rate must be a number above 0, got 'fast'"),
        ("train.epochs=3", "train.epochs does not apply to a task whose examples are drawn without end"),
        ("train.batch=2.5", "train.batch must be a whole number of at least 1, got 2.5"),
        ("train.precision=float8", "train.precision must be one of float32, tf32, bfloat16, got 'float8'"),
        ("train.warmup=2", "train.warmup must be a share from 0 to 1, got 2"),
        ("train.class_weights=[1.0, 2.0]", "train.class_weights must have 5 entries, got 2"),
        ("train.class_weights=inverse", "train.class_weights cannot be inverse where examples are drawn without end"),
        ("task.name=flipflip", "task.name must be a task, got 'flipflip'; did you mean 'flipflop'?"),
        ("task.lenght=3", "task has no option 'lenght'; did you mean 'length'?"),
        ("task.length=7", "task.length must be an even number of at least 4, got 7"),
        ("modle.dim=3", "a recipe has no 'modle.dim'; did you mean 'model'?"),
        ("paper.test_accuracy=nan", "paper.test_accuracy must be a number or text, got nan"),
        ("paper.test_accuracy=[1]", "paper.test_accuracy must be a number or text, got [1]"),
        ("seeds=[]", "seeds must be a list of whole numbers of at least 0, got []"),
        ("seeds=[1, 1]", "seeds must differ, got [1, 1]"),
        ("model.readout=last", "model.readout must be every for this task, got 'last'"),
        ("model.pair=true", "model.pair is set by the task, to False"),
        ("model.expansion=1e38", "model.expansion must give at most 1048576 hidden units, got 1e+38 of dim 32"),
        ("model.dim=9999999", "model.dim must be at most 1048576, got 9999999"),
        ("train.batch=99999999999", "train.batch must be at most 1048576, got 99999999999"),
        ("train.steps=1000000000000", "train.steps must be at most 100000000, got 1000000000000"),
        pytest.param("train.rate=" + "9" * 400, "train.rate must be a number above 0, got 999", id="long"),
        pytest.param("train.rate=" + "9" * 5000, "train.rate must be a number above 0, got '999", id="longer"),
        pytest.param("train.rate=" + "[" * 5000, "train.rate must be a number above 0, got '[[[", id="deep"),
        ("train.class_weights=[0, 0, 0, 0, 0]", "train.class_weights must be none, inverse or a list of numbers of at"),
        ("train.class_weights=5", "train.class_weights must be none, inverse or a list of numbers of at"),
        ("task.name=[1]", "task.name must be a task, got [1]; there are: flipflop"),
        ("task.test=99999999999999", "task.test must be at most 2147483648, got 99999999999999"),
        ("paper=5", "paper must be a table of the recipe"),
        ("variants.x=1", "variants.x cannot be set: choose a variant by name, as in experiment/model@variant"),
        ("dim", "--set takes KEY=VALUE, such as model.dim=64, got 'dim'"),
    ],
)
def test_mistakes_are_named(setting, message):
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        load_recipe("flipflop/mgrade", [setting])
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("flipflop/mgrad", "there is no recipe 'flipflop/mgrad'; did you mean 'flipflop/mgrade'?"),
        ("../flipflop/mgrade", "there is no recipe '../flipflop/mgrade'"),
        ("speech10", "'speech10' is an experiment, not a recipe: its recipes are speech10/lru, speech10/mgrade, spee"),
        ("highfreq/mgrade-1l@0.5", "recipe highfreq/mgrade-1l has no variant '0.5'"),
        ("flipflop/mgrade@zz", "recipe flipflop/mgrade has no variant 'zz'; there are none"),
        ("nowhere.toml", "recipe nowhere.toml: cannot be read: No such file or directory"),
    ],
)
def test_unknown_recipes_are_refused(name, message):
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        load_recipe(name)
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[task", "is not TOML"),
        pytest.param("x = " + "[" * 5000, "is not TOML", id="deep"),
        pytest.param("x = " + "9" * 5000, "is not TOML", id="long"),
        ('[task]\nname = "flipflop"\n[model]\n', "train must be a table of the recipe, got none"),
        ('[task]\nname = "flipflop"\n[model]\n[train]\n', "train needs either steps or epochs"),
        ("task = 3\n[model]\n[train]\nsteps = 1\n", "task must be a table of the recipe"),
        ("[taks]\n", "a recipe has no 'taks'; did you mean 'task'?"),
    ],
)
def test_broken_files_are_refused(tmp_path, text, message):
    path = tmp_path / "broken.toml"
    path.write_text(text)
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        load_recipe(str(path))
    assert message in str(refusal.value)


def test_class_weights_need_classes():
    with pytest.raises(ValueError, match="class_weights must be none for a task without classes"):
        load_recipe("lorenz/mgrade", ["train.class_weights=[1.0]"])


def test_a_pooled_readout_may_be_another_pooled_one():
    assert load_recipe("vowels/mgrade", ["model.readout=sum"]).model.readout == "sum"
    with pytest.raises(ValueError, match=r"^model\.readout must be last, mean or sum for this task, got 'every'$"):
        load_recipe("vowels/mgrade", ["model.readout=every"])
    assert load_recipe("retrieval/mgrade").model.pair
