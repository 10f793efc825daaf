"""Results to report on: those of the project, and a folder where everything has run."""

import json
import shutil
from pathlib import Path

import pytest

from mgrade.footprint import exact
from mgrade.train import load_recipe, shipped

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def results():
    """The project's own result files."""
    return ROOT / "results"


@pytest.fixture(scope="session")
def everything(results, tmp_path_factory):
    """The project's result files, and made-up ones for every recipe that has not run."""
    folder = tmp_path_factory.mktemp("everything") / "results"
    shutil.copytree(results, folder)
    for name in shipped():
        recipe = load_recipe(name)
        for seed in recipe.seeds:
            path = folder / name / f"seed{seed}.json"
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(made_up(recipe)))
    (folder / "compare").mkdir(exist_ok=True)
    (folder / "compare" / "estimator.json").write_text(json.dumps(COMPARED))
    return folder


def made_up(recipe):
    """A result file of the usual size: a hundred evaluations, and a position and a weight for every tap."""
    model = recipe.model
    figures = {name: 0.5 for name in recipe.paper if not name.endswith("_spread")}
    positions = [[(7 * c + 31 * k) % model.max_delay for k in range(model.taps)] for c in range(model.dim)]
    layer = {"position": positions, "weight": [[0.1234 * (-1) ** k for k in range(model.taps)] for _ in positions]}
    size = exact(model)
    return {
        "recipe": recipe.to_dict(),
        "metrics": figures,
        "parameters": size["parameters"],
        "state_bytes": size["state_bytes"],
        "commit": "0123456789abcdef",
        "hardware": {"cpu": "a CPU", "threads": 2},
        "versions": {"mgrade": "0.1.0", "torch": "2.13.0"},
        "delays": [layer] * model.depth if model.conv == "delay" else [],
        "curves": {
            "step": list(range(100, 10100, 100)),
            "loss": [2.0 - i / 100 for i in range(100)],
            "validation_accuracy": [i / 123 for i in range(100)],
        },
        "examined": {},
    }


_MODEL = {
    "accuracy": [0.97, 0.99],
    "accuracy_mean": 0.98,
    "parameter_bytes": 12345,
    "state_bytes": 678,
    "fit_seconds": [1.5, 2.5],
    "step_microseconds": 3.21,
    "step_how": "compiled C, one core",
}
COMPARED = {
    "what": "The estimator beside MiniRocket.",
    "commit": "fedcba9876543210",
    "hardware": {"cpu": "a CPU", "threads": 1},
    "versions": {"mgrade": "0.1.0"},
    "datasets": {
        "vowels": {
            "train": 270,
            "test": 370,
            "channels": 12,
            "classes": 9,
            "models": {"mgrade": _MODEL, "MiniRocket": {**_MODEL, "accuracy": [0.9], "accuracy_mean": 0.9}},
            "unavailable": {"ROCKET": "not installed"},
        }
    },
}
