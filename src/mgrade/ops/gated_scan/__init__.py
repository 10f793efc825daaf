"""The gated linear recurrence of minGRU over a whole sequence, its state in and out.

`gated_scan` takes gates and candidates. `gated_recurrence` takes x and includes the linear layer that makes them,
which saves several passes over memory.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mgrade.ops import _check, _memory
from mgrade.ops._backend import (
    accumulator,
    channels_last,
    choose,
    first_only,
    implementation,
    implements,
    is_autocast,
    is_one_step,
    is_plain,
    like_result,
)
from mgrade.ops.gated_scan import reference
from mgrade.ops.linear import add_product, outer_product, product

__all__ = ["gated_recurrence", "gated_scan"]

torch.library.define(
    "mgrade::gated_scan",
    "(Tensor gate, Tensor candidate, Tensor? initial, Tensor? reset, Tensor? lengths, str backend)"
    " -> (Tensor, Tensor, Tensor)",
)
torch.library.define(
    "mgrade::gated_scan_backward",
    "(Tensor grad, Tensor? grad_last, Tensor gate, Tensor candidate, Tensor? initial, Tensor? reset, Tensor? lengths,"
    " Tensor trace, str backend) -> (Tensor, Tensor)",
)
torch.library.define(
    "mgrade::gated_recurrence",
    "(Tensor x, Tensor weight, Tensor bias, bool skip, Tensor? initial, Tensor? reset, Tensor? lengths, str backend)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
torch.library.define(
    "mgrade::gated_recurrence_backward",
    "(Tensor grad, Tensor? grad_last, Tensor x, Tensor weight, Tensor bias, bool skip, Tensor? initial, Tensor? reset,"
    " Tensor? lengths, Tensor gates, Tensor trace, str backend) -> (Tensor, Tensor, Tensor, Tensor)",
)


def gated_scan(
    gate: Tensor,
    candidate: Tensor,
    initial: Tensor | None = None,
    reset: Tensor | None = None,
    *,
    lengths: Tensor | None = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """h_t = (1 - s(gate_t)) h_{t-1} + s(gate_t) candidate_t, with s the logistic sigmoid (the paper's Eq. 2).

    gate, candidate (batch, time, hidden): logits of the update gate, and what it lets in.
    initial (batch, hidden): the state before the first step; zero if not given.
    reset (batch, time), boolean: where true, the past before that step is gone.
    lengths (batch): the number of valid steps per row, by default all; after them the state is held.
    Returns h (batch, time, hidden) and the last valid state (batch, hidden), float32 for half-precision input.
    """
    _check.floating("gate", gate, (None, None, None), "(batch, time, hidden)")
    batch, time, hidden = gate.shape
    _check.floating("candidate", candidate, (batch, time, hidden), "(batch, time, hidden)")
    if is_autocast(gate):  # it may have cast one of the two but not the other
        wider = torch.promote_types(gate.dtype, candidate.dtype)
        gate, candidate = gate.to(wider), candidate.to(wider)
    _check.same_dtype("candidate", candidate, "gate", gate.dtype)
    initial, reset = _checked(gate, hidden, initial, reset, lengths)
    if is_plain():
        h, last, _ = reference.forward(gate, candidate, None, None, initial, reset, lengths)
        return h, last
    h, last, _ = torch.ops.mgrade.gated_scan(gate, candidate, initial, reset, lengths, choose(backend, gate))
    return h, last


def gated_recurrence(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    initial: Tensor | None = None,
    reset: Tensor | None = None,
    *,
    lengths: Tensor | None = None,
    skip: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """`gated_scan` of the two halves, gate and candidate, of weight @ x + bias; plus x itself if `skip`.

    x (batch, time, dim), weight (2 hidden, dim), bias (2 hidden); the rest as in `gated_scan`. The returned last
    state does not include the skip.
    """
    _check.floating("x", x, (None, None, None), "(batch, time, dim)")
    dim = x.shape[2]
    _check.floating("weight", weight, (None, dim), "(2 hidden, dim)")
    if weight.shape[0] % 2:
        raise ValueError(f"weight must have two halves, gate and candidate, got {weight.shape[0]} rows")
    hidden = weight.shape[0] // 2
    _check.floating("bias", bias, (2 * hidden,), "(2 hidden)")
    if skip and hidden != dim:
        raise ValueError(f"skip needs as many hidden units as x has channels, {dim}, got {hidden}")
    initial, reset = _checked(x, hidden, initial, reset, lengths)
    if backend == "auto" and reset is None and lengths is None and weight.dtype == x.dtype and is_one_step(x):
        gate, candidate = F.linear(x[:, 0], weight, bias).chunk(2, -1)
        last = torch.sigmoid(gate) * candidate if initial is None else initial.lerp(candidate, torch.sigmoid(gate))
        return (x + last[:, None] if skip else last[:, None].clone()), last
    if is_plain():
        gate, candidate = F.linear(x, weight.to(x.dtype)).chunk(2, -1)
        y, last, _ = reference.forward(gate, candidate, bias, x if skip else None, initial, reset, lengths)
        return y, last
    chosen = choose(backend, x)
    y, last, *_ = torch.ops.mgrade.gated_recurrence(x, weight, bias, skip, initial, reset, lengths, chosen)
    return y, last


def _checked(
    x: Tensor, hidden: int, initial: Tensor | None, reset: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """The initial state in the accumulation dtype, and the restarts within the valid steps."""
    batch, time = x.shape[:2]
    if initial is not None:
        _check.floating("initial", initial, (batch, hidden), "(batch, hidden)")
        initial = initial.to(accumulator(x.dtype))
    _check.reset_mask(reset, batch, time)
    _check.row_lengths(lengths, batch, time)
    if reset is not None and lengths is not None:
        reset = reset & (torch.arange(time, device=x.device) < lengths[:, None])
    return initial, reset


def _across(gate: Tensor, candidate: Tensor, backend: str) -> bool:
    """Whether the Triton version for contiguous channels is used; its results have contiguous channels too."""
    return backend == "triton" and channels_last(gate, candidate)


@implements("mgrade::gated_scan")
def _scan(
    gate: Tensor,
    candidate: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """The states, the last one, and what else the gradient needs: empty if the states suffice."""
    if _across(gate, candidate, backend):
        return implementation("gated_scan", "triton_across").forward(gate, candidate, initial, reset, lengths)
    return implementation("gated_scan", backend).forward(gate, candidate, None, None, initial, reset, lengths)


@implements("mgrade::gated_scan_backward")
def _scan_backward(
    grad: Tensor,
    grad_last: Tensor | None,
    gate: Tensor,
    candidate: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
    trace: Tensor,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """The gradients of gate and candidate side by side, and of the initial state."""
    across = _across(gate, candidate, backend)
    packed = _like_packed(gate, gate.shape[2], backend, across)
    if across:
        return packed, implementation("gated_scan", "triton_across").backward(
            grad, grad_last, gate, candidate, reset, lengths, trace, packed
        )
    _, grad_initial = implementation("gated_scan", backend).backward(
        grad, grad_last, gate, candidate, None, initial, reset, lengths, trace, packed
    )
    return packed, grad_initial


@implements("mgrade::gated_recurrence")
def _recurrence(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    skip: bool,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    gates = product(x, weight, backend)
    beside = x if skip else None
    y, last, trace = implementation("gated_scan", backend).forward(
        *gates.chunk(2, -1), bias, beside, initial, reset, lengths
    )
    return y, last, gates, trace


@implements("mgrade::gated_recurrence_backward")
def _recurrence_backward(
    grad: Tensor,
    grad_last: Tensor | None,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    skip: bool,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
    gates: Tensor,
    trace: Tensor,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of x, weight, bias and initial state."""
    if backend == "c":
        packed = _memory.empty((*x.shape[:2], weight.shape[0]), x.dtype)
    else:
        packed = _like_packed(x, weight.shape[0] // 2, backend)
    grad_bias, grad_initial = implementation("gated_scan", backend).backward(
        grad, grad_last, *gates.chunk(2, -1), bias, initial, reset, lengths, trace, packed
    )
    grad_x = add_product(grad if skip else None, packed, weight, backend)
    return grad_x, outer_product(packed, x, backend).to(weight.dtype), grad_bias.to(bias.dtype), grad_initial


def _like_packed(x: Tensor, hidden: int, backend: str, across: bool = False) -> Tensor:
    batch, time = x.shape[:2]
    return like_result(x.new_empty(1, 1, 1).expand(batch, time, 2 * hidden), backend, across)


def _like_state(x: Tensor, hidden: int) -> Tensor:
    return x.new_empty(x.shape[0], hidden, dtype=accumulator(x.dtype))


@torch.library.register_fake("mgrade::gated_scan")
def _fake_scan(
    gate: Tensor,
    candidate: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    across = _across(gate, candidate, backend)
    if across:
        shape = implementation("gated_scan", "triton_across").trace_shape(*gate.shape)
    else:
        shape = implementation("gated_scan", backend).trace_shape(*gate.shape, False)
    trace = gate.new_empty(shape, dtype=accumulator(gate.dtype))
    return like_result(gate, backend, across), _like_state(gate, gate.shape[2]), trace


@torch.library.register_fake("mgrade::gated_scan_backward")
def _fake_scan_backward(
    grad: Tensor,
    grad_last: Tensor | None,
    gate: Tensor,
    candidate: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
    trace: Tensor,
    backend: str,
) -> tuple[Tensor, Tensor]:
    hidden, across = gate.shape[2], _across(gate, candidate, backend)
    return _like_packed(gate, hidden, backend, across), _like_state(gate, hidden)


@torch.library.register_fake("mgrade::gated_recurrence")
def _fake_recurrence(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    skip: bool,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch, time = x.shape[:2]
    hidden = weight.shape[0] // 2
    y = like_result(x.new_empty(1, 1, 1).expand(batch, time, hidden), backend)
    shape = implementation("gated_scan", backend).trace_shape(batch, time, hidden, skip)
    trace = x.new_empty(shape, dtype=accumulator(x.dtype))
    return y, _like_state(x, hidden), _like_packed(x, hidden, backend), trace


@torch.library.register_fake("mgrade::gated_recurrence_backward")
def _fake_recurrence_backward(
    grad: Tensor,
    grad_last: Tensor | None,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    skip: bool,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
    gates: Tensor,
    trace: Tensor,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    hidden = weight.shape[0] // 2
    parameters = weight.new_empty(weight.shape), bias.new_empty(bias.shape)
    return like_result(x, backend), *parameters, _like_state(x, hidden)


def _setup_scan(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.backend = inputs
    h, _, trace = output
    ctx.save_for_backward(*tensors, trace if trace.shape[1] else h)
    ctx.set_materialize_grads(False)


def _scan_gradient(
    ctx: Any, grad: Tensor | None, grad_last: Tensor | None, _: Tensor | None
) -> tuple[Tensor | None, ...]:
    gate, candidate, initial, *others = ctx.saved_tensors
    if grad is None:
        grad = torch.zeros_like(gate)
    packed, grad_initial = torch.ops.mgrade.gated_scan_backward(
        grad, grad_last, gate, candidate, initial, *others, ctx.backend
    )
    return *packed.chunk(2, -1), None if initial is None else grad_initial, None, None, None


def _setup_recurrence(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, bias, ctx.skip, *others, ctx.backend = inputs
    y, _, gates, trace = output
    ctx.save_for_backward(x, weight, bias, *others, gates, trace if trace.shape[1] else y)
    ctx.set_materialize_grads(False)


def _recurrence_gradient(
    ctx: Any, grad: Tensor | None, grad_last: Tensor | None, *_: Tensor | None
) -> tuple[Tensor | None, ...]:
    x, weight, bias, initial, *others = ctx.saved_tensors
    if grad is None:
        grad = x.new_zeros(*x.shape[:2], weight.shape[0] // 2)
    *grads, grad_initial = torch.ops.mgrade.gated_recurrence_backward(
        grad, grad_last, x, weight, bias, ctx.skip, initial, *others, ctx.backend
    )
    return *grads, None, None if initial is None else grad_initial, None, None, None


torch.library.register_autograd("mgrade::gated_scan", _scan_gradient, setup_context=_setup_scan)
torch.library.register_autograd("mgrade::gated_recurrence", _recurrence_gradient, setup_context=_setup_recurrence)
first_only("mgrade::gated_scan_backward")
first_only("mgrade::gated_recurrence_backward")
