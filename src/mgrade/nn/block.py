"""One layer: convolution -> recurrence -> MLP, with skips and norms as the configuration says."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgrade.nn import initialise
from mgrade.nn.config import ModelConfig
from mgrade.nn.convolution import convolution
from mgrade.nn.recurrence import recurrence


def linear(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer started as the paper does: truncated normal weights, zero bias."""
    layer = nn.Linear(inputs, outputs)
    initialise.fan_in_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class MLP(nn.Module):
    """inner -> 2 dim -> GELU -> dim."""

    def __init__(self, inner: int, dim: int):
        super().__init__()
        self.input = linear(inner, 2 * dim)
        self.output = linear(2 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """x (…, inner) -> (…, dim)."""
        return self.output(F.gelu(self.input(x), approximate="tanh"))


class GLU(nn.Module):
    """GELU, then a linear layer gated by another: what follows the LRU in its own block."""

    def __init__(self, inner: int, dim: int):
        super().__init__()
        self.value = linear(inner, dim)
        self.gate = linear(inner, dim)

    def forward(self, x: Tensor) -> Tensor:
        """x (…, inner) -> (…, dim)."""
        x = F.gelu(x, approximate="tanh")
        return self.value(x) * torch.sigmoid(self.gate(x))


class Block(nn.Module):
    """x = x + conv(x); x = x + recurrence(x); x = x + mlp(x); x = norm(x): each part and each skip optional."""

    def __init__(self, config: ModelConfig, layer: int):
        super().__init__()
        self.skips, self.norm_at = config.skips, config.norm
        self.conv = convolution(config, layer)
        self.recurrence = recurrence(config)
        self.projection = linear(config.hidden, config.dim) if self._projects(config) else None
        kinds = {"gelu": MLP, "glu": GLU}
        self.mlp = kinds[config.mlp](config.inner, config.dim) if config.mlp != "none" else None
        self.norm = nn.LayerNorm(config.dim) if config.norm != "none" else None
        self.branch_norms = nn.ModuleDict()
        for branch in config.branch_norms:
            width = config.dim if branch == "conv" else config.inner
            self.branch_norms[branch] = nn.LayerNorm(width)
        self.dropout = nn.Dropout(config.dropout)

    @staticmethod
    def _projects(config: ModelConfig) -> bool:
        return config.projection and config.recurrence == "mingru"

    def forward(
        self,
        x: Tensor,
        state: tuple[Tensor, Tensor],
        reset: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x (batch, time, dim) -> (batch, time, dim) and the state (delay line, hidden) after it."""
        history, hidden = state
        start = x
        if self.norm is not None and self.norm_at == "pre":
            x = self.norm(x)
        if self.conv is not None:
            branch, history = self.conv(x, history, reset, lengths)
            x = self._join("conv", x, self._normed("conv", branch))
        if self.recurrence is not None:
            branch, hidden = self.recurrence(x, hidden, reset, lengths)
            if self.projection is not None:
                branch = self.projection(branch)
            x = self._join("recurrence", x, self._normed("recurrence", branch))
        if self.mlp is not None:
            x = self._join("mlp", x, self.mlp(self._normed("mlp", x)))
        if "layer" in self.skips:
            x = start + x
        if self.norm is not None and self.norm_at == "post":
            x = self.norm(x)
        return x, (history, hidden)

    def _normed(self, name: str, x: Tensor) -> Tensor:
        return self.branch_norms[name](x) if name in self.branch_norms else x

    def _join(self, name: str, x: Tensor, branch: Tensor) -> Tensor:
        branch = self.dropout(branch)
        return x + branch if name in self.skips else branch

    def initial_state(self, batch: int) -> tuple[Tensor, Tensor]:
        """The delay line and the hidden state before the first step; empty where the layer has none."""
        parameter = next(self.parameters())
        history = parameter.new_zeros(batch, 0, 0) if self.conv is None else self.conv.initial_state(batch)
        hidden = parameter.new_zeros(batch, 0) if self.recurrence is None else self.recurrence.initial_state(batch)
        return history, hidden
