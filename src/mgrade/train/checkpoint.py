"""Checkpoints: everything a run needs to continue, in one safetensors file that is complete or absent.

A file's name holds its step and the SHA-256 of its content: it appears by a single rename, and damage is detected. The
newest two are kept, so a damaged one can be replaced by the one before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from mgrade._files import replace

KEEP = 2
_PATTERN = "step-*.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after `step` steps."""

    step: int
    tensors: dict[str, Tensor]
    facts: dict[str, Any]
    """Everything else, as JSON holds it."""


def write(folder: Path, checkpoint: Checkpoint) -> Path:
    """Writes `checkpoint` into `folder` and removes all but the newest `KEEP`."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
    facts = {"step": checkpoint.step, **checkpoint.facts}
    data = safetensors.torch.save(tensors, metadata={"mgrade": json.dumps(facts)})
    path = folder / f"step-{checkpoint.step:010d}-{hashlib.sha256(data).hexdigest()[:16]}.safetensors"
    replace(path, data)
    others = [other for other in _newest_first(folder) if other != path]
    for other in others[KEEP - 1 :]:
        other.unlink(missing_ok=True)
    return path


def newest(folder: Path, facts: Mapping[str, Any] | None = None) -> tuple[Checkpoint | None, list[str]]:
    """The newest intact checkpoint, and a line about each newer, damaged one.

    facts: the entries it must have, by name and type.
    """
    problems: list[str] = []
    for path in _newest_first(folder):
        try:
            return _read(path, facts or {}), problems
        except ValueError as error:
            problems.append(f"{path}: {error}")
    return None, problems


def clean(folder: Path) -> None:
    """Removes temporary files of killed processes."""
    for path in folder.glob(".step-*.tmp"):
        path.unlink(missing_ok=True)


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob(_PATTERN), reverse=True)


def _read(path: Path, wanted: Mapping[str, Any]) -> Checkpoint:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    if hashlib.sha256(data).hexdigest()[:16] != path.stem.rpartition("-")[2]:
        raise ValueError("its SHA-256 does not match its name: the file is damaged")
    try:
        tensors = safetensors.torch.load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        facts = json.loads(header["__metadata__"]["mgrade"])
        step = facts.pop("step")
        for name, kind in wanted.items():
            if not isinstance(facts[name], kind):
                raise ValueError(f"{name} has the wrong type")
        if not isinstance(step, int) or step < 0:
            raise ValueError(f"step must be a whole number of at least 0, got {step!r}")
        return Checkpoint(step, tensors, facts)
    except (safetensors.SafetensorError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"is not a checkpoint: {error}") from None
