"""The initialisations that the paper names."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# The standard deviation of a standard normal distribution truncated at two standard deviations.
_CUT_STD = 0.87962566103423978
# The logit of a gate that starts `open` (98 % of the candidate enters) or, negated, `closed`.
GATE_LOGIT = 4.0


@torch.no_grad()
def truncated_normal_(tensor: Tensor, std: float) -> Tensor:
    """Normal, truncated at two standard deviations, and scaled to the standard deviation `std`."""
    scale = std / _CUT_STD
    return torch.nn.init.trunc_normal_(tensor, std=scale, a=-2 * scale, b=2 * scale)


def fan_in_(weight: Tensor) -> Tensor:
    """weight (outputs, inputs): truncated normal with variance 1 / inputs."""
    return truncated_normal_(weight, math.sqrt(1 / weight.shape[1]))


@torch.no_grad()
def positions_(position: Tensor, length: int, how: str) -> Tensor:
    """position (channels, taps): `even`, 0, length/taps, 2 length/taps, …; or `random` over 0 .. length - 1."""
    if how == "random":
        return position.uniform_(0, length - 1)
    taps = position.shape[1]
    even = torch.arange(taps, dtype=position.dtype) * (length / taps)
    return position.copy_(even.clamp(max=length - 1).expand_as(position))


@torch.no_grad()
def gate_bias_(bias: Tensor, how: str | float) -> Tensor:
    """bias (hidden): a number, or `zero`, `open`, `closed`, `uniform`.

    `uniform` draws the gate's opening, u in (1/n, 1 - 1/n), so that the units' time constants spread over all
    scales (uniform gate initialisation, Gu et al. 2020).
    """
    if how == "uniform":
        edge = min(1 / max(bias.shape[0], 1), 0.5)
        opening = torch.empty_like(bias).uniform_(edge, 1 - edge) if edge < 0.5 else torch.full_like(bias, 0.5)
        return bias.copy_(torch.logit(opening))
    value = {"zero": 0.0, "open": GATE_LOGIT, "closed": -GATE_LOGIT}[how] if isinstance(how, str) else how
    return bias.fill_(value)


@torch.no_grad()
def ring_(log_rate: Tensor, log_phase: Tensor, radii: tuple[float, float]) -> None:
    """Eigenvalues exp(-exp(log_rate) + i exp(log_phase)) uniform on the ring between two radii."""
    low, high = radii
    area = torch.empty_like(log_rate).uniform_(0, 1) * (high**2 - low**2) + low**2
    log_rate.copy_(torch.log(-0.5 * torch.log(area.clamp(1e-12, 1 - 2**-20))))
    log_phase.copy_(torch.log(torch.empty_like(log_phase).uniform_(1e-6, 1) * (2 * math.pi)))
