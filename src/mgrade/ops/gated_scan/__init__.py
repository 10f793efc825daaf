"""`gated_scan`: the gated linear recurrence of minGRU over a whole sequence, its state in and out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mgrade.ops import _check
from mgrade.ops._backend import accumulator, choose
from mgrade.ops.gated_scan import c, reference

torch.library.define(
    "mgrade::gated_scan",
    "(Tensor gate, Tensor candidate, Tensor? initial, Tensor? reset, str backend) -> (Tensor, Tensor)",
)
torch.library.define(
    "mgrade::gated_scan_backward",
    "(Tensor grad_h, Tensor? grad_last, Tensor gate, Tensor candidate, Tensor? initial, Tensor? reset, Tensor h,"
    " str backend) -> (Tensor, Tensor, Tensor)",
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
    if initial is not None:
        _check.floating("initial", initial, (batch, hidden), "(batch, hidden)")
        initial = initial.to(accumulator(gate.dtype))
    _check.reset_mask(reset, batch, time)
    _check.row_lengths(lengths, batch, time)
    if lengths is not None:
        # a gate that is shut for good holds the state through the padding
        padding = torch.arange(time, device=gate.device) >= lengths[:, None]
        gate = gate.masked_fill(padding[..., None], -torch.inf)
        candidate = candidate.masked_fill(padding[..., None], 0)
        reset = None if reset is None else reset & ~padding
    h, last = torch.ops.mgrade.gated_scan(gate, candidate, initial, reset, choose(backend, gate))
    return h, last


def _implementation(backend: str) -> Any:
    if backend == "triton":
        from mgrade.ops.gated_scan import triton

        return triton
    return c if backend == "c" else reference


@torch.library.impl("mgrade::gated_scan", "default")
def _forward(
    gate: Tensor, candidate: Tensor, initial: Tensor | None, reset: Tensor | None, backend: str
) -> tuple[Tensor, Tensor]:
    return _implementation(backend).forward(gate, candidate, initial, reset)


@torch.library.impl("mgrade::gated_scan_backward", "default")
def _backward(
    grad_h: Tensor,
    grad_last: Tensor | None,
    gate: Tensor,
    candidate: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    h: Tensor,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    return _implementation(backend).backward(grad_h, grad_last, gate, candidate, initial, reset, h)


@torch.library.register_fake("mgrade::gated_scan")
def _fake_forward(
    gate: Tensor, candidate: Tensor, initial: Tensor | None, reset: Tensor | None, backend: str
) -> tuple[Tensor, Tensor]:
    batch, _, hidden = gate.shape
    h = torch.empty_like(gate, memory_format=torch.contiguous_format)
    return h, gate.new_empty(batch, hidden, dtype=accumulator(gate.dtype))


@torch.library.register_fake("mgrade::gated_scan_backward")
def _fake_backward(
    grad_h: Tensor,
    grad_last: Tensor | None,
    gate: Tensor,
    candidate: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    h: Tensor,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, _, hidden = gate.shape
    return (
        torch.empty_like(gate, memory_format=torch.contiguous_format),
        torch.empty_like(candidate, memory_format=torch.contiguous_format),
        gate.new_empty(batch, hidden, dtype=accumulator(gate.dtype)),
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    gate, candidate, initial, reset, ctx.backend = inputs
    ctx.save_for_backward(gate, candidate, initial, reset, output[0])
    ctx.set_materialize_grads(False)


def _autograd(ctx: Any, grad_h: Tensor | None, grad_last: Tensor | None) -> tuple[Tensor | None, ...]:
    gate, candidate, initial, reset, h = ctx.saved_tensors
    if grad_h is None:
        grad_h = torch.zeros_like(h)
    grads = torch.ops.mgrade.gated_scan_backward(grad_h, grad_last, gate, candidate, initial, reset, h, ctx.backend)
    return grads[0], grads[1], grads[2] if initial is not None else None, None, None


torch.library.register_autograd("mgrade::gated_scan", _autograd, setup_context=_setup)
