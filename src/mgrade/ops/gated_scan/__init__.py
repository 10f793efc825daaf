"""`gated_scan`: the gated linear recurrence of minGRU over a whole sequence, its state in and out.

`gated_scan` takes gate and candidate apart; `gated_scan_packed` takes them side by side as one linear layer makes
them, adds its bias and a skip connection, and so spares several passes over memory.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from mgrade.ops import _check
from mgrade.ops._backend import accumulator, choose, like_result
from mgrade.ops.gated_scan import c, reference

__all__ = ["gated_scan", "gated_scan_packed"]

_FORWARD = "Tensor? bias, Tensor? skip, Tensor? initial, Tensor? reset, str backend) -> (Tensor, Tensor, Tensor)"
torch.library.define("mgrade::gated_scan", f"(Tensor gate, Tensor candidate, {_FORWARD}")
torch.library.define("mgrade::gated_scan_packed", f"(Tensor gates, {_FORWARD}")
torch.library.define(
    "mgrade::gated_scan_backward",
    "(Tensor grad, Tensor? grad_last, Tensor gate, Tensor candidate, Tensor? bias, Tensor? initial, Tensor? reset,"
    " Tensor trace, str backend) -> (Tensor, Tensor, Tensor)",
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
    lengths (batch): how many steps of each row are valid, if not all; h means nothing after them.
    Returns h (batch, time, hidden) and the last valid state (batch, hidden), float32 for half-precision input.
    """
    _check.floating("gate", gate, (None, None, None), "(batch, time, hidden)")
    batch, time, hidden = gate.shape
    _check.floating("candidate", candidate, (batch, time, hidden), "(batch, time, hidden)")
    _check.same_dtype("candidate", candidate, "gate", gate.dtype)
    initial = _checked(gate, hidden, initial, reset, lengths)
    if lengths is not None:
        # a gate that is shut for good holds the state through the padding
        padding = _padding(gate, lengths)
        gate = gate.masked_fill(padding[..., None], -torch.inf)
        candidate = candidate.masked_fill(padding[..., None], 0)
        reset = None if reset is None else reset & ~padding
    h, last, _ = torch.ops.mgrade.gated_scan(gate, candidate, None, None, initial, reset, choose(backend, gate))
    return h, last


def gated_scan_packed(
    gates: Tensor,
    bias: Tensor | None = None,
    skip: Tensor | None = None,
    initial: Tensor | None = None,
    reset: Tensor | None = None,
    *,
    lengths: Tensor | None = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """`gated_scan` of the two halves of gates + bias, plus `skip`.

    gates (batch, time, 2 hidden), bias (2 hidden): the gate's half, then the candidate's; skip (batch, time, hidden).
    The rest, and the last state returned, which leaves `skip` out, are as in `gated_scan`.
    """
    _check.floating("gates", gates, (None, None, None), "(batch, time, 2 hidden)")
    batch, time, width = gates.shape
    if width % 2:
        raise ValueError(f"gates must hold two halves, got {width} channels")
    if bias is not None:
        _check.floating("bias", bias, (width,), "(2 hidden)")
    if skip is not None:
        _check.floating("skip", skip, (batch, time, width // 2), "(batch, time, hidden)")
        skip = skip.to(gates.dtype)
    initial = _checked(gates, width // 2, initial, reset, lengths)
    if lengths is not None:
        padding = _padding(gates, lengths)
        shut = gates.new_zeros(width).index_fill(0, torch.arange(width // 2, device=gates.device), -torch.inf)
        gates = torch.where(padding[..., None], shut, gates)
        reset = None if reset is None else reset & ~padding
    y, last, _ = torch.ops.mgrade.gated_scan_packed(gates, bias, skip, initial, reset, choose(backend, gates))
    return y, last


def _checked(
    gate: Tensor, hidden: int, initial: Tensor | None, reset: Tensor | None, lengths: Tensor | None
) -> Tensor | None:
    batch, time = gate.shape[:2]
    if initial is not None:
        _check.floating("initial", initial, (batch, hidden), "(batch, hidden)")
        initial = initial.to(accumulator(gate.dtype))
    _check.reset_mask(reset, batch, time)
    _check.row_lengths(lengths, batch, time)
    return initial


def _padding(gate: Tensor, lengths: Tensor) -> Tensor:
    return torch.arange(gate.shape[1], device=gate.device) >= lengths[:, None]


def _implementation(backend: str) -> ModuleType:
    if backend == "triton":
        from mgrade.ops.gated_scan import triton

        return triton
    return c if backend == "c" else reference


@torch.library.impl("mgrade::gated_scan", "default")
def _forward(
    gate: Tensor,
    candidate: Tensor,
    bias: Tensor | None,
    skip: Tensor | None,
    initial: Tensor | None,
    reset: Tensor | None,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs, the last state, and what the gradient needs beside them: nothing where the outputs serve."""
    return _implementation(backend).forward(gate, candidate, bias, skip, initial, reset)


@torch.library.impl("mgrade::gated_scan_packed", "default")
def _forward_packed(
    gates: Tensor,
    bias: Tensor | None,
    skip: Tensor | None,
    initial: Tensor | None,
    reset: Tensor | None,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    return _implementation(backend).forward(*gates.chunk(2, -1), bias, skip, initial, reset)


@torch.library.impl("mgrade::gated_scan_backward", "default")
def _backward(
    grad: Tensor,
    grad_last: Tensor | None,
    gate: Tensor,
    candidate: Tensor,
    bias: Tensor | None,
    initial: Tensor | None,
    reset: Tensor | None,
    trace: Tensor,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of gate and candidate side by side, of the bias (empty without one) and of the initial state."""
    packed = _like_packed(gate, backend)
    arguments = (grad, grad_last, gate, candidate, bias, initial, reset, trace, packed)
    grad_bias, grad_initial = _implementation(backend).backward(*arguments)
    return packed, gate.new_empty(0) if bias is None else grad_bias.to(bias.dtype), grad_initial


def _like_packed(gate: Tensor, backend: str) -> Tensor:
    batch, time, hidden = gate.shape
    return like_result(gate.new_empty(1, 1, 1).expand(batch, time, 2 * hidden), backend)


@torch.library.register_fake("mgrade::gated_scan")
def _fake_forward(
    gate: Tensor,
    candidate: Tensor,
    bias: Tensor | None,
    skip: Tensor | None,
    initial: Tensor | None,
    reset: Tensor | None,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, time, hidden = gate.shape
    wide = accumulator(gate.dtype)
    trace = _implementation(backend).trace_shape(batch, time, hidden, skip is not None)
    last = gate.new_empty(batch, hidden, dtype=wide)
    return like_result(gate, backend), last, gate.new_empty(trace, dtype=wide)


@torch.library.register_fake("mgrade::gated_scan_packed")
def _fake_packed(
    gates: Tensor,
    bias: Tensor | None,
    skip: Tensor | None,
    initial: Tensor | None,
    reset: Tensor | None,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    return _fake_forward(*gates.chunk(2, -1), bias, skip, initial, reset, backend)


@torch.library.register_fake("mgrade::gated_scan_backward")
def _fake_backward(
    grad: Tensor,
    grad_last: Tensor | None,
    gate: Tensor,
    candidate: Tensor,
    bias: Tensor | None,
    initial: Tensor | None,
    reset: Tensor | None,
    trace: Tensor,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, _, hidden = gate.shape
    grad_bias = gate.new_empty(0) if bias is None else torch.empty_like(bias)
    return _like_packed(gate, backend), grad_bias, gate.new_empty(batch, hidden, dtype=accumulator(gate.dtype))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *gates, bias, skip, initial, reset, ctx.backend = inputs
    y, _, trace = output
    ctx.has_skip = skip is not None
    ctx.save_for_backward(bias, initial, reset, trace if trace.shape[1] else y, *gates)
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grad: Tensor | None, grad_last: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    """The packed gradient of the gates, then those of bias, skip and initial state."""
    bias, initial, reset, trace, *gates = ctx.saved_tensors
    gate, candidate = gates[0].chunk(2, -1) if len(gates) == 1 else gates
    skipped = grad if ctx.has_skip else None
    if grad is None:
        grad = torch.zeros_like(gate)
    packed, grad_bias, grad_initial = torch.ops.mgrade.gated_scan_backward(
        grad, grad_last, gate, candidate, bias, initial, reset, trace, ctx.backend
    )
    return packed, None if bias is None else grad_bias, skipped, None if initial is None else grad_initial


def _autograd(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    packed, *others = _gradients(ctx, *grads)
    assert packed is not None
    return *packed.chunk(2, -1), *others, None, None


def _autograd_packed(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    return *_gradients(ctx, *grads), None, None


torch.library.register_autograd("mgrade::gated_scan", _autograd, setup_context=_setup)
torch.library.register_autograd("mgrade::gated_scan_packed", _autograd_packed, setup_context=_setup)
