"""The learning rate and the weight decay of every parameter."""

from __future__ import annotations

from typing import Any

from torch import nn

from mgrade.nn import LRU, DelayConv, MinGRU, Model

# The paper learns the delay positions five times as fast as everything else.
POSITION_RATE = 5.0


def parameter_groups(
    model: Model, rate: float, decay: float, *, recurrence_rate: float = 1.0, recurrence_decay: float = 0.0
) -> list[dict[str, Any]]:
    """Parameter groups for `torch.optim.AdamW`, with decay on weight matrices and convolution weights only.

    Biases, norms and delay positions do not decay; positions learn `POSITION_RATE` times as fast. Gates and candidates
    of a minGRU, or the recurrent parameters of an LRU, learn `recurrence_rate` times as fast (the paper's beta, for the
    LRU); those of the LRU decay by `recurrence_decay`.
    """
    own = recurrence_rate * rate
    special = dict[nn.Parameter, tuple[float, float]]()
    for module in model.modules():
        if isinstance(module, DelayConv):
            special[module.position] = POSITION_RATE * rate, 0.0
        elif isinstance(module, LRU):
            recurrent = (module.log_rate, module.log_phase, module.log_gain, module.input)
            special |= dict.fromkeys(recurrent, (own, recurrence_decay)) | {module.skip: (rate, 0.0)}
        elif isinstance(module, MinGRU):
            special |= {module.weight: (own, decay), module.bias: (own, 0.0)}
        elif isinstance(module, nn.LayerNorm):
            special |= dict.fromkeys((module.weight, module.bias), (rate, 0.0))
    groups = dict[tuple[float, float], list[nn.Parameter]]()
    for parameter in model.parameters():
        usual = rate, decay if parameter.dim() >= 2 else 0.0
        groups.setdefault(special.get(parameter, usual), []).append(parameter)
    return [{"params": params, "lr": lr, "weight_decay": decay} for (lr, decay), params in groups.items()]
