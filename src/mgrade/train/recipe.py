"""Recipes: one TOML file says what to train, on what, and how; several ship with the package.

    seeds = [0, 1, 2]
    [task]   name = "flipflop"          # and the task's options
    [model]  preset = "mgrade"          # and the fields of ModelConfig
    [train]  steps = 1000               # and the options of `Training`
    [paper]  test_accuracy = 0.996      # what the paper reports, shown beside the result
    [variants."0.07"]  task.frequency = 0.07

A variant is the same recipe with some other values; its name is `experiment/model@variant`.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgrade._checks import is_number, plain
from mgrade.nn import ModelConfig
from mgrade.tasks import TASKS, Drawn, Task
from mgrade.train.options import Training, checked, nearest

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PRESETS = ("mgrade", "mingru", "dcls", "tcn", "lru", "lru_dcls")
# Experiments that share a table of the paper, as patterns of recipe names.
_LRA, _ABLATED = ["listops", "text", "retrieval", "image", "pathfinder"], ["listops", "image", "pathfinder"]
GROUPS = {
    "theory": [f"{name}/*" for name in ("lorenz", "highfreq", "flipflop", "selective-copying")],
    "lra": [f"{name}/{model}" for name in _LRA for model in ("mgrade", "lru")],
    "ablation": [f"{name}/{model}" for name in _ABLATED for model in ("mgrade", "mingru", "dcls", "tcn")],
}
TABLES = ("seeds", "task", "model", "train", "paper", "variants")
MOST_OF_A_TASK = 2**31
"""The largest value of any task option: sets drawn only at the end of a run are refused at its start."""
WHOLE_SIGMA = 0.1
"""Taps of at most this width have no weight on neighbouring steps."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A checked recipe: everything a run needs except its seed."""

    experiment: str
    name: str
    """The model's name in the experiment, with `@variant` for a variant."""
    seeds: tuple[int, ...]
    task: Task
    model: ModelConfig
    train: Training
    paper: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """All options, including defaults, as JSON holds them."""
        task = {"name": _task_name(self.task), **plain(self.task)}
        return {"task": task, "model": self.model.to_dict(), "train": plain(self.train)}


def shipped() -> list[str]:
    """The names of all shipped recipes and their variants, sorted."""
    names = []
    for experiment in _folder().iterdir():
        for file in experiment.iterdir() if experiment.is_dir() else ():
            if file.name.endswith(".toml"):
                name = f"{experiment.name}/{file.name.removesuffix('.toml')}"
                names += [name, *(f"{name}@{variant}" for variant in _parse(file.read_text("utf-8"), name)[1])]
    return sorted(names)


def of_experiment(experiment: str) -> list[str]:
    """The shipped recipes of an experiment, or of a group of them, variants included."""
    names = shipped()
    known = sorted({name.partition("/")[0] for name in names})
    if experiment in GROUPS:
        return [name for name in names if any(fnmatch(name, pattern) for pattern in GROUPS[experiment])]
    if experiment not in known:
        raise ValueError(f"there is no experiment {experiment!r}" + nearest(experiment, [*known, *GROUPS]))
    return [name for name in names if name.startswith(f"{experiment}/")]


def of_experiments(experiments: Iterable[str]) -> list[str]:
    """The recipes of several experiments or groups, without repetitions."""
    return list(dict.fromkeys(name for experiment in experiments for name in of_experiment(experiment)))


def load_recipe(name: str, settings: Iterable[str] = ()) -> Recipe:
    """A shipped recipe by name, or a TOML file by path; `settings` are KEY=VALUE, such as model.dim=64."""
    base, variant = _split(name)
    text, experiment, model = _text(base, name)
    table, chosen = _parse_variant(text, name)
    for key, value in _flat(chosen):
        _set(table, key, value)
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"--set takes KEY=VALUE, such as model.dim=64, got {setting!r}")
        _set(table, key.strip(), _value(value.strip()))
    return _build(table, experiment, f"{model}@{variant}" if variant else model)


def from_dict(table: dict[str, Any], experiment: str, name: str) -> Recipe:
    """The inverse of `Recipe.to_dict`."""
    task = _task(dict(table["task"]))
    model = ModelConfig.from_dict(dict(table["model"]))
    train = checked(Training, table["train"], "train")
    return Recipe(experiment=experiment, name=name, seeds=(0,), task=task, model=model, train=train)


def source(name: str) -> str:
    """The text of a recipe's file, with all variants."""
    text = _text(_split(name)[0], name)[0]
    _parse_variant(text, name)
    return text


def heading(name: str) -> str:
    """The comment at the top of a shipped recipe."""
    lines = source(name).splitlines()
    comment = []
    for line in lines:
        if not line.startswith("#"):
            break
        comment.append(line.lstrip("# ").rstrip())
    return " ".join(comment)


def _folder() -> Traversable:
    return resources.files("mgrade.train") / "recipes"


def _split(name: str) -> tuple[str, str | None]:
    """A recipe's name or path, and its variant or None; a path may contain @ before .toml."""
    if name.endswith(".toml"):
        return name, None
    path, file, variant = name.rpartition(".toml@")
    if file:
        return f"{path}.toml", variant
    base, at, variant = name.partition("@")
    return base, variant if at else None


def _text(base: str, name: str) -> tuple[str, str, str]:
    """Text, experiment and model name of a recipe, given as a path ending in .toml or as a shipped name."""
    if base.endswith(".toml"):
        path = Path(base)
        if path.stem in (".", ".."):
            raise ValueError(f"recipe {base}: must have a name before .toml")
        try:
            return path.read_text("utf-8"), Path(os.path.abspath(base)).parent.name or "recipe", path.stem
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"recipe {base}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    experiment, slash, model = base.partition("/")
    parts = (experiment, model)
    if slash and all(part and part.replace("-", "").replace(".", "").isalnum() for part in parts):
        file = _folder() / experiment / f"{model}.toml"
        if file.is_file():
            return file.read_text("utf-8"), experiment, model
    known = [n for n in shipped() if "@" not in n]
    if not model and (models := [n for n in known if n.startswith(f"{experiment}/")]):
        raise ValueError(f"{name!r} is an experiment, not a recipe: its recipes are {', '.join(models)}")
    raise ValueError(f"there is no recipe {name!r}" + nearest(base, known))


def _parse(text: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The recipe's table without its variants, and the variants."""
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"recipe {name}: is not TOML: {error}") from None
    variants = table.pop("variants", {})
    if not isinstance(variants, dict) or not all(isinstance(v, dict) for v in variants.values()):
        raise ValueError(f"recipe {name}: variants must be tables")
    for variant in variants:
        if not 0 < len(variant) <= 100 or not variant.isprintable() or "/" in variant:
            raise ValueError(
                f"recipe {name}: variants must have names of 1 to 100 characters without /, got {variant!r}"
            )
    return table, variants


def _parse_variant(text: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The recipe's table, and the table of the variant that its name chooses (empty without one)."""
    table, variants = _parse(text, name)
    base, variant = _split(name)
    if variant is None:
        return table, {}
    if variant not in variants:
        raise ValueError(f"recipe {base} has no variant {variant!r}" + nearest(variant, variants))
    return table, variants[variant]


def _flat(table: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested tables as dotted keys."""
    pairs: list[tuple[str, Any]] = []
    for key, value in table.items():
        pairs += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return pairs


def _value(text: str) -> Any:
    """A value as TOML writes it, or a number such as .5 or 5.; anything else is a string."""
    if re.fullmatch(r"[+-]?(\.\d+|\d+\.)(e[+-]?\d+)?", text, re.ASCII | re.IGNORECASE):
        return float(text)
    try:
        found = tomllib.loads(f"value = {text}")
        return found["value"] if len(found) == 1 else text
    except (ValueError, RecursionError):
        return text


def _set(table: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    first = (path or [last])[0]
    if first == "variants":
        raise ValueError(f"{key} cannot be set: choose a variant by name, as in experiment/model@variant")
    if first not in TABLES:
        raise ValueError(f"a recipe has no {key!r}" + nearest(first, TABLES[:-1]))
    for part in path:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ValueError(f"{key}: {part} is not a table")
    if path and path[0] == "train" and last in ("steps", "epochs"):  # one replaces the other
        table.pop("epochs" if last == "steps" else "steps", None)
    table[last] = value


def _build(table: dict[str, Any], experiment: str, name: str) -> Recipe:
    for key in table:
        if key not in TABLES:
            raise ValueError(f"a recipe has no {key!r}" + nearest(key, TABLES))
    table = {"paper": {}, **table}
    for key in ("task", "model", "train", "paper"):
        if not isinstance(table.get(key), dict):
            raise ValueError(f"{key} must be a table of the recipe" + (", got none" if key not in table else ""))
    for figure, value in table["paper"].items():
        if not (isinstance(value, str) or is_number(value)):
            raise ValueError(f"paper.{figure} must be a number or text, got {value!r}")
    seeds = table.get("seeds", [0])
    if not isinstance(seeds, list) or not seeds or not all(type(s) is int and s >= 0 for s in seeds):
        raise ValueError(f"seeds must be a list of whole numbers of at least 0, got {seeds!r}")
    check_distinct(seeds)
    task = _task(dict(table["task"]))
    train = checked(Training, table["train"], "train")
    if task.endless and train.epochs is not None:
        raise ValueError("train.epochs does not apply to a task whose examples are drawn without end: set train.steps")
    if task.endless and train.by_length:
        raise ValueError("train.by_length must be false for a task whose examples are drawn without end, got true")
    _check_class_weights(task, train)
    model = _model(dict(table["model"]), task)
    _check_used(model, train)
    if train.snap and model.sigma > WHOLE_SIGMA:
        raise ValueError(f"train.snap needs a model.sigma of {WHOLE_SIGMA} or less, got {model.sigma}")
    return Recipe(
        experiment=experiment,
        name=name,
        seeds=tuple(seeds),
        task=task,
        model=model,
        train=train,
        paper=dict(table["paper"]),
    )


def check_distinct(seeds: Sequence[int]) -> None:
    """Refuses duplicate seeds."""
    if len(set(seeds)) != len(seeds):
        raise ValueError(f"seeds must differ, got {list(seeds)!r}")


def _task(options: dict[str, Any]) -> Task:
    name = options.pop("name", None)
    if not isinstance(name, str) or name not in TASKS:
        raise ValueError(f"task.name must be a task, got {name!r}" + nearest(str(name), TASKS))
    for option, value in options.items():
        if isinstance(value, int) and value > MOST_OF_A_TASK:
            raise ValueError(f"task.{option} must be at most {MOST_OF_A_TASK}, got {value}")
    task = checked(TASKS[name], options, "task")
    _check_drawn(task)
    return task


def _task_name(task: Task) -> str:
    return next(name for name, cls in TASKS.items() if type(task) is cls)


def _model(fields: dict[str, Any], task: Task) -> ModelConfig:
    preset = fields.pop("preset", "mgrade")
    if preset not in PRESETS:
        raise ValueError(f"model.preset must be one of {', '.join(PRESETS)}, got {preset!r}")
    settled = {"pair": False, **task.model_fields()}
    known = [entry.name for entry in dataclasses.fields(ModelConfig)]
    for name in fields:
        if name not in known:
            raise ValueError(f"model has no field {name!r}" + nearest(name, known))
        if name in settled and name != "readout":
            raise ValueError(f"model.{name} is set by the task, to {settled[name]!r}")
    try:
        config: ModelConfig = getattr(ModelConfig, preset)(**{**settled, **fields})
    except ValueError as error:
        raise ValueError(f"model.{error}") from None
    every = settled["readout"] == "every"
    if (config.readout == "every") != every:
        fitting = "every" if every else "last, mean or sum"
        raise ValueError(f"model.readout must be {fitting} for this task, got {config.readout!r}")
    return config


def _check_used(model: ModelConfig, train: Training) -> None:
    """Refuses options for parts that the model does not have."""
    if train.sigma_from is not None and model.conv != "delay":
        raise ValueError(f"train.sigma_from needs learnable delays, got {train.sigma_from} for conv {model.conv!r}")
    if model.recurrence == "none" and train.recurrence_rate != Training.recurrence_rate:
        raise ValueError(f"train.recurrence_rate needs a recurrence, got {train.recurrence_rate} for a model without")
    if model.recurrence != "lru" and train.recurrence_decay != Training.recurrence_decay:
        raise ValueError(
            f"train.recurrence_decay needs an LRU, got {train.recurrence_decay} for recurrence {model.recurrence!r}"
        )


def _check_drawn(task: Task) -> None:
    """Refuses sets too large to draw, which would otherwise fail only at the end of a run."""
    if not isinstance(task, Drawn):
        return
    most = MOST_OF_A_TASK // task.numbers
    for split, count in task.sizes.items():
        if count > most:
            raise ValueError(f"task.{split} must be at most {most} at {task.numbers} numbers each, got {count}")


def _check_class_weights(task: Task, train: Training) -> None:
    weights = train.class_weights
    if weights == "none":
        return
    if task.classes is None:
        raise ValueError(f"train.class_weights must be none for a task without classes, got {weights!r}")
    if weights == "inverse" and task.endless:
        raise ValueError("train.class_weights cannot be inverse where examples are drawn without end: give a list")
    if not isinstance(weights, str) and len(weights) != task.classes:
        raise ValueError(f"train.class_weights must have {task.classes} entries, got {len(weights)}")
