"""Registers `mgrade::fir`, a causal filter per channel with its past in `history`, and its gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mgrade.ops._backend import first_only, implementation, implements, like_result

torch.library.define(
    "mgrade::fir",
    "(Tensor x, Tensor kernel, Tensor? history, Tensor? reset, int dilation, bool skip, str backend) -> Tensor",
)
torch.library.define(
    "mgrade::fir_backward",
    "(Tensor grad, Tensor x, Tensor kernel, Tensor? history, Tensor? reset, int dilation, bool skip, str backend)"
    " -> (Tensor, Tensor, Tensor)",
)


@implements("mgrade::fir")
def _forward(
    x: Tensor, kernel: Tensor, history: Tensor | None, reset: Tensor | None, dilation: int, skip: bool, backend: str
) -> Tensor:
    y: Tensor = implementation("delay_conv", backend).fir_forward(x, kernel, history, reset, dilation, skip)
    return y


@implements("mgrade::fir_backward")
def _backward(
    grad: Tensor,
    x: Tensor,
    kernel: Tensor,
    history: Tensor | None,
    reset: Tensor | None,
    dilation: int,
    skip: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    grads: tuple[Tensor, Tensor, Tensor] = implementation("delay_conv", backend).fir_backward(
        grad, x, kernel, history, reset, dilation, skip
    )
    return grads


@torch.library.register_fake("mgrade::fir")
def _fake_forward(
    x: Tensor, kernel: Tensor, history: Tensor | None, reset: Tensor | None, dilation: int, skip: bool, backend: str
) -> Tensor:
    return like_result(x, backend)


@torch.library.register_fake("mgrade::fir_backward")
def _fake_backward(
    grad: Tensor,
    x: Tensor,
    kernel: Tensor,
    history: Tensor | None,
    reset: Tensor | None,
    dilation: int,
    skip: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    past = 0 if history is None else history.shape[1]
    return (
        like_result(x, backend),
        kernel.new_empty(kernel.shape),
        x.new_empty(x.shape[0], past, x.shape[2]),
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, kernel, history, reset, ctx.dilation, ctx.skip, ctx.backend = inputs
    ctx.save_for_backward(x, kernel, history, reset)


def _autograd(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, kernel, history, reset = ctx.saved_tensors
    grads = torch.ops.mgrade.fir_backward(grad, x, kernel, history, reset, ctx.dilation, ctx.skip, ctx.backend)
    return grads[0], grads[1], grads[2] if history is not None else None, None, None, None, None


torch.library.register_autograd("mgrade::fir", _autograd, setup_context=_setup)
first_only("mgrade::fir_backward")
