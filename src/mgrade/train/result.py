"""Result files: what a run found, and all it takes to believe it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from mgrade._checks import plain
from mgrade._files import replace
from mgrade._provenance import hardware, versions
from mgrade.nn import DelayConv, Model, ModelConfig
from mgrade.train.options import Training
from mgrade.train.recipe import Recipe


def result_path(root: Path, recipe: Recipe, seed: int) -> Path:
    """The path of a run's result file under `root`."""
    return root / "results" / recipe.experiment / recipe.name / f"seed{seed}.json"


def run_folder(root: Path, recipe: Recipe, seed: int) -> Path:
    """The folder of a run's checkpoints, log and model under `root`."""
    return root / "runs" / recipe.experiment / recipe.name / f"seed{seed}"


def read_document(path: Path) -> dict[str, Any] | None:
    """A file under results, of a run or of a measurement; None if it does not exist."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is not a result file: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"{path}: is not a result file: it holds no object")
    return document


def read_result(path: Path) -> dict[str, Any] | None:
    """The result file of a run; None if it does not exist."""
    document = read_document(path)
    if document is None:
        return None
    if "recipe" not in document:
        raise ValueError(f"{path}: is not a result file: recipe is missing")
    recipe = document["recipe"]
    tables = {f"recipe.{table}": recipe.get(table, {}) for table in _COMPARED} if isinstance(recipe, dict) else {}
    for field, value in {"recipe": recipe, **tables}.items():
        if not isinstance(value, dict):
            raise ValueError(f"{path}: is not a result file: {field} must be an object, got {value!r}")
    return document


_COMPARED = ("task", "model", "train")
# The values of options that a file leaves out; options without a default are in every file.
_DEFAULTS = {"model": ModelConfig(inputs=1, outputs=1).to_dict(), "train": plain(Training(steps=1))}


def difference(ours: dict[str, Any], theirs: dict[str, Any]) -> str | None:
    """The first option in which two recipes differ, such as `train.steps is 50 here and 1000 there`.

    An option that `theirs` lacks has its default there.
    """
    for table in _COMPARED:
        mine, other = ours[table], {**_DEFAULTS.get(table, {}), **theirs.get(table, {})}
        for key in sorted({*mine, *other}):
            if mine.get(key) != other.get(key):
                return f"{table}.{key} is {mine.get(key)!r} here and {other.get(key)!r} there"
    return None


def write_result(
    path: Path, recipe: Recipe, seed: int, model: Model, device: torch.device, found: dict[str, Any]
) -> None:
    """Writes the result file of a finished run; `found` holds its metrics, curves, minutes, commit and so on."""
    document = {
        "experiment": recipe.experiment,
        "model": recipe.name,
        "seed": seed,
        "metrics": found.pop("metrics"),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "state_bytes": state_bytes(model),
        "minutes": found.pop("minutes"),
        "recipe": recipe.to_dict(),
        "commit": found.pop("commit"),
        "hardware": hardware(device),
        "versions": versions(),
        "delays": delays(model),
        **found,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in document.items())
    replace(path, f"{{\n{lines}\n}}\n".encode())


def delays(model: Model) -> list[dict[str, Any]]:
    """Learned positions and weights of every delay convolution, (dim, taps) each, to four decimals."""
    return [
        {name: _rounded(getattr(module, name)) for name in ("position", "weight")}
        for module in model.modules()
        if isinstance(module, DelayConv)
    ]


def _rounded(tensor: torch.Tensor) -> list[list[float]]:
    return [[round(value, 4) for value in row] for row in tensor.detach().cpu().tolist()]


def state_bytes(model: Model) -> int:
    """Bytes of state of one stream: delay lines, hidden states and pooled sums, without the step counter."""
    state = model.initial_state(1)
    return sum(tensor.numel() * tensor.element_size() for tensor in (*state.history, *state.hidden, state.total))
