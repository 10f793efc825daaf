"""The paper's rows beside ours, from result files alone."""

import json

import pytest

from mgrade.footprint import measure
from mgrade.report import rows
from mgrade.report.html import missing
from mgrade.report.runs import all_runs, by_recipe
from mgrade.train import load_recipe


def result(root, name, seed, **metrics):
    recipe = load_recipe(name)
    path = root / recipe.experiment / recipe.name / f"seed{seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"recipe": recipe.to_dict(), "metrics": metrics, "parameters": 100, "state_bytes": 40}
    path.write_text(json.dumps(document))
    return path


def test_rows_average_the_seeds_that_have_run(tmp_path):
    result(tmp_path, "flipflop/mgrade", 0, test_accuracy=0.9)
    result(tmp_path, "flipflop/mgrade", 2, test_accuracy=1.0)
    found = {row.recipe: row for row in rows(["flipflop"], tmp_path)}
    row = found["flipflop/mgrade"]
    assert row.mean == pytest.approx(0.95)
    assert row.spread == pytest.approx(0.0707, abs=1e-4)
    assert row.cells() == (
        "flipflop/mgrade",
        "test_accuracy",
        "0.996 ± 0.003",
        "0.950 ± 0.071",
        "2 of 3",
        "9,984",
        "384",
    )
    counted = measure(load_recipe("flipflop/mgrade").model).to_dict()
    assert row.to_dict()["formula"] == {
        "parameter_bytes": counted["parameters"]["bytes"],
        "buffer_bytes": counted["buffer"]["bytes"],
    }
    assert (row.weight_bytes, row.buffer_bytes) == (9984, 384)
    assert found["flipflop/tcn"].cells()[3] == "not run"
    assert found["flipflop/tcn"].weight_bytes > 0  # which needs no run


def test_a_result_of_a_changed_recipe_does_not_count(tmp_path):
    path = result(tmp_path, "flipflop/mgrade", 0, test_accuracy=0.9)
    document = json.loads(path.read_text())
    document["recipe"]["train"]["steps"] = 10
    path.write_text(json.dumps(document))
    assert rows(["flipflop"], tmp_path)[1].ours == ()


def test_a_seed_that_the_recipe_does_not_have_counts_nowhere_beside_the_paper(tmp_path):
    result(tmp_path, "flipflop/mgrade", 0, test_accuracy=0.9)
    result(tmp_path, "flipflop/mgrade", 99, test_accuracy=0.1)
    known, others = by_recipe(all_runs(tmp_path))
    assert [run.seed for run in known["flipflop/mgrade"]] == [0]
    assert [run.seed for run in others] == [99]
    assert next(row for row in rows(["flipflop"], tmp_path) if row.ours).ours == (0.9,)


def test_recipes_of_several_groups_are_counted_once(tmp_path):
    result(tmp_path, "image/mgrade", 0, test_accuracy=0.9)
    found = rows(["lra", "ablation", "image"], tmp_path)
    assert len({row.recipe for row in found}) == len(found)
    assert [row.cells()[3:5] for row in found if row.ours] == [("0.900", "1 of 1")]


def test_a_file_is_called_by_its_seed(tmp_path):
    path = result(tmp_path, "flipflop/mgrade", 0, test_accuracy=0.9)
    path.rename(path.with_name("seed00.json"))
    with pytest.raises(ValueError, match=r"seed00\.json: is not a result file: its name must be seed0\.json"):
        rows(["flipflop"], tmp_path)


def test_only_what_the_command_runs_is_said_to_be_missing(tmp_path):
    found = rows(["image"], tmp_path)
    variants = [row for row in found if "@" in row.recipe]
    assert len(variants) > 1
    assert missing(variants, ["lra"]) is None
    assert "mgrade reproduce lra" in str(missing(found, ["lra"]))


def test_a_result_on_other_data_does_not_count(tmp_path):
    path = result(tmp_path, "retrieval/mgrade", 0, test_accuracy=0.9)
    assert rows(["retrieval"], tmp_path)[1].ours == (0.9,)
    document = json.loads(path.read_text())
    document["examined"] = {"stand_in": "acl_papers.npz"}
    path.write_text(json.dumps(document))
    assert rows(["retrieval"], tmp_path)[1].ours == ()


def test_an_unknown_experiment_is_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no experiment 'lorentz'; did you mean 'lorenz'"):
        rows(["lorentz"], tmp_path)
