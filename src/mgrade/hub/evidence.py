"""What a card may claim: the result file of the model it describes, checked before anything is written."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Any

from mgrade.nn import Model, ModelConfig
from mgrade.train.finished import open_run
from mgrade.train.result import delays, read_result, result_path, run_folder

_TEXT, _WHOLE, _NUMBER, _TABLE = (str,), (int,), (int, float), (dict,)
_NAMES = {_TEXT: "text", _WHOLE: "a whole number", _NUMBER: "a number", _TABLE: "an object"}
# The fields that a card is written from, with their types; the last ones are optional.
_FIELDS = {"experiment": _TEXT, "model": _TEXT, "seed": _WHOLE, "metrics": _TABLE, "minutes": _NUMBER, "recipe": _TABLE}
_RECIPE = {"task": _TABLE, "model": _TABLE, "train": _TABLE}
_MAYBE = {"commit": _TEXT, "hardware": _TABLE, "versions": _TABLE}


def read_evidence(path: Path, model: Model) -> dict[str, Any]:
    """A model's result, from a file or the folder of a finished run; its configuration and delays must match."""
    if path.is_dir():
        path = _result_of(path)
    found = read_result(path)
    if found is None:
        raise ValueError(f"{path}: there is no such result file")
    try:
        _check(found)
        theirs = ModelConfig.from_dict(found["recipe"]["model"]).to_dict()
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: is not a result file: {error}") from None
    for field, value in model.config.to_dict().items():
        if theirs[field] != value:
            raise ValueError(f"{path} is of another model: {field} is {theirs[field]!r} there and {value!r} here")
    if "delays" in found and found["delays"] != delays(model):  # optional
        raise ValueError(f"{path} is of another model: its delays have other positions and weights than these")
    return found


def _result_of(folder: Path) -> Path:
    """The path of a run's result, relative to the run's folder, which must not have been moved."""
    recipe, seed, _ = open_run(folder)
    here = Path(os.path.abspath(folder))
    root = here.parents[min(3, len(here.parents) - 1)]
    if run_folder(root, recipe, seed) != here:
        expected = result_path(Path(), recipe, seed)
        raise ValueError(f"{folder} is no longer where its run was: give its result file instead, {expected}")
    return result_path(root, recipe, seed)


def _check(found: dict[str, Any]) -> None:
    """Raises ValueError for the first field that is missing or malformed."""
    for field, kinds in _FIELDS.items():
        _check_field(found, field, kinds)
    for field, kinds in _RECIPE.items():
        _check_field(found["recipe"], field, kinds, "recipe.")
    _check_field(found["recipe"]["task"], "name", _TEXT, "recipe.task.")
    for field, kinds in _MAYBE.items():
        if found.get(field) is not None:
            _check_field(found, field, kinds)
    for name in found["metrics"]:
        _check_field(found["metrics"], name, _NUMBER, "metrics.")
    if not 0 <= found["minutes"] < math.inf:
        raise ValueError(f"minutes must be a finite number of at least 0, got {found['minutes']}")


def _check_field(table: dict[str, Any], field: str, kinds: tuple[type, ...], where: str = "") -> None:
    name = repr(f"{where}{field}")[1:-1]  # names from a file stay on one line
    if field not in table:
        raise ValueError(f"{name} is missing")
    value = table[field]
    if type(value) not in kinds:
        raise ValueError(f"{name} must be {_NAMES[kinds]}, got {value!r:.40}")
    if kinds is _NUMBER and type(value) is int and abs(value) > sys.float_info.max:
        raise ValueError(f"{name} must fit a float, got {value!r:.40}")
