"""What an export is made from: a finished run or a saved model, and the data that its ranges are found on."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy
import torch

from mgrade._files import read_description
from mgrade.deploy.about import LONGEST, About, about, read_about
from mgrade.deploy.c.printer import check_name
from mgrade.deploy.judge import Streamed
from mgrade.deploy.program import Program
from mgrade.nn import Model, ModelConfig, load
from mgrade.nn.storage import DESCRIPTION, FORMAT, VERSION
from mgrade.tasks import Batch, Labelled, Task
from mgrade.tasks.task import Drawn, generator
from mgrade.train import open_run
from mgrade.train.evaluate import evaluate
from mgrade.train.finished import judged_set
from mgrade.train.processes import Processes

Array = npt.NDArray[Any]
Sequence = tuple[Array, int | None]
"""Inputs (time, inputs) or token ids (time), and the class they belong to, if they belong to one."""
# Sequences that ranges are found on, and the most steps taken of each.
SEQUENCES, STEPS = 64, 2000
# What a saved estimator has beside its model, besides what it says about itself.
ESTIMATOR, SAMPLE = "estimator.json", "sample.safetensors"
ESTIMATOR_FORMAT, ESTIMATOR_VERSION = "mgrade-estimator", 1
# What may stand between the columns of a CSV file.
SEPARATORS = ",;\t"


@dataclass(frozen=True)
class Source:
    """A trained model, and where it was trained, the task and the seed."""

    name: str
    """As C takes it."""
    model: Model
    task: Task | None = None
    seed: int = 0
    known: About | None = None
    """What inputs and outputs are called, where that is known."""
    run: Path | None = None
    """Where a finished run lies."""
    precision: str = "float32"
    """Of exports where none is asked for: an estimator's own."""
    sample: tuple[Array, ...] = ()
    """Of an estimator: series (time, inputs) that were kept to find ranges on."""

    @property
    def apart(self) -> bool:
        """Whether outputs are values in units of their own: of what is not known, they are scores."""
        return self.known is not None and not self.known.classes

    def calibration(self, path: Path | None = None) -> list[Array]:
        """Sequences (streams, time, inputs) or (streams, time): from a CSV file, the sample, or the training set."""
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
        """The task's figures on its test set (or the first examples of it), streamed through `program`."""
        task, test = self._test()
        chosen = tuple(tensor[:examples] for tensor in test)
        streamed: Any = Streamed(program, self.model.config)
        return evaluate(streamed, task, chosen, 256, Processes())

    def test_sequences(self, count: int) -> list[Sequence]:
        """`count` sequences of the test set, evenly spread over it."""
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
    """Stands in for a model and keeps what it is given; padding, which is zero, does no harm."""

    training = False

    def __init__(self, config: ModelConfig):
        self.config, self.seen = config, list[Array]()

    def __call__(self, x: torch.Tensor, *_: Any, last: int | None = None, **__: Any) -> tuple[torch.Tensor, None]:
        self.seen.append(x.numpy())
        steps = (last or x.shape[1],) if self.config.readout == "every" else ()
        return torch.zeros(len(x), *steps, self.config.outputs), None


def open_source(folder: str | Path) -> Source:
    """The run or the saved model in `folder`."""
    folder = Path(folder)
    if (folder / "recipe.json").is_file():
        recipe, seed, model = open_run(folder)
        return Source(as_name(recipe.experiment), model, recipe.task, seed, about(recipe.task), folder)
    if (folder / "config.json").is_file():
        model, name = load(folder), folder.absolute().name
        if (folder / ESTIMATOR).is_file():
            parameters = read_estimator(folder).get("parameters")
            precision = parameters.get("precision", "float32") if isinstance(parameters, dict) else "float32"
            sample = _kept(folder / SAMPLE, model.config.inputs)
            named = folder.absolute().parent.name if name == "model" else name  # `mgrade fit` calls all of them so
            known = read_about(folder, model.config)
            return Source(as_name(named), model, known=known, sample=sample, precision=precision)
        return Source(as_name(name), model)
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such folder")
    hint = f": {folder / 'model'} is" if (folder / "model" / "config.json").is_file() else ""
    raise ValueError(f"{folder}: is neither a finished run (recipe.json) nor a saved model (config.json){hint}")


def read_estimator(folder: Path) -> dict[str, Any]:
    """`estimator.json` of a saved estimator; what is left of an interrupted save, or was altered since, is refused."""
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


def _kept(path: Path, inputs: int) -> tuple[Array, ...]:
    """The series that an estimator saved beside its model, as the model reads them."""
    try:
        tensors = safetensors.numpy.load(path.read_bytes())
        series = [tensors[str(index)] for index in range(len(tensors))]
        if not series or any(one.dtype != np.float32 or one.ndim != 2 for one in series):
            raise ValueError("it must hold series (time, channels) of float32")
        frames = [(one, inputs // one.shape[1]) for one in series]  # a step takes so many samples
        return tuple(one[: len(one) // frame * frame].reshape(-1, inputs) for one, frame in frames)
    except (OSError, ValueError, KeyError, ZeroDivisionError, safetensors.SafetensorError) as error:
        raise ValueError(f"{path}: is not the sample of an estimator: {error}") from None


def together(sample: Iterable[Array]) -> npt.NDArray[np.float32]:
    """Series as (series, longest, channels): shorter ones begin again, so that every value is one that occurs."""
    series = list(sample)
    longest = max(len(one) for one in series)
    return np.stack([np.resize(one, (longest, one.shape[1])) for one in series]).astype(np.float32)


def as_name(text: str) -> str:
    """`text` as a name that `check_name` takes."""
    name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    for candidate in (name[:40], f"model_{name}"[:40].rstrip("_")):
        with contextlib.suppress(ValueError):
            return check_name(candidate)
    raise AssertionError(f"no name for {text!r}")


def read_samples(path: Path, config: ModelConfig, known: About | None = None) -> Array:
    """A CSV file of samples, one per line: (time, inputs), or token ids (time)."""
    try:
        with open(path, encoding="utf-8") as file:
            rows = list(parse_samples(file, config.inputs, config.tokens, str(path), known))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    if not rows:
        raise ValueError(f"{path}: holds no sample")
    return np.stack(rows)


def parse_samples(
    lines: Iterable[str], inputs: int, tokens: bool, where: str, known: About | None = None
) -> Iterator[Array]:
    """The inputs of one step after the other, as they come: a sample a line, or the whole frame that a step takes.

    Commas, semicolons or tabs stand between columns. A first line of names is passed over, or where the channels are
    `known` by these names, says which columns are read; empty lines are passed over as well.
    """
    known = known or About()
    widths = (1, 1) if tokens else (inputs // known.frame, inputs)
    rows = _rows(lines, known.channels, widths, where)
    waiting: list[Array] = []
    for fields, at in rows:
        whole = known.frame == 1 or len(fields) == inputs
        waiting.append(_sample(fields, inputs if whole else inputs // known.frame, inputs, tokens, at))
        if whole or len(waiting) == known.frame:
            yield waiting[0] if len(waiting) == 1 else np.concatenate(waiting)
            waiting.clear()


def _rows(
    lines: Iterable[str], channels: tuple[str, ...], widths: tuple[int, int], where: str
) -> Iterator[tuple[list[str], str]]:
    """The fields of every line, and where it is; `widths`: columns of a sample, and of a step."""
    separator, chosen, columns, begins = "", None, 0, True
    try:
        for number, line in enumerate(lines, 1):
            if not line.strip("\ufeff\r\n \t"):
                continue
            if begins and not separator and (separator := told_separator(line)):
                continue
            separator = separator or separator_of(line, channels)
            fields = [field.strip() for field in next(csv.reader([line.lstrip("\ufeff")], delimiter=separator))]
            names = [field[:LONGEST] for field in fields]  # as `known` has them
            first, begins = begins, False
            if first and (_are_named(channels, names) or all(_number(field) is None for field in fields)):
                chosen, columns = _places(names, channels, f"{where}, line {number}"), len(fields)
                if chosen is None and len(fields) not in widths:
                    raise ValueError(
                        f"{where}, line {number}: must be numbers, or names of {widths[0]} columns,"
                        f" got {','.join(fields)[:60]!r}"
                    )
            elif chosen is None:
                yield fields, f"{where}, line {number}"
            elif len(fields) != columns:
                raise ValueError(f"{where}, line {number}: must have {columns} columns, got {len(fields)}")
            else:
                yield [fields[place] for place in chosen], f"{where}, line {number}"
    except UnicodeDecodeError:
        raise ValueError(f"{where}: must be UTF-8 text") from None
    except csv.Error as error:
        raise ValueError(f"{where}, line {number}: is not CSV: {error}") from None


def _are_named(channels: tuple[str, ...], fields: list[str]) -> bool:
    """Whether a line has the names of all channels, which may look like numbers."""
    return bool(channels) and set(channels) <= set(fields)


def told_separator(line: str) -> str:
    """What a line like `sep=;` says, which Excel writes before all others; nothing if it is no such line."""
    told = re.fullmatch(r'"?sep=(.)"?', line.strip("\ufeff\r\n "), re.IGNORECASE)
    return told[1] if told else ""


def separator_of(line: str, names: Iterable[str] = ()) -> str:
    """What stands between the columns of a CSV file: the sign that makes of its first line one with all `names`, or
    else most columns; of equals, a comma goes before a semicolon and a tab."""

    def fitness(sign: str) -> tuple[bool, int]:
        try:
            fields = next(csv.reader([line], delimiter=sign), [])
        except csv.Error:  # as where the whole line would be one field, and too long
            return False, 0
        return set(names) <= {field.strip("\ufeff\r\n \t") for field in fields}, len(fields)

    return max(SEPARATORS, key=fitness)


def _places(names: list[str], channels: tuple[str, ...], where: str) -> list[int] | None:
    """Which columns the channels are in; None where columns have names that say nothing of them."""
    if not set(channels) & set(names):
        return None
    for name in channels:
        if name not in names:
            raise ValueError(f"{where}: has no column {name!r}; the channels are {', '.join(channels)}")
        if names.count(name) > 1:
            raise ValueError(f"{where}: column {name!r} must be named once, got {names.count(name)}")
    return [names.index(name) for name in channels]


def _sample(fields: list[str], width: int, inputs: int, tokens: bool, where: str) -> Array:
    width = 1 if tokens else width
    values = [_number(field) for field in fields]
    real = np.array([np.nan if value is None else value for value in values], np.float64)
    with np.errstate(over="ignore"):
        narrow = real.astype(np.float32)
    if not np.isfinite(narrow).all():
        commas = any(re.fullmatch(r"[+-]?\d+,\d+", field) for field in fields)
        shown, advice = (";", ": decimal commas are not read, write points") if commas else (",", "")
        raise ValueError(f"{where}: must be finite numbers, got {shown.join(fields)[:60]!r}{advice}")
    if len(values) != width:
        raise ValueError(f"{where}: must have {width} values, got {len(values)}")
    if not tokens:
        return narrow
    if real[0] != np.floor(real[0]) or not 0 <= real[0] < inputs:
        raise ValueError(f"{where}: must be a token id from 0 to {inputs - 1}, got {fields[0]}")
    return np.array(real[0], np.int64)


def _number(field: str) -> float | None:
    try:
        return None if "_" in field else float(field)
    except ValueError:
        return None
