"""The first tensor that is not finite, where a loss is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mgrade.nn import Model


def offender(model: Model, loss: Callable[..., Any], batch: tuple[Tensor, ...]) -> str:
    """The first tensor that is not finite: a parameter, an input, a module's output, the loss, or a gradient."""
    for name, parameter in model.named_parameters():
        if _bad(parameter):
            return f"parameter {name}"
    for index, tensor in enumerate(batch):
        if _bad(tensor):
            return f"input {index} of the batch"
    outputs: list[str] = []
    hooks = [module.register_forward_hook(_notes(name, outputs)) for name, module in model.named_modules() if name]
    try:
        model.zero_grad(set_to_none=True)
        result = loss(model, *batch)
        total = result if isinstance(result, Tensor) else result[0] / result[1]
        if outputs:
            return f"output of {outputs[0]}"
        if _bad(total):
            return "loss"
        total.backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None and _bad(parameter.grad):
                return f"gradient of {name}"
    finally:
        for hook in hooks:
            hook.remove()
    return "none when the step is repeated"


def _notes(name: str, outputs: list[str]) -> Callable[[nn.Module, Any, Any], None]:
    def hook(module: nn.Module, inputs: Any, output: Any) -> None:
        first = output[0] if isinstance(output, tuple) else output
        if isinstance(first, Tensor) and _bad(first):
            outputs.append(name)

    return hook


def _bad(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and not bool(torch.isfinite(tensor).all())
