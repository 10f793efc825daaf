"""Finished runs: opened from their folders, and judged again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch

from mgrade._files import reason
from mgrade.nn import Model, load
from mgrade.tasks import Batch, Task
from mgrade.train.evaluate import evaluate, precision
from mgrade.train.fingerprint import FILE, described
from mgrade.train.processes import Processes, check_device
from mgrade.train.recipe import Recipe, from_dict

RECIPE = "recipe.json"
"""The file in every run's folder that says what it trains."""


def open_run(folder: Path) -> tuple[Recipe, int, Model]:
    """The recipe, the seed and the model of a finished run."""
    path = folder / RECIPE
    try:
        facts = json.loads(path.read_text("utf-8"))
        if not isinstance(facts, dict):
            raise ValueError("it holds no object")
        for field in ("experiment", "model"):
            if not isinstance(facts[field], str):
                raise ValueError(f"{field} must be text, got {facts[field]!r:.40}")
        recipe = from_dict(facts["recipe"], facts["experiment"], facts["model"])
        seed = int(facts["seed"])
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}: is {folder} the folder of a run?") from None
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"{path}: is not the recipe of a run: {reason(error)}") from None
    if not (folder / "model").is_dir():
        raise ValueError(f"{folder} holds no model yet: the run is not finished")
    return recipe, seed, load(folder / "model")


def judge_run(folder: Path, device: str, say: Callable[[str], None] = print) -> dict[str, float]:
    """The figures of a finished run's model on its test set; `say` gets a remark that they need, if there is one."""
    recipe, seed, model = open_run(folder)
    check_device(device)
    own = torch.device(device)
    with precision(recipe.train.precision, own):
        test = judged_set(recipe.task, seed, own, folder)
        figures = evaluate(model.to(own), recipe.task, test, recipe.train.batch, Processes())
    if remark := recipe.task.remark():
        say(remark)
    return {recipe.task.test_prefix + name: value for name, value in figures.items()}


def judged_set(task: Task, seed: int, device: torch.device, folder: Path | None = None) -> Batch:
    """The test set; refused if the run in `folder` was judged on a different one."""
    found = task.examples("test", seed, device)
    path = None if folder is None else folder / FILE
    if path is None or not path.is_file():  # nothing to compare with
        return found
    here = described(task, found)
    try:
        sets = json.loads(path.read_text("utf-8"))
        if not isinstance(sets, dict) or not isinstance(there := sets["test"], dict):
            raise ValueError("it holds no objects")
        examples, kept = int(there["examples"]), str(there["digest"])
    except (KeyError, TypeError, ValueError, OverflowError, OSError, RecursionError) as error:
        raise ValueError(f"{path}: is not what a run keeps of its data: {reason(error)}") from None
    if (examples, kept) != (here["examples"], here["digest"]):
        raise ValueError(
            f"{folder} was judged on another test set: {examples} examples, digest {kept}; this one has"
            f" {here['examples']}, digest {here['digest']}: --data needs the data it was trained with"
        )
    return found
