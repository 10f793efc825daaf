"""Registers `mgrade::delay_kernel` and its gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mgrade.ops._backend import first_only, implementation, implements

torch.library.define(
    "mgrade::delay_kernel",
    "(Tensor weight, Tensor position, SymInt length, float sigma, str backend) -> Tensor",
)
torch.library.define(
    "mgrade::delay_kernel_backward",
    "(Tensor grad_kernel, Tensor weight, Tensor position, float sigma, str backend) -> (Tensor, Tensor)",
)


@implements("mgrade::delay_kernel")
def _forward(weight: Tensor, position: Tensor, length: int, sigma: float, backend: str) -> Tensor:
    kernel: Tensor = implementation("delay_conv", backend).kernel_forward(weight, position, length, sigma)
    return kernel


@implements("mgrade::delay_kernel_backward")
def _backward(
    grad_kernel: Tensor, weight: Tensor, position: Tensor, sigma: float, backend: str
) -> tuple[Tensor, Tensor]:
    grads: tuple[Tensor, Tensor] = implementation("delay_conv", backend).kernel_backward(
        grad_kernel, weight, position, sigma
    )
    return grads


@torch.library.register_fake("mgrade::delay_kernel")
def _fake_forward(weight: Tensor, position: Tensor, length: int, sigma: float, backend: str) -> Tensor:
    return weight.new_empty(weight.shape[0], length)


@torch.library.register_fake("mgrade::delay_kernel_backward")
def _fake_backward(
    grad_kernel: Tensor, weight: Tensor, position: Tensor, sigma: float, backend: str
) -> tuple[Tensor, Tensor]:
    return weight.new_empty(weight.shape), position.new_empty(position.shape)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    weight, position, _, ctx.sigma, ctx.backend = inputs
    ctx.save_for_backward(weight, position)


def _autograd(ctx: Any, grad_kernel: Tensor) -> tuple[Tensor | None, ...]:
    grads = torch.ops.mgrade.delay_kernel_backward(grad_kernel, *ctx.saved_tensors, ctx.sigma, ctx.backend)
    return (*grads, None, None, None)


torch.library.register_autograd("mgrade::delay_kernel", _autograd, setup_context=_setup)
first_only("mgrade::delay_kernel_backward")
