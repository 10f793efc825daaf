"""Model cards: what hubs and their readers need to know about a model, written from its result file."""

from __future__ import annotations

import json
import math
import re
from html import escape
from typing import Any

from mgrade.nn import Model
from mgrade.train.result import state_bytes

# The hub's names of tasks; tasks that fit none of them have no pipeline tag.
PIPELINES = {
    "fsdd": "audio-classification",
    "image": "image-classification",
    "lorenz": "time-series-forecasting",
    "scifar": "image-classification",
    "shd": "audio-classification",
    "smnist": "image-classification",
    "speech": "audio-classification",
    "text": "text-classification",
    "vowels": "audio-classification",
}
TAGS = ("sequence-model", "streaming", "mingru", "learnable-delays", "embedded")
# Decimals of figures: with fewer, models would look alike; with more, YAML would read 1e-05 as a string. From WHOLE on
# figures have none: YAML would read 1e+16 as a string too.
DECIMALS, WHOLE = 4, 1e15

_USE = """```python
from mgrade import Model

model = Model.from_pretrained({name})
state = model.initial_state(batch=1)
y, state = model.step(x, state)  # one sample at a time: {reads} -> {gives}
```
"""


def model_card(model: Model, name: str, result: dict[str, Any] | None = None, license: str = "mit") -> str:
    """The README.md of a model folder: front matter for the hub, and the same in words."""
    head = "".join(f"{key}: {_json(value)}\n" for key, value in _front_matter(name, result, license).items())
    parts = [f"---\n{head}---\n", f"# {_text(name)}\n", _shape(model), _use(model, name)]
    if result is not None:
        parts += [_figures(result), _origin(result)]
    parts.append(f"## Configuration\n\n{_block(model.config.to_dict())}")
    return "\n".join(parts)


def _front_matter(name: str, result: dict[str, Any] | None, license: str) -> dict[str, Any]:
    """Top-level keys of the YAML; values are written as JSON, a subset of YAML."""
    front: dict[str, Any] = {"license": license, "library_name": "mgrade", "tags": list(TAGS)}
    if result is None:
        return front
    task, experiment = _line(result["recipe"]["task"]["name"]), _line(result["experiment"])
    pipeline = PIPELINES.get(task)
    front["tags"].append(experiment)
    if pipeline is not None:
        front["pipeline_tag"] = pipeline
    figures = {_line(figure): value for figure, value in _metrics(result).items() if value is not None}
    if figures:
        metrics = [{"type": _kind(figure), "name": figure, "value": value} for figure, value in figures.items()]
        front["metrics"] = sorted({metric["type"] for metric in metrics})
        evidence = {"task": {"type": pipeline or "other"}, "dataset": {"type": task, "name": experiment}}
        front["model-index"] = [{"name": _line(name.rsplit("/", 1)[-1]), "results": [{**evidence, "metrics": metrics}]}]
    return front


def _kind(figure: str) -> str:
    """A figure's name without its split: `test_accuracy` is an `accuracy`."""
    return figure.removeprefix("test_").removeprefix("validation_")


def _metrics(result: dict[str, Any]) -> dict[str, float | None]:
    """Rounded; None if not finite, which a hub cannot store."""
    return {name: _rounded(value) if math.isfinite(value) else None for name, value in result["metrics"].items()}


def _rounded(value: float) -> float:
    return round(value, DECIMALS) if abs(value) < WHOLE else round(value)


def _shape(model: Model) -> str:
    config = model.config
    parts = " + ".join(part for part in (config.conv, config.recurrence, config.mlp) if part != "none")
    layers = f"{config.depth} layer{'s' if config.depth > 1 else ''} of {config.dim} channels"
    count = sum(parameter.numel() for parameter in model.parameters())
    return (
        f"A sequence model ({parts}; {layers}) that takes one sample at a time in"
        f" constant memory: {count:,} parameters, {state_bytes(model):,} bytes of state. Made with mgrade, an"
        " implementation of *mGRADE: Minimal Recurrent Gating Meets Delay Convolutions for Lightweight Sequence"
        " Modeling*. Weights are safetensors, the configuration is JSON; nothing is pickled.\n"
    )


def _use(model: Model, name: str) -> str:
    config = model.config
    reads = "token ids (1)" if config.tokens else f"x (1, {config.inputs})"
    return "## Use\n\n" + _USE.format(name=_json(name), reads=reads, gives=f"y (1, {config.outputs})")


def _figures(result: dict[str, Any]) -> str:
    rows = "".join(
        f"| {_text(name)} | {'not finite' if value is None else f'{value:g}'} |\n"
        for name, value in _metrics(result).items()
    )
    return f"## Figures\n\n| figure | value |\n| --- | --- |\n{rows}"


def _origin(result: dict[str, Any]) -> str:
    """How the figures were obtained."""
    hardware, versions = result.get("hardware") or {}, result.get("versions") or {}
    facts = {
        "recipe": _text(f"{result['experiment']}/{result['model']}, seed {result['seed']}"),
        "trained for": f"{result['minutes']:.2g} minutes",
        "on": _text(hardware.get("gpu") or hardware.get("cpu") or ""),
        "commit": _text(result.get("commit") or ""),
        "software": _text(", ".join(f"{name} {version}" for name, version in versions.items() if version)),
    }
    lines = "".join(f"- {name}: {value}\n" for name, value in facts.items() if value)
    recipe = {table: result["recipe"][table] for table in ("task", "train")}
    return f"## Origin\n\n{lines}\n{_block(recipe)}"


def _line(text: object) -> str:
    """Text from a file on one line; unprintable characters, such as newlines, become spaces."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in str(text)).split())


def _text(text: object) -> str:
    """The same, escaped for Markdown."""
    return re.sub(r"[\\`*_\[\]|~$]", r"\\\g<0>", escape(_line(text), quote=False))


def _json(value: object) -> str:
    """JSON on one line, which YAML and Python read too; it cannot open an HTML tag."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def _block(value: dict[str, Any]) -> str:
    return f"```json\n{json.dumps(value, indent=1)}\n```\n".replace("<", "\\u003c")
