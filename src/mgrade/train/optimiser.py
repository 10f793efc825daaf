"""Which parameter learns how fast, and which decays."""

from __future__ import annotations

from typing import Any

from torch import nn

from mgrade.nn import LRU, DelayConv, Model

# The paper learns the delay positions five times as fast as everything else.
POSITION_RATE = 5.0


def parameter_groups(
    model: Model, rate: float, decay: float, *, recurrence_rate: float = 1.0, recurrence_decay: float = 0.0
) -> list[dict[str, Any]]:
    """Groups for `torch.optim.AdamW`: decay on weight matrices and convolution weights alone.

    Biases, norms and delay positions do not decay; positions learn `POSITION_RATE` times as fast. The recurrent
    parameters of an LRU learn `recurrence_rate` times as fast (the paper's beta) and decay by `recurrence_decay`.
    """
    positions, recurrent, plain = [], [], []
    for module in model.modules():
        if isinstance(module, DelayConv):
            positions.append(module.position)
        elif isinstance(module, LRU):
            recurrent += [module.log_rate, module.log_phase, module.log_gain, module.input]
            plain.append(module.skip)
        elif isinstance(module, nn.LayerNorm):
            plain += [module.weight, module.bias]
    special = {id(parameter) for parameter in (*positions, *recurrent, *plain)}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in special]
    plain += [parameter for parameter in rest if parameter.dim() < 2]
    weights = [parameter for parameter in rest if parameter.dim() >= 2]
    groups = [
        {"params": weights, "lr": rate, "weight_decay": decay},
        {"params": plain, "lr": rate, "weight_decay": 0.0},
        {"params": positions, "lr": POSITION_RATE * rate, "weight_decay": 0.0},
        {"params": recurrent, "lr": recurrence_rate * rate, "weight_decay": recurrence_decay},
    ]
    return [group for group in groups if group["params"]]
