"""Saved estimators: a saved model with `estimator.json`, `about.json` and the sample for int8 exports. No pickle.

`estimator.json` is written last and names its weights and its sample by their SHA-256: loading refuses the remains of
an interrupted save.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import safetensors.numpy
import torch

from mgrade._files import make_folder, replace
from mgrade.deploy.about import FILE as ABOUT
from mgrade.deploy.about import read_about
from mgrade.deploy.source import ESTIMATOR, ESTIMATOR_FORMAT, ESTIMATOR_VERSION, SAMPLE, read_estimator, read_sample
from mgrade.estimator.learn import Epoch
from mgrade.nn import load as load_model
from mgrade.nn.storage import DESCRIPTION, check_folder

if TYPE_CHECKING:
    from mgrade.estimator.base import StreamEstimator

Estimator = TypeVar("Estimator", bound="StreamEstimator")


def save(estimator: StreamEstimator, folder: Path) -> None:
    """Writes a fitted estimator to `folder`, without a random state that is not a number."""
    classes = getattr(estimator, "classes_", np.zeros(0))
    if classes.dtype.kind not in "biufUO" or not all(isinstance(one, (str, int, float)) for one in classes.tolist()):
        raise ValueError(f"classes must be text or numbers to be saved, got {classes.dtype}")
    parameters = _parameters(estimator)
    check_folder(folder, ESTIMATOR, SAMPLE, ABOUT)
    sample = {str(index): np.ascontiguousarray(one, np.float32) for index, one in enumerate(estimator.sample_)}
    data = safetensors.numpy.save(sample)
    make_folder(folder)
    staged = folder / f".{SAMPLE}.{os.getpid()}"
    try:
        replace(staged, data)  # the largest file first: a full disk shows before anything changes
        estimator.model_.save(folder)
        os.replace(staged, folder / SAMPLE)
    finally:
        staged.unlink(missing_ok=True)
    replace(folder / ABOUT, estimator.about_.to_bytes())
    description = {
        "format": ESTIMATOR_FORMAT,
        "version": ESTIMATOR_VERSION,
        "estimator": type(estimator).__name__,
        "weights_sha256": _weights(folder),
        "sample_sha256": hashlib.sha256(data).hexdigest(),
        "parameters": parameters,
        "fitted": {
            "mean": estimator.mean_.tolist(),
            "scale": estimator.scale_.tolist(),
            "frame": estimator.frame_,
            "features": estimator.n_features_in_,
            "form": estimator._form,
            "best_epoch": estimator.best_epoch_,
            "history": [[epoch.training, epoch.validation] for epoch in estimator.history_],
        },
    }
    if hasattr(estimator, "classes_"):
        description["classes"] = {"dtype": classes.dtype.str, "values": classes.tolist()}
    replace(folder / ESTIMATOR, (json.dumps(description, indent=2) + "\n").encode())


def load(cls: type[Estimator], folder: Path) -> Estimator:
    """The estimator in `folder`; a ValueError if it is missing, damaged or of another class."""
    path = folder / ESTIMATOR
    description = read_estimator(folder)
    if description.get("estimator") != cls.__name__:
        raise ValueError(f"{path}: estimator must be {cls.__name__}, got {description.get('estimator')!r}")
    model = load_model(folder).eval()
    sample = [one.astype(np.float64) for one in read_sample(folder / SAMPLE)]
    try:
        fitted = description["fitted"]
        estimator = cls(**description["parameters"])
        estimator.mean_, estimator.scale_ = np.array(fitted["mean"], float), np.array(fitted["scale"], float)
        estimator.frame_ = int(fitted.get("frame", 1))
        estimator.n_features_in_, estimator._form = int(fitted["features"]), str(fitted["form"])
        estimator.best_epoch_ = int(fitted["best_epoch"])
        estimator.history_ = [Epoch(*epoch) for epoch in fitted["history"]]
        if "classes" in description:
            values = description["classes"]
            estimator.classes_ = np.array(values["values"], np.dtype(values["dtype"]))
        estimator._check_parameters()
        if not (np.isfinite(estimator.mean_).all() and np.isfinite(estimator.scale_).all()):
            raise ValueError("mean and scale must be finite")
        if not (estimator.scale_ > 0).all():
            raise ValueError("scale must be above 0")
        known = getattr(estimator, "classes_", np.zeros(0))
        if known.ndim != 1 or len(set(known.tolist())) != len(known):
            raise ValueError("classes must be distinct")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{path}: is damaged: {error!r}") from None
    inputs, outputs = model.config.inputs, model.config.outputs
    widths = {len(estimator.mean_), len(estimator.scale_), *(one.shape[1] for one in sample)}
    if {width * estimator.frame_ for width in widths} != {inputs} or len(
        getattr(estimator, "classes_", range(outputs))
    ) != outputs:
        raise ValueError(f"{path}: must belong to a model with {inputs} inputs and {outputs} outputs")
    estimator.model_, estimator.config_, estimator.n_channels_ = model, model.config, len(estimator.mean_)
    estimator.sample_ = sample
    estimator.about_ = read_about(folder, model.config) or estimator._about()
    return estimator


def _weights(folder: Path) -> str:
    """The digest of the weights, as the saved model names it."""
    return json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))["sha256"]


def _parameters(estimator: StreamEstimator) -> dict[str, Any]:
    """Parameters as JSON holds them: NumPy's numbers as Python's, a device by name, a random state only if a number."""
    parameters = estimator.get_params()
    if not isinstance(parameters["random_state"], (int, np.integer)):
        parameters["random_state"] = None
    for name, value in parameters.items():
        parameters[name] = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, torch.device):
            parameters[name] = str(value)
        elif not isinstance(parameters[name], (str, int, float, type(None))):
            raise ValueError(f"{name} must be text or a number to be saved, got {value!r}")
    return parameters
