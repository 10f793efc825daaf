"""The time-invariant complex recurrence of the LRU baseline, its state in and out.

`diagonal_scan` works on complex tensors. `diagonal_scan_pairs` is the same with sequences as pairs of real numbers, as
real matrix products write and read them: no complex sequence is stored.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mgrade.ops import _check
from mgrade.ops._backend import choose, first_only, implementation, implements, is_plain, like_result
from mgrade.ops.diagonal_scan import reference

__all__ = ["diagonal_scan", "diagonal_scan_pairs"]

torch.library.define(
    "mgrade::diagonal_scan",
    "(Tensor decay, Tensor drive, Tensor? initial, Tensor? reset, Tensor? lengths, str backend) -> (Tensor, Tensor)",
)
torch.library.define(
    "mgrade::diagonal_scan_backward",
    "(Tensor grad_h, Tensor? grad_last, Tensor decay, Tensor? initial, Tensor? reset, Tensor? lengths, Tensor h,"
    " str backend) -> (Tensor, Tensor, Tensor)",
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
    lengths (batch): the number of valid steps per row, by default all; h is meaningless after them.
    Returns h (batch, time, hidden) and the last valid state (batch, hidden).
    """
    _complex("drive", drive)
    _check.has_shape("drive", drive, (None, None, None), "(batch, time, hidden)")
    hidden = drive.shape[2]
    _check_others(decay, initial, reset, lengths, drive.shape[:2], hidden, drive.dtype)
    chosen = choose(backend, drive)
    u = torch.view_as_real(drive.resolve_conj()).flatten(2)
    h, last = _scan(decay, u, initial, reset, lengths, chosen)
    return torch.view_as_complex(h.contiguous().unflatten(2, (hidden, 2))), last


def diagonal_scan_pairs(
    decay: Tensor,
    drive: Tensor,
    initial: Tensor | None = None,
    reset: Tensor | None = None,
    *,
    lengths: Tensor | None = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """`diagonal_scan` with drive and h real, (batch, time, 2 hidden): real part, imaginary part, channel by channel.

    Drive and h may be in half precision; states are then complex64. The rest is as in `diagonal_scan`.
    """
    _check.floating("drive", drive, (None, None, None), "(batch, time, 2 hidden)")
    if drive.shape[2] % 2:
        raise ValueError(f"drive must have pairs of channels, real and imaginary, got {drive.shape[2]} channels")
    dtype = torch.complex128 if drive.dtype == torch.float64 else torch.complex64
    _check_others(decay, initial, reset, lengths, drive.shape[:2], drive.shape[2] // 2, dtype)
    return _scan(decay, drive, initial, reset, lengths, choose(backend, drive))


def _complex(name: str, tensor: Tensor) -> None:
    if not (isinstance(tensor, Tensor) and tensor.is_complex()):
        kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        raise ValueError(f"{name} must be a complex tensor, got {kind}")


def _check_others(
    decay: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
    shape: torch.Size,
    hidden: int,
    dtype: torch.dtype,
) -> None:
    """Refuses arguments that do not fit a drive of `shape` (batch, time) and complex `dtype`."""
    batch, time = shape
    _complex("decay", decay)
    _check.has_shape("decay", decay, (hidden,), "(hidden)")
    _check.same_dtype("decay", decay, "drive", dtype)
    if initial is not None:
        _complex("initial", initial)
        _check.has_shape("initial", initial, (batch, hidden), "(batch, hidden)")
    _check.reset_mask(reset, batch, time)
    _check.row_lengths(lengths, batch, time)


def _scan(
    decay: Tensor,
    drive: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
    backend: str,
) -> tuple[Tensor, Tensor]:
    initial = None if initial is None else initial.to(decay.dtype).resolve_conj()
    if is_plain():
        return reference.forward(decay.resolve_conj(), drive, initial, reset, lengths)
    h, last = torch.ops.mgrade.diagonal_scan(decay.resolve_conj(), drive, initial, reset, lengths, backend)
    return h, last


@implements("mgrade::diagonal_scan")
def _forward(
    decay: Tensor,
    drive: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
    backend: str,
) -> tuple[Tensor, Tensor]:
    return implementation("diagonal_scan", backend).forward(decay, drive, initial, reset, lengths)


@implements("mgrade::diagonal_scan_backward")
def _backward(
    grad_h: Tensor,
    grad_last: Tensor | None,
    decay: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
    h: Tensor,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of decay, drive and initial state."""
    if grad_last is not None:
        grad_last = grad_last.resolve_conj()
    return implementation("diagonal_scan", backend).backward(grad_h, grad_last, decay, initial, reset, lengths, h)


@torch.library.register_fake("mgrade::diagonal_scan")
def _fake_forward(
    decay: Tensor,
    drive: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
    backend: str,
) -> tuple[Tensor, Tensor]:
    return like_result(drive, backend), decay.new_empty(drive.shape[0], decay.shape[0])


@torch.library.register_fake("mgrade::diagonal_scan_backward")
def _fake_backward(
    grad_h: Tensor,
    grad_last: Tensor | None,
    decay: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
    h: Tensor,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    return decay.new_empty(decay.shape), like_result(h, backend), decay.new_empty(h.shape[0], decay.shape[0])


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    decay, _, initial, reset, lengths, ctx.backend = inputs
    ctx.save_for_backward(decay, initial, reset, lengths, output[0])
    ctx.set_materialize_grads(False)


def _autograd(ctx: Any, grad_h: Tensor | None, grad_last: Tensor | None) -> tuple[Tensor | None, ...]:
    decay, initial, *others, h = ctx.saved_tensors
    if grad_h is None:
        grad_h = torch.zeros_like(h)
    to_decay, to_drive, to_initial = torch.ops.mgrade.diagonal_scan_backward(
        grad_h, grad_last, decay, initial, *others, h, ctx.backend
    )
    return to_decay, to_drive, None if initial is None else to_initial, None, None, None


torch.library.register_autograd("mgrade::diagonal_scan", _autograd, setup_context=_setup)
first_only("mgrade::diagonal_scan_backward")
