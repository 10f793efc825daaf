"""`diagonal_scan`: the time-invariant complex recurrence of the LRU baseline, its state in and out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mgrade.ops import _check
from mgrade.ops._backend import choose
from mgrade.ops.diagonal_scan import c, reference

torch.library.define(
    "mgrade::diagonal_scan",
    "(Tensor decay, Tensor drive, Tensor? initial, Tensor? reset, str backend) -> (Tensor, Tensor)",
)
torch.library.define(
    "mgrade::diagonal_scan_backward",
    "(Tensor grad_h, Tensor? grad_last, Tensor decay, Tensor? initial, Tensor? reset, Tensor h, str backend)"
    " -> (Tensor, Tensor, Tensor)",
)


def diagonal_scan(
    decay: Tensor,
    drive: Tensor,
    initial: Tensor | None = None,
    reset: Tensor | None = None,
    *,
    lengths: Tensor | None = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """h_t = decay h_{t-1} + drive_t, complex, with one decay per channel.

    decay (hidden); drive (batch, time, hidden); initial (batch, hidden); reset (batch, time), boolean.
    lengths (batch): how many steps of each row are valid, if not all; h means nothing after them.
    Returns h (batch, time, hidden) and the last valid state (batch, hidden).
    """
    for name, tensor in (("decay", decay), ("drive", drive), ("initial", initial)):
        if not ((isinstance(tensor, Tensor) and tensor.is_complex()) or (tensor is None and name == "initial")):
            kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
            raise ValueError(f"{name} must be a complex tensor, got {kind}")
    _check.has_shape("drive", drive, (None, None, None), "(batch, time, hidden)")
    batch, time, hidden = drive.shape
    _check.has_shape("decay", decay, (hidden,), "(hidden)")
    _check.same_dtype("decay", decay, "drive", drive.dtype)
    if initial is not None:
        _check.has_shape("initial", initial, (batch, hidden), "(batch, hidden)")
        initial = initial.to(drive.dtype)
    _check.reset_mask(reset, batch, time)
    _check.row_lengths(lengths, batch, time)
    chosen = choose(backend, drive, has_triton=False)
    h, last = torch.ops.mgrade.diagonal_scan(decay, drive, initial, reset, chosen)
    if lengths is not None:
        start = torch.zeros_like(last) if initial is None else initial
        index = lengths.to(torch.int64)[:, None, None].expand(-1, 1, hidden)
        last = torch.cat([start[:, None], h], 1).gather(1, index)[:, 0]
    return h, last


@torch.library.impl("mgrade::diagonal_scan", "default")
def _forward(
    decay: Tensor, drive: Tensor, initial: Tensor | None, reset: Tensor | None, backend: str
) -> tuple[Tensor, Tensor]:
    return (c if backend == "c" else reference).forward(decay, drive, initial, reset)


@torch.library.impl("mgrade::diagonal_scan_backward", "default")
def _backward(
    grad_h: Tensor,
    grad_last: Tensor | None,
    decay: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    h: Tensor,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    return (c if backend == "c" else reference).backward(grad_h, grad_last, decay, initial, reset, h)


@torch.library.register_fake("mgrade::diagonal_scan")
def _fake_forward(
    decay: Tensor, drive: Tensor, initial: Tensor | None, reset: Tensor | None, backend: str
) -> tuple[Tensor, Tensor]:
    h = torch.empty_like(drive, memory_format=torch.contiguous_format)
    return h, drive.new_empty(drive.shape[0], drive.shape[2])


@torch.library.register_fake("mgrade::diagonal_scan_backward")
def _fake_backward(
    grad_h: Tensor,
    grad_last: Tensor | None,
    decay: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    h: Tensor,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    grad_drive = torch.empty_like(h, memory_format=torch.contiguous_format)
    return decay.new_empty(decay.shape), grad_drive, h.new_empty(h.shape[0], h.shape[2])


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    decay, _, initial, reset, ctx.backend = inputs
    ctx.save_for_backward(decay, initial, reset, output[0])
    ctx.set_materialize_grads(False)


def _autograd(ctx: Any, grad_h: Tensor | None, grad_last: Tensor | None) -> tuple[Tensor | None, ...]:
    decay, initial, reset, h = ctx.saved_tensors
    if grad_h is None:
        grad_h = torch.zeros_like(h)
    grads = torch.ops.mgrade.diagonal_scan_backward(grad_h, grad_last, decay, initial, reset, h, ctx.backend)
    return grads[0], grads[1], grads[2] if initial is not None else None, None, None


torch.library.register_autograd("mgrade::diagonal_scan", _autograd, setup_context=_setup)
