"""Plain PyTorch on any device.

Complex sequences are passed as pairs, real and imaginary part side by side: (batch, time, 2 hidden), the memory layout
of complex numbers. Inside they are complex tensors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mgrade.ops._backend import accumulator
from mgrade.ops.gated_scan.reference import before, last_state, linear_scan, reverse_scan


def numbers(pairs: Tensor) -> Tensor:
    """(batch, time, 2 hidden) -> complex (batch, time, hidden): a view if dense and of float32 or wider."""
    wide = pairs.to(accumulator(pairs.dtype)).contiguous()
    return torch.view_as_complex(wide.unflatten(2, (pairs.shape[2] // 2, 2)))


def pairs(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """Complex (batch, time, hidden) -> (batch, time, 2 hidden) in `dtype`."""
    return torch.view_as_real(numbers.resolve_conj().contiguous()).flatten(2).to(dtype)


def last_valid(h: Tensor, last: Tensor, initial: Tensor | None, lengths: Tensor | None) -> Tensor:
    """The state after the valid steps of each row; `last` is the state after all steps."""
    if lengths is None or not h.shape[1]:
        return last
    end = lengths.to(torch.int64).clamp(0, h.shape[1])[:, None]
    at = (end - 1).clamp(min=0)[..., None].expand(-1, 1, h.shape[2])
    start = torch.zeros_like(last) if initial is None else initial
    return torch.where(end > 0, h.gather(1, at)[:, 0], start)


def split_last(grad_h: Tensor, grad_last: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """`grad_h` with the gradient of the last state added at the last valid step of each row.

    The second result is the gradient of the initial state from rows without valid steps.
    """
    time = grad_h.shape[1]
    if grad_last is None or not time:
        return grad_h, grad_last
    end = torch.full(grad_last.shape[:1], time, device=grad_h.device) if lengths is None else lengths.clamp(0, time)
    begun = end > 0
    rows = begun.nonzero()[:, 0]
    grad_h = grad_h.clone(memory_format=torch.contiguous_format)
    grad_h[rows, end[rows] - 1] += grad_last[rows]
    return grad_h, torch.where(begun[:, None], 0, grad_last)


def forward(
    decay: Tensor, drive: Tensor, initial: Tensor | None, reset: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    u = numbers(drive)
    h = linear_scan(decay.expand_as(u), u, initial, reset)
    h = h.clone() if h is u else h
    return pairs(h, drive.dtype), last_valid(h, last_state(h, initial), initial, lengths)


def backward(
    grad_h: Tensor,
    grad_last: Tensor | None,
    decay: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
    h: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    pull, onward = split_last(numbers(grad_h), grad_last, lengths)
    states = numbers(h)
    if onward is None:
        onward = states.new_zeros(states.shape[0], states.shape[2])
    if not states.shape[1]:
        return torch.zeros_like(decay), torch.zeros_like(h), onward.clone(memory_format=torch.contiguous_format)
    total = reverse_scan(decay.conj().expand_as(states), pull, reset)
    through = decay.conj() * total[:, 0]
    if reset is not None:
        through = torch.where(reset[:, :1], 0, through)
    grad_decay = (before(states, initial, reset).conj() * total).sum((0, 1))
    return grad_decay, pairs(total, h.dtype), (onward + through).contiguous()
