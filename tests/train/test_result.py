"""Result files: when one belongs to a recipe."""

import re

import pytest

from helpers import assert_refused
from mgrade.train import load_recipe
from mgrade.train.result import difference, read_result


def test_an_option_that_an_older_file_does_not_know_has_its_default_there():
    ours = load_recipe("lorenz/mingru").to_dict()
    for table, option in (("model", "candidate"), ("model", "skips"), ("train", "warmup"), ("train", "epochs")):
        older = {**ours, table: {key: value for key, value in ours[table].items() if key != option}}
        known = {"candidate": None, "skips": "['conv', 'recurrence', 'mlp']", "warmup": None, "epochs": "None"}[option]
        expected = known and f"{table}.{option} is {ours[table][option]!r} here and {known} there"
        assert difference(ours, older) == expected


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("train.rate=0.5", "train.rate is 0.5 here and 0.004 there"),
        ("model.candidate=positive", "model.candidate is 'positive' here and 'linear' there"),
        ("task.noise=0.25", "task.noise is 0.25 here and 0.05 there"),
    ],
)
def test_the_first_option_that_differs_is_named(setting, expected):
    assert (
        difference(load_recipe("lorenz/mingru", [setting]).to_dict(), load_recipe("lorenz/mingru").to_dict())
        == expected
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "recipe is missing"),
        ('{"recipe": 5}', "recipe must be an object, got 5"),
        ('{"recipe": {"task": [1]}}', r"recipe.task must be an object, got \[1\]"),
    ],
)
def test_a_damaged_result_is_refused(tmp_path, text, message):
    path = tmp_path / "seed0.json"
    path.write_text(text)
    assert_refused(f"^{re.escape(str(path))}: is not a result file: {message}$", read_result, path)
