"""One layer: convolution -> recurrence -> MLP, with the configured skips and norms."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgrade.nn import initialise
from mgrade.nn.config import ModelConfig
from mgrade.nn.convolution import DelayConv, DilatedConv, convolution
from mgrade.nn.recurrence import LRU, MinGRU, recurrence
from mgrade.ops import feedforward, linear
from mgrade.ops.dropout import dropout
from mgrade.ops.glu import glu
from mgrade.ops.layer_norm import layer_norm
from mgrade.ops.layer_step import layer_step, takes_step


class Linear(nn.Linear):
    """`torch.nn.Linear` that keeps the layout of its input."""

    def forward(self, x: Tensor, base: Tensor | None = None) -> Tensor:
        """x (…, inputs) -> (…, outputs), added to `base` if given."""
        return linear(x, self.weight, self.bias, base)


class LayerNorm(nn.LayerNorm):
    """`torch.nn.LayerNorm` that returns the dtype of its input, also under autocast."""

    def forward(self, x: Tensor, base: Tensor | None = None, dropout: float = 0.0, whole: bool = False) -> Tensor:
        """x (…, channels) -> the same shape, after `dropout`, added to `base` if given."""
        return layer_norm(x, self.weight, self.bias, self.eps, base, dropout, whole)


def linear_layer(inputs: int, outputs: int) -> Linear:
    """A linear layer initialised as in the paper: truncated normal weights, zero bias."""
    layer = Linear(inputs, outputs)
    initialise.fan_in_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class MLP(nn.Module):
    """inner -> 2 dim -> GELU -> dim."""

    def __init__(self, inner: int, dim: int):
        super().__init__()
        self.input = linear_layer(inner, 2 * dim)
        self.output = linear_layer(2 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """x (…, inner) -> (…, dim)."""
        return self.output(F.gelu(self.input(x), approximate="tanh"))


class GLU(nn.Module):
    """GELU, then a linear layer gated by another: what follows the LRU in its own block."""

    def __init__(self, inner: int, dim: int):
        super().__init__()
        self.value = linear_layer(inner, dim)
        self.gate = linear_layer(inner, dim)

    def forward(self, x: Tensor, base: Tensor | None = None) -> Tensor:
        """x (…, inner) -> (…, dim), added to `base` if given."""
        if _altered(self):
            active = F.gelu(x, approximate="tanh")
            y = self.value(active) * torch.sigmoid(self.gate(active))
            return y if base is None else base + y
        return glu(x, self.value.weight, self.value.bias, self.gate.weight, self.gate.bias, base)


class Block(nn.Module):
    """x = x + conv(x); x = x + recurrence(x); x = x + mlp(x); x = norm(x): each part and each skip optional."""

    def __init__(self, config: ModelConfig, layer: int):
        super().__init__()
        self.skips, self.norm_at, self.activations = config.skips, config.norm, config.activations
        self.conv = convolution(config, layer)
        self.recurrence = recurrence(config)
        self.projection = linear_layer(config.hidden, config.dim) if self._projects(config) else None
        kinds = {"gelu": MLP, "glu": GLU}
        self.mlp = kinds[config.mlp](config.inner, config.dim) if config.mlp != "none" else None
        self.norm = LayerNorm(config.dim) if config.norm != "none" else None
        self.branch_norms = nn.ModuleDict()
        for branch in config.branch_norms:
            width = config.dim if branch == "conv" else config.inner
            self.branch_norms[branch] = LayerNorm(width)
        self.dropout, self.drops_whole = config.dropout, config.dropout_spans == "sequence"
        self._steps_at_once = _is_plain(config)

    @staticmethod
    def _projects(config: ModelConfig) -> bool:
        return config.projection and config.recurrence == "mingru"

    def forward(
        self,
        x: Tensor,
        state: tuple[Tensor | None, Tensor | None],
        reset: Tensor | None = None,
        lengths: Tensor | None = None,
        last: int | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x (batch, time, dim) -> (batch, time, dim), or its `last` steps, and the state (delay line, hidden) after it.

        A state of None is the initial state.
        """
        history, hidden = state
        plain = reset is None and lengths is None and last is None
        if plain and history is not None and hidden is not None and self._takes_step(x):
            return self._step(x, history.to(x.dtype), hidden.to(x.dtype))
        start = x
        if self.norm is not None and self.norm_at == "pre":
            x = self.norm(x)
        if self.conv is not None:
            x, history = self._beside("conv", self.conv, x, history, reset, lengths)
        if self.recurrence is not None:
            x, hidden = self._beside("recurrence", self.recurrence, x, hidden, reset, lengths)
        if last is not None:  # the rest treats every step separately
            x, start = _tail(x, last), _tail(start, last)
        if self._fuses_end():
            return self._fused_end(x), self._whole(x.shape[0], history, hidden)
        return self._end(x, start), self._whole(x.shape[0], history, hidden)

    def _takes_step(self, x: Tensor) -> bool:
        whole = self._steps_at_once and self.recurrence is not None and self.mlp is not None
        return whole and takes_step(x) and not self._dropout() and not _altered(self)

    def _step(self, x: Tensor, history: Tensor, hidden: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """One step of a stream, without a call for each of its parts."""
        conv, recurrence, mlp, norm = self.conv, self.recurrence, self.mlp, self.norm
        assert isinstance(recurrence, MinGRU)
        assert isinstance(mlp, MLP)
        y, *after = layer_step(
            x,
            history,
            hidden,
            None if conv is None else conv.drawn(),
            1 if conv is None else conv.dilation,
            (recurrence.weight, recurrence.bias),
            (mlp.input.weight, mlp.input.bias),
            (mlp.output.weight, mlp.output.bias),
            None if norm is None else (norm.weight, norm.bias),
            0.0 if norm is None else norm.eps,
        )
        return y, (after[0], after[1])

    def _whole(self, batch: int, history: Tensor | None, hidden: Tensor | None) -> tuple[Tensor, Tensor]:
        """The state, with empty tensors for parts that this layer does not have."""
        if history is None or hidden is None:
            no_history, no_hidden = self.initial_state(batch)
            return no_history if history is None else history, no_hidden if hidden is None else hidden
        return history, hidden

    def _beside(
        self, name: str, mixer: nn.Module, x: Tensor, state: Tensor | None, reset: Tensor | None, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """A convolution or recurrence with its skip, fused unless something comes between them."""
        projection = self.projection if name == "recurrence" else None
        added = name in self.skips and name not in self.branch_norms and not self._dropout()
        if added and projection is None and name not in self.activations:
            return mixer(x, state, reset, lengths, skip=True)
        branch, state = mixer(x, state, reset, lengths)
        if name in self.activations:
            branch = F.gelu(branch, approximate="tanh")
        if projection is not None:
            if added and isinstance(projection, Linear):
                return projection(branch, x), state
            branch = projection(branch)
        norm = self.branch_norms[name] if name in self.branch_norms and name in self.skips else None
        if isinstance(norm, LayerNorm):
            return norm(branch, x, self._dropout(), self.drops_whole), state
        return self._join(name, x, self._normed(name, branch)), state

    def _dropout(self) -> float:
        return self.dropout if self.training else 0.0

    def _fuses_end(self) -> bool:
        """Whether MLP, skip and norm are the plain sequence that `ops.feedforward` fuses."""
        plain = isinstance(self.mlp, MLP) and "mlp" in self.skips and "layer" not in self.skips
        return plain and not _altered(self)

    def _end(self, x: Tensor, start: Tensor) -> Tensor:
        """MLP, the skip over the layer and the norm, each optional."""
        over = start if "layer" in self.skips else None
        if self.mlp is not None:
            branch = self._normed("mlp", x)
            if isinstance(self.mlp, GLU) and "mlp" not in self.skips and not self._dropout():
                x, over = self.mlp(branch, over), None
            else:
                x = self._join("mlp", x, self.mlp(branch))
        if over is not None:
            x = over + x
        return self.norm(x) if self.norm is not None and self.norm_at == "post" else x

    def _fused_end(self, x: Tensor) -> Tensor:
        assert isinstance(self.mlp, MLP)
        into, out = self.mlp.input, self.mlp.output
        weights, drops = (into.weight, into.bias, out.weight, out.bias), (self._dropout(), self.drops_whole)
        branch, base = (self._normed("mlp", x), x) if "mlp" in self.branch_norms else (x, None)
        if self.norm is None or self.norm_at == "pre":
            return feedforward(branch, *weights, None, None, 0.0, *drops, base)
        return feedforward(branch, *weights, self.norm.weight, self.norm.bias, self.norm.eps, *drops, base)

    def _normed(self, name: str, x: Tensor) -> Tensor:
        return self.branch_norms[name](x) if name in self.branch_norms else x

    def _join(self, name: str, x: Tensor, branch: Tensor) -> Tensor:
        base = x if name in self.skips else None
        if self._dropout():
            return dropout(branch, self.dropout, self.drops_whole, base)
        return branch if base is None else base + branch

    def initial_state(self, batch: int) -> tuple[Tensor, Tensor]:
        """The delay line and the hidden state before the first step; empty where the layer has none."""
        parameter = next(self.parameters())
        history = parameter.new_zeros(batch, 0, 0) if self.conv is None else self.conv.initial_state(batch)
        hidden = parameter.new_zeros(batch, 0) if self.recurrence is None else self.recurrence.initial_state(batch)
        return history, hidden


_OWN = (Linear, LayerNorm, MLP, GLU, DelayConv, DilatedConv, MinGRU, LRU, nn.ModuleDict)


def _altered(module: nn.Module) -> bool:
    """Whether some part, at any depth, must be called as a module instead of being fused with others.

    That is so if it was replaced (as adapters do), lost its bias, or has a hook (as `torch.nn.utils.prune` adds).
    """
    parts = (part for part in module._modules.values() if part is not None)
    return any(altered(part) or (part._modules and _altered(part)) for part in parts)


def altered(part: nn.Module, *known: type[nn.Module]) -> bool:
    """The same for a part itself, which should be of one of our own types or a `known` one."""
    parameters = part._parameters
    if parameters.get("weight", part) is None or parameters.get("bias", part) is None:
        return True
    if type(part) not in _OWN and type(part) not in known:
        return True
    hooks = part._forward_pre_hooks or part._forward_hooks or part._backward_hooks or part._backward_pre_hooks
    return bool(hooks)


def _is_plain(config: ModelConfig) -> bool:
    """Whether `ops.layer_step` computes this layer: minGRU and MLP, each with its skip, and nothing in between."""
    return (
        config.recurrence == "mingru"
        and config.candidate == "linear"
        and config.hidden == config.dim
        and not config.projection
        and config.mlp == "gelu"
        and {"recurrence", "mlp"} <= set(config.skips)
        and (config.conv == "none" or "conv" in config.skips)
        and "layer" not in config.skips
        and not config.branch_norms
        and not {"conv", "recurrence"} & set(config.activations)
        and config.norm in ("none", "post")
    )


def _tail(x: Tensor, steps: int) -> Tensor:
    """The last steps of x (batch, time, dim), with a gradient in the layout of x."""
    begin = x.shape[1] - steps
    return x[:, begin:] if x.stride(2) == 1 else x.transpose(1, 2)[..., begin:].transpose(1, 2)
