"""`layer_step`: one step of a whole layer in one C call, since most of the time of such a step goes into calls."""

from __future__ import annotations

import torch
from torch import Tensor

from mgrade.ops import _c, _check
from mgrade.ops._backend import choose, is_one_step

Weights = tuple[Tensor, Tensor]
_PARAMETERS = ("gates", "gates bias", "input", "input bias", "output", "output bias", "norm weight", "norm bias")


def takes_step(x: Tensor) -> bool:
    """Whether `layer_step` takes x: one step of a stream on a CPU."""
    return is_one_step(x) and choose("auto", x) == "c"


def layer_step(
    x: Tensor,
    history: Tensor,
    hidden: Tensor,
    kernel: Tensor | None,
    dilation: int,
    gates: Weights,
    input: Weights,
    output: Weights,
    norm: Weights | None,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """x = x + filter(x); x = x + gated_recurrence(x); x = x + mlp(x); x = norm(x), if there is one.

    x (batch, 1, dim), history (batch, past, dim), hidden (batch, dim), kernel (dim, taps); matrices and their biases as
    in `delay_conv`, `gated_recurrence` and `feedforward`. No gradients. Returns y and both states after the step.
    """
    batch, _, dim = x.shape
    count = 0 if kernel is None else kernel.shape[1]
    past, width = max(0, count - 1) * dilation, input[0].shape[0]
    parameters = (*gates, *input, *output, *(norm or ()))
    read = (x, history, hidden, None if kernel is None else kernel.t(), *parameters)
    for tensor in read:
        if tensor is not None and (tensor.dtype != x.dtype or not tensor.is_cpu):
            raise ValueError(f"all tensors must be {x.dtype} on the CPU, got {tensor.dtype} on {tensor.device}")
    if kernel is not None:
        _check.has_shape("kernel", kernel, (dim, None), "(dim, taps)")
        _check.has_shape("history", history, (batch, past, dim), "(batch, past, dim)")
    _check.has_shape("hidden", hidden, (batch, dim), "(batch, dim)")
    shapes = ((2 * dim, dim), (2 * dim,), (width, dim), (width,), (dim, width), (dim,), (dim,), (dim,))
    for name, tensor, shape in zip(_PARAMETERS, parameters, shapes, strict=False):  # C does not check bounds
        if tensor is None or tensor.shape != shape:
            _check.floating(name, tensor, shape, "(outputs, inputs)" if len(shape) == 2 else "(outputs)")
    y, line, state = (torch.empty_like(t, memory_format=torch.contiguous_format) for t in (x, history, hidden))
    dense = [tensor if tensor is None else tensor.contiguous() for tensor in read]
    if norm is None:
        dense += [None, None]
    scratch = x.new_empty(3 * dim + width)
    _c.call("layer_step", x.dtype, *dense, y, line, state, scratch, batch, dim, past, count, dilation, width, eps)
    return y, line, state
