"""From features to outputs: at every step, or pooled over the valid steps."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgrade.nn.block import altered, linear_layer
from mgrade.nn.config import ModelConfig
from mgrade.ops._backend import accumulator


class PairHead(nn.Module):
    """Compares two documents a, b by their pooled features: [a, b, a - b, a b] -> linear -> GELU -> outputs."""

    def __init__(self, dim: int, outputs: int):
        super().__init__()
        self.input = linear_layer(4 * dim, dim)
        self.output = linear_layer(dim, outputs)

    def forward(self, pooled: Tensor) -> Tensor:
        """pooled (2 pairs, dim), first documents then second ones -> (pairs, outputs)."""
        a, b = pooled.chunk(2)
        return self.output(F.gelu(self.input(torch.cat([a, b, a - b, a * b], -1)), approximate="tanh"))


class Readout(nn.Module):
    """A linear head on each step's features (or their GELU), on the last, or on their running sum or mean.

    The head is linear, so the mean of the outputs is the head of the mean features: `total` (batch, dim) and
    `steps` (batch) are all that streaming must remember. A restart resets them. The total is float32, also in half
    precision: after some 2**24 steps it is too large for further ones to change it.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.kind, self.active = config.readout, "head" in config.activations
        head = PairHead if config.pair else linear_layer
        self.head = head(config.dim, config.outputs)
        self.dim = config.dim

    def forward(
        self,
        x: Tensor,
        state: tuple[Tensor, Tensor],
        reset: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x (batch, time, dim) -> outputs (batch, time, outputs) or (batch, outputs), and the pooled state."""
        if self.active:
            x = F.gelu(x, approximate="tanh")
        if self.kind == "every":
            return self.head(x), state
        total, steps = state
        dtype = self._dtype(x)
        total, steps = self._pool(x, total.to(accumulator(dtype)), steps, reset, lengths)
        y: Tensor
        if self.kind == "mean":
            y = self.head((total / steps.clamp_min(1)[:, None]).to(dtype))
        elif self.kind == "sum" and not isinstance(self.head, PairHead):
            y = self._summed(total, steps).to(dtype)
        else:
            y = self.head(total.to(dtype))
        return y, (total, steps)

    def _dtype(self, features: Tensor) -> torch.dtype:
        """The dtype that the head reads: that of its weights, if it has any."""
        return next((parameter.dtype for parameter in self.parameters()), features.dtype)

    def _summed(self, total: Tensor, steps: Tensor) -> Tensor:
        """The sum of the outputs of all steps: each has the head's bias."""
        if altered(self.head):  # called as a module, for its hooks or replacement
            dtype = self._dtype(total)
            alone = self.head(torch.zeros_like(total, dtype=dtype))
            return self.head(total.to(dtype)) + (steps[:, None] - 1) * alone
        assert isinstance(self.head, nn.Linear)
        weight, bias = self.head.weight.to(total.dtype), self.head.bias.to(total.dtype)
        return F.linear(total, weight) + steps[:, None] * bias

    def _pool(
        self, x: Tensor, total: Tensor, steps: Tensor, reset: Tensor | None, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The running total after x: the steps since the latest restart, plus the earlier total if there was none."""
        batch, time, _ = x.shape
        ends = torch.full((batch,), time, device=x.device) if lengths is None else lengths
        if self.kind == "last":
            if time == 0:
                return total.clone(), steps.clone()
            last = x.gather(1, (ends - 1).clamp_min(0)[:, None, None].expand(-1, 1, self.dim))[:, 0]
            return torch.where((ends > 0)[:, None], last.to(total.dtype), total), steps.clone()
        if reset is None and lengths is None:
            return total + _sum(x, total.dtype), steps + time
        seen = torch.arange(time, device=x.device) < ends[:, None]
        if reset is not None:
            restarts = reset & seen
            seen = seen & ((restarts.long().flip(1).cumsum(1).flip(1) - restarts.long()) == 0)
            anew = restarts.any(1)
            total, steps = torch.where(anew[:, None], 0, total), torch.where(anew, 0, steps)
        return total + _sum(x, total.dtype, seen), steps + seen.sum(1)

    def initial_state(self, batch: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """An empty pool for weights `like` this: total (batch, dim), no channels for `every`, and steps (batch)."""
        width = 0 if self.kind == "every" else self.dim
        total = like.new_zeros(batch, width, dtype=accumulator(like.dtype))
        return total, torch.zeros(batch, dtype=torch.int64, device=like.device)


def _sum(x: Tensor, dtype: torch.dtype, seen: Tensor | None = None) -> Tensor:
    """The sum over time of x (batch, time, dim), or of its `seen` steps, with a gradient in the layout of x."""
    time = 1 if x.stride(2) == 1 else 2
    x = x if time == 1 else x.transpose(1, 2)
    if seen is not None:
        x = torch.where(seen.unsqueeze(3 - time), x, 0)
    return x.sum(time, dtype=dtype)
