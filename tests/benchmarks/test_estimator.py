"""The comparison of classifiers runs to its end, names who cannot take part, and the page shows its file as it is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")
ROOT = Path(__file__).resolve().parents[2]
FIELDS = {"accuracy", "accuracy_mean", "parameter_bytes", "state_bytes", "fit_seconds", "step_microseconds", "step_how"}


def run(*words):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.estimator", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_everyone_is_measured_or_named(tmp_path):
    from mgrade.tasks.series import PROBLEMS

    if PROBLEMS["motions"].source(Path("nowhere")) is None:
        pytest.skip("Basic Motions is not here: the package aeon, which has a copy, is not installed")
    done = run("--quick", "--only", "motions", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["estimator.json"]
    document = json.loads((tmp_path / "estimator.json").read_text())
    assert set(document) >= {"what", "commit", "hardware", "versions", "datasets"}
    entry = document["datasets"]["motions"]
    assert (entry["channels"], entry["classes"], entry["longest"]) == (6, 4, 100)
    assert entry["models"].keys() | entry["unavailable"].keys() == {
        "mgrade", "mgrade int8", "MiniRocket", "ROCKET", "GRU"
    }  # fmt: skip
    assert {"GRU"} <= set(entry["models"])
    for name, model in entry["models"].items():
        assert set(model) >= FIELDS, name
        assert model["accuracy_mean"] == model["accuracy"][0] >= 0.5
        assert min(model["parameter_bytes"], model["state_bytes"], model["step_microseconds"]) > 0
    if "MiniRocket" in entry["unavailable"]:
        assert "pip install -c constraints.txt aeon" in entry["unavailable"]["MiniRocket"]


def test_a_dataset_that_is_not_there_is_refused(tmp_path):
    done = run("--only", "imagenet", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "no dataset 'imagenet'" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_gru_steps_as_it_reads_whole_series():
    import torch
    from benchmarks.classifiers import GRU, LAYERS, UNITS

    from mgrade import ModelConfig

    torch.manual_seed(0)
    model = GRU(ModelConfig(inputs=3, outputs=4, dropout=0.2)).eval()
    x = torch.randn(1, 12, 3)
    state = torch.zeros(LAYERS, UNITS), torch.zeros(UNITS), torch.zeros(())
    with torch.no_grad():
        whole, _ = model(torch.cat([x, torch.ones(1, 5, 3)], 1), lengths=torch.tensor([12]))
        for sample in x[0]:
            y, *state = model.step(sample[None], *state)
    torch.testing.assert_close(y, whole[0])


def test_the_sentence_says_how_far_and_at_what_size():
    from benchmarks.estimator import against

    def model(accuracy, parameters, state):
        return {"accuracy_mean": accuracy, "parameter_bytes": parameters, "state_bytes": state}

    models = {"mgrade int8": model(0.98, 30, 10), "MiniRocket": model(0.985, 900, 100)}
    document = {"datasets": {"x": {"title": "Some Series", "models": models}}}
    assert "-0.5 points at 4.0 % of the memory on Some Series" in against(document)
    del models["MiniRocket"]
    assert against(document).endswith("not measured.")


def test_the_file_is_of_a_whole_run():
    document = json.loads((ROOT / "results" / "compare" / "estimator.json").read_text())
    assert not document["quick"]
    for entry in document["datasets"].values():
        for model in entry["models"].values():
            assert np.isclose(model["accuracy_mean"], np.mean(model["accuracy"]))
