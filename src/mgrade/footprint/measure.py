"""The footprint of one model: the paper's formulas, what they leave out, exact figures, and whether it fits a chip."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from mgrade.footprint import formula
from mgrade.footprint.chips import CHIPS, Chip
from mgrade.footprint.operations import operations
from mgrade.nn import Model, ModelConfig
from mgrade.train.result import state_bytes

# Bytes per weight and per kept activation. Integer inference keeps activations and states in 16 bits.
PRECISIONS = {"float32": (4, 4), "int8": (1, 2)}
MAX_INTEGER_TERMS = 512
"""The most products of int8 and int16 whose sum fits 32 bits."""
COMPONENTS = ("encoder", "conv", "recurrence", "mlp", "norm", "decoder")


@dataclass(frozen=True)
class Footprint:
    """Elements by component, and bytes at a precision."""

    config: ModelConfig
    precision: str
    parameters: dict[str, int]
    instantiated: dict[str, int]
    left_out: dict[str, int]
    buffer: dict[str, int]
    state: dict[str, int]

    @property
    def weight_bytes(self) -> int:
        """Bytes of one parameter."""
        return PRECISIONS[self.precision][0]

    @property
    def buffer_bytes(self) -> int:
        """Bytes of one kept activation."""
        return PRECISIONS[self.precision][1]

    def needs(self, instantiated: bool = False) -> tuple[int, int]:
        """Bytes that must fit: every parameter, and the larger of the formula's buffer and the real state."""
        counts = self.instantiated if instantiated else self.parameters
        stored = sum(counts.values()) + sum(self.left_out.values())
        kept = max(sum(self.buffer.values()), sum(self.state.values()))
        return stored * self.weight_bytes, kept * self.buffer_bytes

    @property
    def too_wide(self) -> bool:
        """Whether a sum in it has more terms than an export of this precision allows."""
        return self.precision != "float32" and widest(self.config) > MAX_INTEGER_TERMS

    def fits(self, chip: Chip, instantiated: bool = False) -> bool:
        """Whether it can be exported in this precision, and `needs` fits the chip."""
        return not self.too_wide and chip.fits(*self.needs(instantiated))

    def to_dict(self, chips: Iterable[Chip] = CHIPS) -> dict[str, Any]:
        """Everything, as JSON values."""
        chips = list(chips)
        parameters, buffer = self.needs()
        return {
            "precision": self.precision,
            "model": self.config.to_dict(),
            "parameters": self._weights(sum(self.parameters.values())),
            "buffer": self._kept(sum(self.buffer.values())),
            "components": {
                name: {
                    "parameters": self._weights(self.parameters[name]),
                    "instantiated": self._weights(self.instantiated[name]),
                    "buffer": self._kept(self.buffer.get(name, 0)),
                }
                for name in COMPONENTS
            },
            "instantiated": self._weights(sum(self.instantiated.values())),
            "left_out": {name: self._weights(count) for name, count in self.left_out.items()},
            "exact": exact(self.config),
            "operations": operations(self.config),
            "needs": {"parameters": parameters, "buffer": buffer},
            "too_wide": self.too_wide,
            "fits": {chip.name: self.fits(chip) for chip in chips},
            "fits_instantiated": {chip.name: self.fits(chip, instantiated=True) for chip in chips},
            "chips": [chip._asdict() for chip in chips],
        }

    def _weights(self, count: int) -> dict[str, int]:
        return {"count": count, "bytes": count * self.weight_bytes}

    def _kept(self, count: int) -> dict[str, int]:
        return {"count": count, "bytes": count * self.buffer_bytes}


def widest(config: ModelConfig) -> int:
    """The most terms of a sum in a layer or in the head."""
    return max(config.dim, config.hidden, 2 * config.dim if config.mlp == "gelu" else 0)


def measure(config: ModelConfig, precision: str = "float32") -> Footprint:
    """The footprint of the model that `config` describes."""
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    return Footprint(
        config=config,
        precision=precision,
        parameters=formula.parameters(config),
        instantiated=formula.instantiated(config),
        left_out=formula.left_out(config),
        buffer=formula.buffer(config),
        state=formula.state(config),
    )


def exact(config: ModelConfig) -> dict[str, int]:
    """Counted from the model itself, in float32: parameters, their bytes, and the bytes of a stream's state."""
    with torch.device("meta"):  # shapes alone: no memory, no random numbers
        model = Model(config)
        kept = state_bytes(model)
    count = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": count, "parameter_bytes": 4 * count, "state_bytes": kept}
