"""Saved models: `config.json` and one safetensors file, no pickle.

The weights file is named by its own SHA-256 and `config.json` names it, so that replacing `config.json` is the
one step that turns an old saved model into the new one: a crash at any moment leaves one or the other.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from mgrade._files import make_folder, read_description, replace
from mgrade.nn.config import ModelConfig
from mgrade.nn.convolution import DelayConv
from mgrade.nn.model import Model

FORMAT, VERSION = "mgrade-model", 1
_KINDS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
DESCRIPTION = "config.json"
WEIGHTS = "model-" + "[0-9a-f]" * 16 + ".safetensors"
"""A pattern for names of weights files that excludes other libraries' `model-00001-of-00002.safetensors`."""


def save(model: Model, folder: str | Path) -> None:
    """Writes `model` to `folder`, which is created if needed; refuses a folder with another library's model."""
    folder = Path(folder)
    check_folder(folder)
    state = model.state_dict()
    for name, part in model.named_modules(remove_duplicate=False):
        if isinstance(part, DelayConv):
            state[f"{name}.position"] = part.within()
    whole = torch.contiguous_format
    # copies, because safetensors refuses tensors that share memory
    tensors = {name: tensor.detach().cpu().clone(memory_format=whole) for name, tensor in state.items()}
    config = _as_it_is(model)
    check_tensors(folder, config, tensors)
    data = safetensors.torch.save(tensors)
    make_folder(folder)
    digest = hashlib.sha256(data).hexdigest()
    weights = f"model-{digest[:16]}.safetensors"
    replace(folder / weights, data)
    description = {
        "format": FORMAT,
        "version": VERSION,
        "weights": weights,
        "sha256": digest,
        "model": config.to_dict(),
        "model_sha256": _digest(config.to_dict()),
    }
    replace(folder / DESCRIPTION, (json.dumps(description, indent=2) + "\n").encode())
    for other in folder.glob(WEIGHTS):
        if other.name != weights:
            other.unlink(missing_ok=True)


def _digest(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _as_it_is(model: Model) -> ModelConfig:
    """The configuration of a model with the present width of its taps."""
    widths = {part.sigma for part in model.modules() if isinstance(part, DelayConv)} or {model.config.sigma}
    if len(widths) > 1:
        raise ValueError(f"sigma must be the same in all layers to be saved, got {', '.join(map(str, sorted(widths)))}")
    return dataclasses.replace(model.config, sigma=widths.pop())


def check_folder(folder: Path, *others: str) -> None:
    """Refuses a folder where saving would replace a description, or one of `others`, that is not a saved model's."""
    path = folder / DESCRIPTION
    try:
        read_description(path, FORMAT, VERSION)
    except ValueError:
        for name in (DESCRIPTION, *others):
            if (folder / name).exists():
                raise ValueError(
                    f"{folder}: has the file {name}, which is not a saved model's: choose another folder"
                ) from None


def load(folder: str | Path) -> Model:
    """The model saved in `folder`, on the CPU; a damaged or altered one is refused with a ValueError."""
    folder = Path(folder)
    description = _description(folder / DESCRIPTION)
    try:
        config = ModelConfig.from_dict(description["model"])
    except ValueError as error:
        raise ValueError(f"{folder / DESCRIPTION}: {error}") from None
    path = folder / description["weights"]
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    if hashlib.sha256(data).hexdigest() != description["sha256"]:
        raise ValueError(f"{path}: sha256 does not match config.json: the file is truncated or was altered")
    try:
        tensors = safetensors.torch.load(data)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path}: is not a safetensors file: {error}") from None
    if config.depth > len(tensors):
        raise ValueError(f"{path}: must have tensors for {config.depth} layers, has {len(tensors)} in all")
    check_tensors(path, config, tensors)
    digest = _digest(description["model"])
    if description.get("model_sha256", digest) != digest:  # it may be missing
        raise ValueError(f"{folder / DESCRIPTION}: model does not match model_sha256: it was altered")
    model = Model(config)
    model.load_state_dict(tensors, assign=True)
    return model


def _description(path: Path) -> dict[str, Any]:
    description = read_description(path, FORMAT, VERSION)
    for field, kind in (("weights", str), ("sha256", str), ("model", dict)):
        if not isinstance(description.get(field), kind):
            raise ValueError(f"{path}: {field} is missing or not a {kind.__name__}")
    if Path(description["weights"]).name != description["weights"] or "\0" in description["weights"]:
        raise ValueError(f"{path}: weights must be a file name, got {description['weights']!r}")
    return description


def check_tensors(path: Path, config: ModelConfig, tensors: dict[str, torch.Tensor]) -> None:
    """Refuses tensors that are not finite weights for `config`; `path` is for the message."""
    with torch.device("meta"):  # an untrusted description may ask for any amount of memory
        expected = Model(config).state_dict()
    for name in sorted(expected.keys() ^ tensors.keys()):
        raise ValueError(f"{path}: tensor {name!r} is {'missing' if name in expected else 'not part of the model'}")
    for name, tensor in tensors.items():
        if tensor.dtype not in _KINDS:
            raise ValueError(f"{path}: tensor {name!r} must be floating point, got {tensor.dtype}")
        if tensor.shape != expected[name].shape:
            raise ValueError(
                f"{path}: tensor {name!r} must have shape {tuple(expected[name].shape)}, got {tuple(tensor.shape)}"
            )
        if not tensor.isfinite().all():
            raise ValueError(f"{path}: tensor {name!r} must be finite numbers")
        if name.endswith(".conv.position"):
            low, high, last = float(tensor.min()), float(tensor.max()), config.max_delay - 1
            if low < 0 or high > last:
                worst = low if low < 0 else high
                raise ValueError(f"{path}: tensor {name!r} must lie within 0 and max_delay - 1 = {last}, got {worst:g}")
