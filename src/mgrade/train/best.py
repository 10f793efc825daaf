"""The best evaluation so far, as a run and its checkpoints hold it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mgrade.nn import Model


@dataclass(frozen=True)
class Best:
    """The step of an evaluation, its figure, and the weights evaluated."""

    step: int
    value: float
    weights: dict[str, Tensor]

    @property
    def facts(self) -> dict[str, Any]:
        """What a checkpoint holds besides the weights."""
        return {"step": self.step, "value": self.value}


def checked(facts: Any, weights: dict[str, Tensor], model: Model, device: torch.device) -> Best:
    """The best evaluation from a checkpoint; refused unless it belongs to such a model."""
    if not isinstance(facts, dict) or type(facts.get("step")) is not int or type(facts.get("value")) is not float:
        raise ValueError(f"best must have a step and a value, got {facts!r}")
    own = model.state_dict()
    if {name: tensor.shape for name, tensor in weights.items()} != {name: own[name].shape for name in own}:
        raise ValueError("the best weights have different names or shapes")
    return Best(facts["step"], facts["value"], {name: tensor.to(device) for name, tensor in weights.items()})
