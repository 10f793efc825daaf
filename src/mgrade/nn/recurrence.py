"""Recurrences: a layer's memory over any distance.

Each module has `forward(x, state, reset, lengths) -> (y, state)` over any number of steps and
`initial_state(batch)`; the state is (batch, hidden).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from mgrade.nn import initialise
from mgrade.nn.config import ModelConfig
from mgrade.ops import _check, diagonal_scan_pairs, gated_recurrence, gated_scan, linear
from mgrade.ops._backend import accumulator


class MinGRU(nn.Module):
    """h_t = (1 - z_t) h_{t-1} + z_t c_t with z_t = s(W_z x_t + b_z) and c_t = W_c x_t + b_c (the paper's Eq. 2).

    weight (2 hidden, dim), bias (2 hidden): the first half is the gate's, the second the candidate's. A `positive`
    candidate is c_t + 1/2 where that is above 1/2, sigmoid(c_t) elsewhere (Feng et al. 2024).
    """

    def __init__(self, dim: int, hidden: int, gate_bias: str | float = "zero", candidate: str = "linear"):
        super().__init__()
        self.candidate = candidate
        self.weight = nn.Parameter(initialise.fan_in_(torch.empty(2 * hidden, dim)))
        self.bias = nn.Parameter(torch.zeros(2 * hidden))
        initialise.gate_bias_(self.bias.data[:hidden], gate_bias)

    def forward(
        self,
        x: Tensor,
        state: Tensor | None = None,
        reset: Tensor | None = None,
        lengths: Tensor | None = None,
        skip: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """x (batch, time, dim) -> h (batch, time, hidden), plus x itself if `skip`, and the last state."""
        _check.channels(x, self.weight.shape[1])
        if self.candidate == "linear":
            return gated_recurrence(x, self.weight, self.bias, state, reset, lengths=lengths, skip=skip)
        gate, value = linear(x, self.weight, self.bias).chunk(2, -1)
        value = torch.where(value > 0, value + 0.5, torch.sigmoid(value))
        h, last = gated_scan(gate, value, state, reset, lengths=lengths)
        return (x + h if skip else h), last

    def initial_state(self, batch: int) -> Tensor:
        """Zero, (batch, hidden), float32 for half precision."""
        return self.bias.new_zeros(batch, self.bias.shape[0] // 2, dtype=accumulator(self.bias.dtype))


class LRU(nn.Module):
    """The linear recurrent unit: h_t = a h_{t-1} + g B x_t, y_t = Re(C h_t) + d x_t, with complex a, B, C.

    |a| = exp(-exp(log_rate)), its angle is exp(log_phase), g = exp(log_gain). (Orvieto et al. 2023)
    """

    def __init__(self, dim: int, hidden: int, ring: tuple[float, float]):
        super().__init__()
        self.log_rate = nn.Parameter(torch.empty(hidden))
        self.log_phase = nn.Parameter(torch.empty(hidden))
        initialise.ring_(self.log_rate.data, self.log_phase.data, ring)
        magnitude = torch.exp(-torch.exp(self.log_rate.data))
        self.log_gain = nn.Parameter(0.5 * torch.log(1 - magnitude**2))
        self.input = nn.Parameter(torch.randn(2, hidden, dim) / math.sqrt(2 * dim))
        self.output = nn.Parameter(torch.randn(2, dim, hidden) / math.sqrt(hidden))
        self.skip = nn.Parameter(torch.randn(dim))

    def forward(
        self,
        x: Tensor,
        state: Tensor | None = None,
        reset: Tensor | None = None,
        lengths: Tensor | None = None,
        skip: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """x (batch, time, dim) -> y (batch, time, dim), plus x itself if `skip`, and the complex last state."""
        _check.channels(x, self.skip.shape[0])
        wide = accumulator(self.log_rate.dtype)
        rate, phase = torch.exp(self.log_rate.to(wide)), torch.exp(self.log_phase.to(wide))
        gain = torch.exp(self.log_gain)
        # complex sequences are pairs of channels, real and imaginary, written and read by real products
        into = (gain[:, None] * self.input).transpose(0, 1).flatten(0, 1)
        out = torch.stack([self.output[0], -self.output[1]], -1).flatten(1)
        decay = torch.polar(torch.exp(-rate), phase)
        h, last = diagonal_scan_pairs(decay, linear(x, into), state, reset, lengths=lengths)
        return linear(h, out, base=x, gain=self.skip + 1 if skip else self.skip), last

    def initial_state(self, batch: int) -> Tensor:
        """Zero, complex (batch, hidden)."""
        dtype = torch.complex128 if self.log_rate.dtype == torch.float64 else torch.complex64
        return torch.zeros(batch, self.log_rate.shape[0], dtype=dtype, device=self.log_rate.device)


def recurrence(config: ModelConfig) -> MinGRU | LRU | None:
    """The recurrence of `config`."""
    if config.recurrence == "mingru":
        return MinGRU(config.dim, config.hidden, config.gate_bias, config.candidate)
    if config.recurrence == "lru":
        return LRU(config.dim, config.hidden, config.ring)
    return None
