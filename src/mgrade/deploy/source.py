"""The source of an export: a finished run or a saved model, and the data to calibrate on."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy
import torch

from mgrade._files import read_description
from mgrade.deploy.about import About, about, read_about
from mgrade.deploy.c.printer import check_name
from mgrade.deploy.judge import Streamed
from mgrade.deploy.program import Program
from mgrade.deploy.samples import read_samples
from mgrade.nn import Model, ModelConfig, load
from mgrade.nn.storage import DESCRIPTION, FORMAT, VERSION
from mgrade.tasks import Batch, Labelled, Task
from mgrade.tasks.task import Drawn, generator
from mgrade.train import open_run
from mgrade.train.evaluate import evaluate
from mgrade.train.finished import RECIPE, judged_set
from mgrade.train.processes import Processes

Array = npt.NDArray[Any]
Sequence = tuple[Array, int | None]
"""Inputs (time, inputs) or token ids (time), and their class, if they have one."""
# Number of sequences to calibrate on, and the most steps of each.
SEQUENCES, STEPS = 64, 2000
# Files of a saved estimator beside its model and `about.json`.
ESTIMATOR, SAMPLE = "estimator.json", "sample.safetensors"
ESTIMATOR_FORMAT, ESTIMATOR_VERSION = "mgrade-estimator", 1


@dataclass(frozen=True)
class Source:
    """A trained model and, where they are known, its task, seed and run."""

    name: str
    """A valid C identifier."""
    model: Model
    task: Task | None = None
    seed: int = 0
    known: About | None = None
    """Names of inputs and outputs, where they are known."""
    run: Path | None = None
    """The folder of the finished run."""
    precision: str = "float32"
    """The default precision of exports; for an estimator, its own."""
    sample: tuple[Array, ...] = ()
    """For an estimator: the series (time, inputs) that it kept to calibrate on."""

    @property
    def apart(self) -> bool:
        """Whether outputs are values with units of their own. If nothing is known, they are taken for scores."""
        return self.known is not None and not self.known.classes

    def calibration(self, path: Path | None = None) -> list[Array]:
        """Sequences (streams, time, inputs) or (streams, time) from a CSV file, the kept sample or the training set."""
        if path is not None:
            return [read_samples(path, self.model.config, self.known)[None]]
        if self.sample:
            return [together(self.sample)]
        if self.task is None:
            raise ValueError("a saved model has no data of its own: give --calibrate FILE.csv, or the folder of a run")
        reader = _Inputs(self.model.config)
        self.task.judge(reader, *self._some("train", SEQUENCES))  # type: ignore[arg-type]
        return [x[:, :STEPS] for x in reader.seen]

    def judge(self, program: Program, examples: int | None = None) -> dict[str, float]:
        """The task's figures on its test set, or its first `examples`, streamed through `program`."""
        task, test = self._test()
        chosen = tuple(tensor[:examples] for tensor in test)
        streamed: Any = Streamed(program, self.model.config)
        return evaluate(streamed, task, chosen, 256, Processes())

    def test_sequences(self, count: int) -> list[Sequence]:
        """`count` sequences, evenly spread over the test set."""
        task, test = self._test()
        chosen = np.unique(np.linspace(0, len(test[0]) - 1, count).round().astype(int))
        batch = tuple(tensor[torch.from_numpy(chosen)] for tensor in test)
        reader = _Inputs(self.model.config)
        task.judge(reader, *batch)  # type: ignore[arg-type]
        (read,) = reader.seen
        labelled = isinstance(task, Labelled)
        ends = batch[2].tolist() if labelled and len(batch) > 2 else [read.shape[1]] * len(read)
        labels = batch[1].tolist() if labelled else [None] * len(read)
        return [(x[:end], label) for x, end, label in zip(read, ends, labels, strict=True)]

    def _test(self) -> tuple[Task, Batch]:
        if self.task is None:
            raise ValueError("a saved model has no test set of its own: give the folder of a run")
        return self.task, judged_set(self.task, self.seed, torch.device("cpu"), self.run)

    def _some(self, split: str, count: int) -> tuple[torch.Tensor, ...]:
        if isinstance(self.task, Drawn):
            return self.task.draw(split, count, generator(self.seed, "calibration"))
        assert self.task is not None
        batch = self.task.examples(split, self.seed, torch.device("cpu"))
        chosen = torch.randperm(len(batch[0]), generator=generator(self.seed, "calibration"))[:count]
        return tuple(tensor[chosen] for tensor in batch)


class _Inputs:
    """Stands in for a model and records its inputs. They may contain padding: zeros, which are harmless."""

    training = False

    def __init__(self, config: ModelConfig):
        self.config, self.seen = config, list[Array]()

    def __call__(self, x: torch.Tensor, *_: Any, last: int | None = None, **__: Any) -> tuple[torch.Tensor, None]:
        self.seen.append(x.numpy())
        steps = (last or x.shape[1],) if self.config.readout == "every" else ()
        return torch.zeros(len(x), *steps, self.config.outputs), None


def open_source(folder: str | Path) -> Source:
    """Opens the run or the saved model in `folder`."""
    folder = Path(folder)
    if (folder / RECIPE).is_file():
        recipe, seed, model = open_run(folder)
        return Source(as_name(recipe.experiment), model, recipe.task, seed, about(recipe.task), folder)
    if (folder / DESCRIPTION).is_file():
        model, name = load(folder), folder.absolute().name
        if (folder / ESTIMATOR).is_file():
            parameters = read_estimator(folder).get("parameters")
            precision = parameters.get("precision", "float32") if isinstance(parameters, dict) else "float32"
            sample = _framed(read_sample(folder / SAMPLE), model.config.inputs, folder / SAMPLE)
            named = (
                folder.absolute().parent.name if name == "model" else name
            )  # which `mgrade fit` uses for every model
            known = read_about(folder, model.config)
            return Source(as_name(named), model, known=known, sample=sample, precision=precision)
        return Source(as_name(name), model)
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such folder")
    hint = f": {folder / 'model'} is" if (folder / "model" / DESCRIPTION).is_file() else ""
    raise ValueError(f"{folder}: is neither a finished run (recipe.json) nor a saved model (config.json){hint}")


def read_estimator(folder: Path) -> dict[str, Any]:
    """Reads `estimator.json` of a saved estimator; refuses an interrupted save and files altered since."""
    path = folder / ESTIMATOR
    description = read_description(path, ESTIMATOR_FORMAT, ESTIMATOR_VERSION)
    if description.get("weights_sha256") != read_description(folder / DESCRIPTION, FORMAT, VERSION).get("sha256"):
        raise ValueError(f"{path}: weights_sha256 does not match: a save was interrupted; save again")
    try:
        digest = hashlib.sha256((folder / SAMPLE).read_bytes()).hexdigest()
    except OSError as error:
        raise ValueError(f"{folder / SAMPLE}: cannot be read: {error.strerror}") from None
    if description.get("sample_sha256") != digest:
        raise ValueError(f"{folder / SAMPLE}: sha256 does not match {ESTIMATOR}: the file is truncated or was altered")
    return description


def read_sample(path: Path) -> list[Array]:
    """The series (time, channels) that an estimator saved beside its model."""
    try:
        tensors = safetensors.numpy.load(path.read_bytes())
        series = [tensors[str(index)] for index in range(len(tensors))]
    except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
        raise ValueError(f"{path}: is not the sample of an estimator: {error}") from None
    if not series or any(one.dtype != np.float32 or one.ndim != 2 for one in series):
        raise ValueError(f"{path}: is not the sample of an estimator: it must hold series (time, channels) of float32")
    return series


def _framed(series: list[Array], inputs: int, path: Path) -> tuple[Array, ...]:
    """Series (time, channels) as (steps, inputs): a step takes several samples if it has more inputs than channels."""
    framed = []
    for one in series:
        channels = one.shape[1]
        if not channels or inputs % channels:
            raise ValueError(f"{path}: channels must divide the {inputs} inputs of the model, got {channels}")
        frame = inputs // channels
        framed.append(one[: len(one) // frame * frame].reshape(-1, inputs))
    return tuple(framed)


def together(sample: Iterable[Array]) -> npt.NDArray[np.float32]:
    """Stacks series into (series, longest, channels). Shorter ones repeat, so that no value is made up."""
    series = list(sample)
    longest = max(len(one) for one in series)
    return np.stack([np.resize(one, (longest, one.shape[1])) for one in series]).astype(np.float32)


def as_name(text: str) -> str:
    """`text` turned into a name that `check_name` accepts."""
    name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    for candidate in (name[:40], f"model_{name}"[:40].rstrip("_")):
        with contextlib.suppress(ValueError):
            return check_name(candidate)
    raise AssertionError(f"no name for {text!r}")
