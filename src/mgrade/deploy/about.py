"""What is known about a model's inputs and outputs, for showing an export: names, rates, gain.

An export of a run or an estimator stores it as `about.json` beside its files. It contains none of the data.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from mgrade._files import read_description
from mgrade.deploy.program import Program
from mgrade.nn import ModelConfig
from mgrade.tasks import Task

FILE = "about.json"
FORMAT, VERSION = "mgrade-about", 1
# Sampling rates of sound that browsers and files use.
LEAST_RATE, MOST_RATE = 1000, 384_000
LONGEST = 80


@dataclass(frozen=True, kw_only=True)
class About:
    """Names of outputs and inputs, and the rate of steps."""

    title: str = ""
    classes: bool = True
    """Whether outputs are class logits; otherwise they are values."""
    labels: tuple[str, ...] = ()
    """Names of the outputs; if empty, outputs are numbered."""
    symbols: tuple[str, ...] = ()
    """For a model that reads tokens: what each id stands for."""
    channels: tuple[str, ...] = ()
    """Names of the channels of a sample, in the order of the inputs."""
    frame: int = 1
    """Number of successive samples that one step takes."""
    window: int | None = None
    """Number of samples per answer, if the model was trained on pieces of that length."""
    steps_per_second: float | None = None
    samples_per_second: int | None = None
    """If set, the inputs of a step are successive samples of mono sound at this rate."""
    gain: float = 1.0
    """The factor by which a sound sample from -1 to 1 is multiplied before the model reads it."""

    def __post_init__(self) -> None:
        for name in ("title", "labels", "symbols", "channels"):
            texts = (self.title,) if name == "title" else getattr(self, name)
            if not isinstance(texts, tuple) or not all(
                isinstance(text, str) and len(text) <= LONGEST for text in texts
            ):
                raise ValueError(f"{name} must be text of at most {LONGEST} characters, got {texts!r:.60}")
        for name, count in (("frame", self.frame), ("window", 1 if self.window is None else self.window)):
            if type(count) is not int or count < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {count!r:.40}")
        if self.window is not None and self.window % self.frame:
            raise ValueError(f"window must be a multiple of frame, {self.frame}, got {self.window}")
        rate = self.samples_per_second
        if rate is not None and (type(rate) is not int or not LEAST_RATE <= rate <= MOST_RATE):
            raise ValueError(f"samples_per_second must be whole, {LEAST_RATE} to {MOST_RATE}, got {rate!r:.40}")
        steps = 1.0 if self.steps_per_second is None else self.steps_per_second
        for name, number in (("steps_per_second", steps), ("gain", self.gain)):
            if type(number) not in (int, float) or not 0 < number < math.inf:
                raise ValueError(f"{name} must be a number above 0, got {number!r:.40}")
        if type(self.classes) is not bool:
            raise ValueError(f"classes must be true or false, got {self.classes!r:.40}")

    def fit(self, model: Program | ModelConfig) -> About:
        """Returns itself if it matches the inputs and outputs of `model`; a ValueError says what does not."""
        inputs = 0 if model.tokens else model.inputs
        if self.frame > 1 and (model.tokens or inputs % self.frame):
            raise ValueError(f"frame must divide the {inputs} inputs of a step, got {self.frame}")
        wanted = (
            ("labels", model.outputs),
            ("symbols", model.inputs if model.tokens else 0),
            ("channels", inputs // self.frame),
        )
        for name, count in wanted:
            given = len(getattr(self, name))
            if given not in (0, count):
                raise ValueError(f"{name} must be {count}, one for each, got {given}")
        if model.tokens and self.samples_per_second is not None:
            raise ValueError("samples_per_second is for sound, and this model reads tokens")
        return self

    def to_dict(self) -> dict[str, Any]:
        """As stored in JSON."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}

    def to_bytes(self) -> bytes:
        """The contents of the file."""
        return (json.dumps(self.to_dict(), indent=2) + "\n").encode()


def about(task: Task) -> About:
    """What a task says about its models."""
    return About(**task.facts())


def read_about(folder: Path, model: Program | ModelConfig) -> About | None:
    """Reads the file in the folder of an export or a saved estimator; None if there is none."""
    path = folder / FILE
    if not path.is_file():
        return None
    found = read_description(path, FORMAT, VERSION)
    known = {field.name for field in fields(About)}
    if unknown := sorted(found.keys() - known - {"format", "version"}):
        raise ValueError(f"{path}: no field {unknown[0]!r:.40}; there are {', '.join(sorted(known))}")
    chosen: dict[str, Any] = {name: found[name] for name in known & found.keys()}
    for name in ("labels", "symbols", "channels"):
        if isinstance(chosen.get(name), list):
            chosen[name] = tuple(chosen[name])
    try:
        return About(**chosen).fit(model)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
