"""Fingerprints of the data sets of a run: the number of examples, and a digest."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from mgrade._files import replace
from mgrade.tasks import Batch, Drawn, Task

FILE = "data.json"
"""Beside the model of a finished run."""


def described(task: Task, examples: Batch) -> dict[str, Any]:
    """A data set as result files describe it; the digest covers shapes and all numbers.

    For tasks that draw their examples, it covers whole numbers only: others may differ between machines by rounding.
    """
    digest = hashlib.sha256()
    for tensor in examples:
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype} ".encode())
        if not (isinstance(task, Drawn) and tensor.is_floating_point()):
            digest.update(tensor.cpu().contiguous().numpy().data)
    return {"examples": len(examples[0]), "digest": digest.hexdigest()[:16]}


def keep(folder: Path, sets: dict[str, dict[str, Any]]) -> None:
    """Writes the digests of a run's data sets into its folder."""
    replace(folder / FILE, (json.dumps(sets, indent=1) + "\n").encode())
