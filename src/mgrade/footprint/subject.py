"""The subject of a footprint: a recipe, a saved model or a finished run. Exports are measured by `mgrade.deploy`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from mgrade.nn import ModelConfig, load
from mgrade.nn.storage import DESCRIPTION
from mgrade.train import load_recipe, shipped
from mgrade.train.finished import RECIPE, open_run


class Subject(NamedTuple):
    """A model, its name, and its experiment if known."""

    name: str
    config: ModelConfig
    experiment: str | None


def find_subject(name: str) -> Subject:
    """The model of a shipped recipe, a TOML file, a folder written by `Model.save`, or the folder of a run."""
    path = Path(name)
    if not name.endswith(".toml"):
        if (path / RECIPE).is_file():
            recipe, _, model = open_run(path)
            return Subject(name, model.config, recipe.experiment)
        for folder in (path, path / "model"):
            if (folder / DESCRIPTION).is_file():
                return Subject(name, load(folder).config, None)
        if path.is_file():
            raise ValueError(f"{name}: is a file, and no recipe (.toml)")
        if path.is_dir() and name not in shipped():
            raise ValueError(
                f"{name}: is neither a saved model (config.json), a finished run (model/config.json) nor an export"
                " (export.json)"
            )
    recipe = load_recipe(name)
    return Subject(name, recipe.model, recipe.experiment)
