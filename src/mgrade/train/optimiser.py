"""Which parameter learns how fast, and which decays."""

from __future__ import annotations

from typing import Any

from torch import nn

from mgrade.nn import LRU, DelayConv, MinGRU, Model

# The paper learns the delay positions five times as fast as everything else.
POSITION_RATE = 5.0


def parameter_groups(
    model: Model, rate: float, decay: float, *, recurrence_rate: float = 1.0, recurrence_decay: float = 0.0
) -> list[dict[str, Any]]:
    """Groups for `torch.optim.AdamW`: decay on weight matrices and convolution weights alone.

    Biases, norms and delay positions do not decay; positions learn `POSITION_RATE` times as fast. What a recurrence
    makes its state from learns `recurrence_rate` times as fast (the paper's beta, for the LRU): gates and candidates,
    or the LRU's recurrent parameters, which decay by `recurrence_decay`.
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
