"""The configuration of a model: frozen and validated; everything else follows from it."""

from __future__ import annotations

import dataclasses
import difflib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgrade._checks import LARGEST_FLOAT, check_whole, is_number, plain
from mgrade.ops._check import NARROWEST

CHOICES = {
    "conv": ("delay", "dilated", "none"),
    "position_init": ("even", "random"),
    "recurrence": ("mingru", "lru", "none"),
    "candidate": ("linear", "positive"),
    "mlp": ("gelu", "glu", "none"),
    "norm": ("post", "pre", "none"),
    "dropout_spans": ("step", "sequence"),
    "readout": ("every", "last", "mean", "sum"),
}
GATE_BIASES = ("zero", "open", "closed", "uniform")
SKIPS = ("conv", "recurrence", "mlp", "layer")
BRANCH_NORMS = ("conv", "recurrence", "mlp")
ACTIVATIONS = ("conv", "recurrence", "head")
LARGEST = 2**20
"""The upper limit of widths, depths and delays."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """An encoder, `depth` equal layers and a readout. The paper's symbols are in brackets.

    A layer is convolution -> recurrence -> MLP, each optional, with skips around them and one norm:

        x = x + conv(x);  x = x + recurrence(x);  x = x + mlp(x);  x = norm(x)

    The paper draws skips around recurrence and MLP only. A third one around the convolution trains better (ListOps),
    so that is the default; `skips=("recurrence", "mlp")` is the paper's drawing.

    The baselines are settings: `ModelConfig.mgrade`, `.mingru`, `.dcls`, `.tcn`, `.lru`, `.lru_dcls`.
    """

    inputs: int
    """Input channels; with `tokens`, the size of the vocabulary."""
    outputs: int
    """Output channels: classes, or predicted values."""
    tokens: bool = False
    """Inputs are token ids (batch, time), encoded one-hot."""

    dim: int = 64
    """Width between layers [D]."""
    depth: int = 6
    """Layers [L]."""
    expansion: float = 1.0
    """Recurrent width as a multiple of `dim` [e]; the hidden size [H] is `round(expansion * dim)`."""

    conv: str = "delay"
    """`delay` (learnable positions), `dilated` (fixed spacing, as in a TCN) or `none`."""
    taps: int = 8
    """Kernel elements per channel [K]."""
    max_delay: int = 256
    """Kernel length of a `delay` convolution [Gamma]: delays are 0 .. max_delay - 1."""
    sigma: float = 0.8
    """Width of a tap [v], in steps."""
    dilation: int | tuple[int, ...] | None = None
    """Spacing of a `dilated` convolution: one for all layers, one per layer, or doubling from 1 (None)."""
    position_init: str = "even"
    """Initial positions: evenly spaced (`even`), or drawn uniformly over the kernel (`random`)."""
    conv_scale: float = 1.0
    """Initial convolution weights have standard deviation sqrt(conv_scale / taps) [alpha]."""

    recurrence: str = "mingru"
    """`mingru` (gated), `lru` (time-invariant, complex) or `none`."""
    gate_bias: str | float = "zero"
    """Initial bias of the update gate: `zero`, `open` (lets the candidate in), `closed` (keeps the state),
    `uniform` (the paper's UGI: time constants spread over the units) or a number."""
    candidate: str = "linear"
    """The candidate of a `mingru`: `linear`, c = W x + b (the paper's Eq. 2), or `positive`, as in log-space minGRU:
    c + 1/2 for c above 0, sigmoid(c) below. The latter is for comparison and cannot be exported."""
    projection: bool = False
    """An extra linear layer between the recurrence (and its GELU, see `activations`) and its skip, as in the paper's
    Image model."""
    ring: tuple[float, float] = (0.0, 0.99)
    """Radii between which the eigenvalues of an `lru` are initialised."""

    mlp: str = "gelu"
    """`gelu` (two layers, 2 dim wide inside), `glu` (gated, as in the LRU's own block) or `none`."""
    norm: str = "post"
    """Layer norm at the end of a layer (`post`), at its start (`pre`), or `none`."""
    branch_norms: tuple[str, ...] = ()
    """Additional norms: at the end of the `conv` and `recurrence` branches, before the `mlp`."""
    activations: tuple[str, ...] = ()
    """Additional GELUs: right after the `conv` and the `recurrence`, before the `head`."""
    skips: tuple[str, ...] = ("conv", "recurrence", "mlp")
    """Parts with a skip connection around them: `conv`, `recurrence`, `mlp`, or the whole `layer`."""
    dropout: float = 0.0
    """Share of values dropped from every branch in training."""
    dropout_spans: str = "step"
    """What is dropped: single values, drawn at every `step`, or whole channels, drawn once per `sequence`, so that a
    mean over time does not average the dropout away."""

    readout: str = "every"
    """Outputs at `every` step, at the `last`, or their `mean` or `sum` over the valid steps."""
    pair: bool = False
    """Each example is two documents (rows b and b + B of a batch of 2B), and the head compares them."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _normalised(getattr(self, field.name)))
        self._check_fields()
        self._check_widths()

    def _check_fields(self) -> None:
        for name in ("inputs", "outputs", "dim", "depth", "taps", "max_delay"):
            check_whole(name, getattr(self, name), LARGEST)
        for name in ("tokens", "projection", "pair"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be true or false, got {getattr(self, name)!r}")
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")
        for name in ("expansion", "sigma", "conv_scale"):
            _number(name, getattr(self, name), above=0.0)
        if self.sigma < NARROWEST:
            raise ValueError(f"sigma must be at least {NARROWEST:g}, got {self.sigma!r}")
        if not (is_number(self.dropout) and 0 <= self.dropout < 1):
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout!r}")
        if isinstance(self.gate_bias, str):
            if self.gate_bias not in GATE_BIASES:
                raise ValueError(
                    f"gate_bias must be one of {', '.join(GATE_BIASES)} or a number, got {self.gate_bias!r}"
                )
        else:
            _number("gate_bias", self.gate_bias)
        for name, choices in (("branch_norms", BRANCH_NORMS), ("activations", ACTIVATIONS), ("skips", SKIPS)):
            given = getattr(self, name)
            known = isinstance(given, tuple) and all(isinstance(name, str) and name in choices for name in given)
            if not known or len(set(given)) != len(given):
                raise ValueError(f"{name} must be a list out of {', '.join(choices)}, got {given!r}")
        pair = isinstance(self.ring, tuple) and len(self.ring) == 2 and all(map(is_number, self.ring))
        if not (pair and 0 <= self.ring[0] < self.ring[1] < 1):
            raise ValueError(f"ring must be two radii with 0 <= first < second < 1, got {self.ring!r}")
        if self.dilation is not None:
            for spacing in self.dilation if isinstance(self.dilation, tuple) else (self.dilation,):
                check_whole("dilation", spacing, LARGEST)
        if isinstance(self.dilation, tuple) and len(self.dilation) != self.depth:
            raise ValueError(f"dilation must have depth = {self.depth} entries, got {len(self.dilation)}")

    def _check_widths(self) -> None:
        if self.expansion * self.dim > LARGEST:
            raise ValueError(
                f"expansion must give at most {LARGEST} hidden units, got {self.expansion:g} of dim {self.dim}"
            )
        if self.hidden < 1:
            raise ValueError(f"expansion must leave at least one hidden unit, got {self.expansion} of dim {self.dim}")
        widest = max(self.dilation) if isinstance(self.dilation, tuple) else self.spacing(self.depth - 1)
        if self.conv == "dilated" and (self.taps - 1) * widest > LARGEST:
            named = f"depth {self.depth}" if self.dilation is None else f"dilation {self.dilation}"
            raise ValueError(
                f"(taps - 1) times dilation must be at most {LARGEST} steps in every layer,"
                f" got more with taps {self.taps} and {named}"
            )
        if self.conv == "none" and self.recurrence == "none" and self.mlp == "none":
            raise ValueError("conv, recurrence and mlp cannot all be 'none'")
        for name in ("branch_norms", "activations"):
            for branch in getattr(self, name):
                if getattr(self, branch, "") == "none":
                    raise ValueError(f"{name} names {branch!r}, but {branch} is 'none'")
        if self.pair and self.readout == "every":
            raise ValueError("pair needs a pooled readout: last, mean or sum, got readout 'every'")
        if self.inner != self.dim:
            for skip in ("recurrence", "mlp"):
                if skip in self.skips:
                    raise ValueError(
                        f"skips cannot hold {skip!r} where the recurrence is {self.inner} wide and dim is {self.dim}:"
                        " set projection=True or leave it out"
                    )
            if self.mlp == "none":
                raise ValueError(
                    f"expansion {self.expansion} without an MLP leaves a layer {self.inner} wide, not dim = {self.dim}:"
                    " set projection=True"
                )

    @property
    def hidden(self) -> int:
        """Units of the recurrence [H]."""
        return round(self.expansion * self.dim)

    @property
    def inner(self) -> int:
        """Width between recurrence and MLP."""
        return self.hidden if self.recurrence == "mingru" and not self.projection else self.dim

    def spacing(self, layer: int) -> int:
        """Dilation of a `dilated` convolution in `layer`."""
        if self.dilation is None:
            return int(2**layer)
        return self.dilation[layer] if isinstance(self.dilation, tuple) else self.dilation

    def memory(self, layer: int) -> int:
        """The number of past steps that the convolution of `layer` keeps."""
        if self.conv == "none":
            return 0
        return self.max_delay - 1 if self.conv == "delay" else (self.taps - 1) * self.spacing(layer)

    @classmethod
    def mgrade(cls, **fields: Any) -> ModelConfig:
        """The paper's model: delay convolution, gated recurrence, MLP, norm."""
        return cls(**{"conv": "delay", "recurrence": "mingru", **fields})

    @classmethod
    def mingru(cls, **fields: Any) -> ModelConfig:
        """mGRADE without its convolution."""
        return cls(**{"conv": "none", "recurrence": "mingru", **fields})

    @classmethod
    def dcls(cls, **fields: Any) -> ModelConfig:
        """mGRADE without its recurrence: stacked convolutions with learnable spacings."""
        return cls(**{"conv": "delay", "recurrence": "none", **fields})

    @classmethod
    def tcn(cls, **fields: Any) -> ModelConfig:
        """Stacked causal dilated convolutions."""
        return cls(**{"conv": "dilated", "recurrence": "none", **fields})

    @classmethod
    def lru(cls, **fields: Any) -> ModelConfig:
        """The linear recurrent unit in its authors' block: norm, LRU, gated unit, one skip around all three."""
        block = {"conv": "none", "recurrence": "lru", "mlp": "glu", "norm": "pre", "skips": ("layer",)}
        return cls(**{**block, **fields})

    @classmethod
    def lru_dcls(cls, **fields: Any) -> ModelConfig:
        """mGRADE with an LRU in place of its gated recurrence."""
        return cls(**{"conv": "delay", "recurrence": "lru", **fields})

    def to_dict(self) -> dict[str, Any]:
        """All fields, as values that JSON and TOML can hold."""
        return plain(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> ModelConfig:
        """The inverse of `to_dict`; an unknown field is refused with the closest known one."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in fields:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                raise ValueError(f"model has no field {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        for field in dataclasses.fields(cls):
            if field.default is dataclasses.MISSING and field.name not in fields:
                raise ValueError(f"model needs the field {field.name!r}")
        return cls(**fields)


def _normalised(value: Any) -> Any:
    """NumPy's numbers as Python's, lists as tuples."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_normalised, value))
    return value.item() if isinstance(value, np.generic) else value


def _number(name: str, value: Any, above: float = -math.inf) -> None:
    if not (is_number(value) and value > above):
        limit = "" if above == -math.inf else f" above {above:g}"
        if is_number(value) or not isinstance(value, (int, float)):
            raise ValueError(f"{name} must be a number{limit}, got {value!r}")
        raise ValueError(f"{name} must be a number{limit} and at most {LARGEST_FLOAT:g}, got {value!r:.40}")
