"""What data a run was made from: how many examples, and a digest by which they are known again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from mgrade._files import reason, replace
from mgrade.tasks import Batch, Drawn, Task

FILE = "data.json"
"""Beside the model of a finished run."""


def described(task: Task, examples: Batch) -> dict[str, Any]:
    """A set as a result file has it: its digest is of sizes and of all numbers.

    Of what a task draws itself, only whole numbers: the others may differ by rounding between machines.
    """
    digest = hashlib.sha256()
    for tensor in examples:
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype} ".encode())
        if not (isinstance(task, Drawn) and tensor.is_floating_point()):
            digest.update(tensor.cpu().contiguous().numpy().data)
    return {"examples": len(examples[0]), "digest": digest.hexdigest()[:16]}


def keep(folder: Path, sets: dict[str, dict[str, Any]]) -> None:
    """Leaves with a run what its sets were."""
    replace(folder / FILE, (json.dumps(sets, indent=1) + "\n").encode())


def judged_set(task: Task, seed: int, device: torch.device, folder: Path | None = None) -> Batch:
    """The test set, and that of the run in `folder` if there is one: another than it was judged on is refused."""
    found = task.examples("test", seed, device)
    path = None if folder is None else folder / FILE
    if path is None or not path.is_file():  # as older runs are
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
            f"{folder} was judged on another test set: {examples} examples, digest {kept}; here are"
            f" {here['examples']}, digest {here['digest']}: --data needs what it was trained with"
        )
    return found
