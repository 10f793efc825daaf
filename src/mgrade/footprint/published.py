"""The published models of the paper's tables: what the paper prints, and its buffer formulas (Appendix C).

Parameters are data: the paper took them from the models' publications and code, so they are listed as printed.
Buffers, and parameters with the recurrent matrix written out, follow from layers, width and state size by the paper's
formulas. These sizes are not in the paper; `sizes_from` says where they come from: `code`, the official repository;
`paper`, a note in the paper that they equal another model's; or `bytes`, sizes that reproduce the paper's bytes, not
confirmed by any official file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

TASKS = ("listops", "text", "retrieval", "image", "pathfinder", "speech35")


class Sizes(NamedTuple):
    """Layers [L], width [H], and the state per head [N], or for a long convolution the sequence length [T]."""

    layers: int
    width: int
    state: int


class Published(NamedTuple):
    """One model on one task; parameters, buffer and instantiated parameters as printed, None for a dash."""

    model: str
    task: str
    source: str
    parameters: str | None
    buffer: str | None
    instantiated: str | None
    kind: str | None
    sizes: Sizes | None
    sizes_from: str | None

    def buffer_count(self) -> int | None:
        """Elements of the buffer by the paper's formula; None for the paper's own models, which have recipes."""
        if self.kind is None or self.sizes is None:
            return None
        layers, width, state = self.sizes
        per_layer = {
            "heads": width * state,
            "heads, low rank": width * state,
            "heads, both directions": 2 * width * state,
            "one head": state,
            "gated, complex": 2 * width,
            "long convolution": width * state,
        }
        return layers * per_layer[self.kind]

    def instantiated_bytes(self) -> int | None:
        """Parameters with each low-rank N x N recurrent matrix written out instead of its two vectors.

        Derived from the printed number of parameters, and no more exact than that.
        """
        if self.parameters is None or self.kind is None or self.sizes is None or self.kind not in CAUSAL:
            return None
        layers, width, state = self.sizes
        more = layers * width * (state * state - 2 * state) if self.kind == "heads, low rank" else 0
        return printed_bytes(self.parameters) + 4 * more

    def to_dict(self) -> dict[str, Any]:
        """As JSON values: each figure as printed, in bytes, and by the formula."""
        count = self.buffer_count()
        return {
            "model": self.model,
            "task": self.task,
            "source": self.source,
            "parameters": {"printed": self.parameters, "bytes": _bytes(self.parameters)},
            "buffer": {
                "printed": self.buffer,
                "bytes": _bytes(self.buffer),
                "formula_bytes": None if count is None else 4 * count,
            },
            "instantiated": {
                "printed": self.instantiated,
                "bytes": _bytes(self.instantiated),
                "formula_bytes": self.instantiated_bytes(),
            },
            "formula": self.kind,
            "sizes": None if self.sizes is None else self.sizes._asdict(),
            "sizes_from": self.sizes_from,
        }


# Kinds that the paper counts as run step by step.
CAUSAL = ("heads", "heads, low rank", "one head", "gated, complex")


def printed_bytes(text: str) -> int:
    """Bytes of a figure as printed in the paper: K, M and G are powers of 1024."""
    text = text.removeprefix("~")
    power = {"K": 1, "M": 2, "G": 3}.get(text[-1])
    return round(float(text[:-1]) * 1024**power) if power else round(float(text))


def _bytes(text: str | None) -> int | None:
    return None if text is None else printed_bytes(text)


# Parameters and buffer as printed in Table 3 (listops to pathfinder): "parameters / buffer", a dash for none.
_TABLE_3 = {
    "S4": "996.1K/191.4K 718.8K/62.5K 4.58M/382.8K 12.98M/769.5K 3.42M/382.8K",
    "S4-LegS": "2.28M/511.7K 4.96M/769.5K 6.11M/769.5K 13.74M/1.50M 4.96M/769.5K",
    "DSS": "804.7K/191.4K 593.8K/62.5K 3.39M/382.8K 7.63M/769.5K 2.29M/382.8K",
    "Liquid-S4": "1.29M/31.3K 640.6K/15.6K 5.73M/382.8K 41.98M/6.11M 4.58M/382.8K",
    "S5": "742.2K/0.4K 4.96M/4.3K 2.94M/5.9K 19.47M/9.0K 4.30M/5.9K",
    "LRU": "742.2K/5.9K 4.96M/4.3K 2.94M/5.9K -/- 4.30M/5.9K",
    "HGRN": "328.1K/1.6K 3.35M/3.9K 449.2K/1.2K 78.63M/23.83K 4.96M/5.9K",
    "SGConv": "-/~5.73M -/~3.82M -/~24.05M -/~11.83M -/~6.11M",
    "MRConv-L": "2.52M/~5.73M -/~3.82M -/~24.05M 29.39M/~11.83M -/~6.11M",
    "LRU (the paper's)": "164.1K/0.78K 179.7K/0.8K 460.9K/1.6K 4.58M/9.0K 4.30M/5.9K",
    "mGRADE": "156.3K/11.7K 171.9K/5.9K 406.3K/6.6K 2.65M/769.5K 2.33M/769.5K",
}
# The same two for the 35-word speech task.
_TABLE_4 = {
    **dict.fromkeys(("S4-LegS", "S4-FouT", "S4D-LegS", "S4D-Inv", "S4D-Lin"), "1.17M/191K"),
    "Liquid-S4": "875K/20K",
    "S5": "1.07M/4K",
    "mGRADE": "773K/78K",
}
# Fully instantiated parameters (Appendix C).
_INSTANTIATED = {
    "S4": "12.60M 4.58M 27.86M 59.54M 26.72M",
    "DSS": "804.7K 593.8K 3.39M 7.63M 2.29M",
    "Liquid-S4": "1.42M 710.9K 29.01M 3.03G 27.86M",
    "S5": "742.2K 4.96M 2.94M 19.47M 4.20M",
    "LRU": "742.2K 4.96M 2.94M - 4.20M",
    "HGRN": "328.1K 3.35M 449.2K 78.63M 4.96M",
    "mGRADE": "164.1K 175.8K 410.2K 3.42M 3.04M",
}
_KINDS = {
    "S4": "heads, low rank",
    "S4-LegS": "heads, both directions",
    "DSS": "heads",
    "Liquid-S4": "heads, low rank",
    "S5": "one head",
    "LRU": "one head",
    "HGRN": "gated, complex",
    "SGConv": "long convolution",
    "MRConv-L": "long convolution",
}
_S4 = ((6, 128, 64), (4, 64, 64), (6, 256, 64), (6, 512, 64), (6, 256, 64))
_S5 = ((8, 128, 16), (6, 256, 192), (6, 128, 256), (6, 512, 384), (6, 192, 256))
_LONG = tuple((*sizes[:2], length) for sizes, length in zip(_S4, (2000, 4096, 4096, 1024, 1024), strict=True))
_SIZES: dict[str, tuple[tuple[int, int, int], ...]] = {
    "S4": _S4,
    "S4-LegS": ((8, 128, 64), (6, 256, 64), (6, 256, 64), (6, 512, 64), (6, 256, 64)),
    "DSS": _S4,
    "Liquid-S4": ((9, 128, 7), (4, 128, 7), (6, 256, 64), (6, 512, 512), (6, 256, 64)),
    "S5": _S5,
    "LRU": _S5,
    "HGRN": ((6, 32, 1), (4, 128, 1), (2, 64, 1), (6, 512, 1), (6, 128, 1)),
    "SGConv": _LONG,
    "MRConv-L": _LONG,
}
# On speech the paper counts one direction of the S4 family: it prints L H N.
_SPEECH_KINDS = {"S4-LegS": "heads", "S4-FouT": "heads", "S4D-LegS": "heads", "S4D-Inv": "heads", "S4D-Lin": "heads"}
_SPEECH_SIZES = {**dict.fromkeys(_SPEECH_KINDS, (6, 128, 64)), "Liquid-S4": (6, 128, 7), "S5": (6, 96, 128)}
_SIZES_FROM: dict[str | tuple[str, str], str] = {
    **dict.fromkeys(("S4", "S4-LegS", "S5", "HGRN"), "code"),
    ("S4", "text"): "bytes",  # the code is wider
    **dict.fromkeys(("LRU", "SGConv", "MRConv-L"), "paper"),
}


def published(task: str) -> list[Published]:
    """The published models of a task in the paper's tables; empty for a task that is in neither."""
    return list(_speech() if task == "speech35" else _arena(task) if task in TASKS else ())


def _arena(task: str) -> Iterator[Published]:
    column = TASKS.index(task)
    for model, row in _TABLE_3.items():
        parameters, buffer = (_figure(text) for text in row.split()[column].split("/"))
        written = _figure(_INSTANTIATED[model].split()[column]) if model in _INSTANTIATED else None
        sizes = Sizes(*_SIZES[model][column]) if model in _SIZES and (parameters or buffer) else None
        origin = None if sizes is None else _SIZES_FROM.get((model, task), _SIZES_FROM.get(model, "bytes"))
        source = "Table 3; fully instantiated: Appendix C"
        yield Published(model, task, source, parameters, buffer, written, _KINDS.get(model), sizes, origin)


def _speech() -> Iterator[Published]:
    for model, row in _TABLE_4.items():
        parameters, buffer = row.split("/")
        sizes = Sizes(*_SPEECH_SIZES[model]) if model in _SPEECH_SIZES else None
        kind = _SPEECH_KINDS.get(model, _KINDS.get(model))
        origin = None if sizes is None else "code" if model == "S5" else "bytes"
        yield Published(model, "speech35", "Table 4", parameters, buffer, None, kind, sizes, origin)


def _figure(text: str) -> str | None:
    return None if text == "-" else text
