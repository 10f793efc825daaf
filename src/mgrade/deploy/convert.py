"""From a model to an equivalent Program in float32."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from mgrade.deploy.program import Op, Program
from mgrade.nn import Model
from mgrade.nn.block import GLU, MLP, Block, altered
from mgrade.nn.convolution import DelayConv, DilatedConv
from mgrade.nn.readout import Readout
from mgrade.nn.recurrence import LRU, MinGRU

# Rows of a delay line are counted in 16 bits.
LONGEST = (1 << 16) - 2


def from_model(model: Model, *, snap: bool = False) -> Program:
    """The program of `model`.

    With `snap`, each tap of a delay convolution becomes a single delay: the integer nearest to its position, with its
    total weight. That takes fewer bytes, and the narrower the taps, the more exact it is. Without it, every delay that
    the taps reach keeps its weight, and the outputs are the model's.
    """
    check_exportable(model)
    if model.encoder.weight.dtype not in (torch.float32, torch.float64):
        model = copy.deepcopy(model).float()
    builder = _Builder()
    value = builder.encoder(model)
    for block in model.layers:
        assert isinstance(block, Block)
        value = builder.block(block, value, snap)
    builder.readout(model, value)
    return Program(inputs=model.config.inputs, tokens=model.config.tokens, ops=tuple(builder.ops))


def check_exportable(model: Model) -> None:
    """Refuses a model that compares two documents, and one that does not compute what its configuration says."""
    if model.config.pair:
        raise ValueError("a model with pair=True compares two documents: it has no single stream to export")
    for name, part in model.named_modules():
        holds_others = part is model or type(part) in (nn.ModuleList, Block, Readout)
        if altered(part, *((type(part),) if holds_others else ())):
            raise ValueError(
                f"{name or 'model'} must match its configuration to be exported, got a {type(part).__name__} with a"
                " hook, without a bias or with a forward of its own: merge adapters and remove hooks first"
            )


class _Builder:
    """Collects the operations."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def add(self, kind: str, args: Sequence[int], numbers: dict[str, float] | None = None, **arrays: Tensor) -> int:
        """Appends an operation; returns its value."""
        self.ops.append(Op(kind, tuple(args), {name: _array(tensor) for name, tensor in arrays.items()}, numbers or {}))
        return len(self.ops)

    def linear(self, layer: nn.Linear, value: int) -> int:
        return self.add("linear", [value], weight=layer.weight, bias=layer.bias)

    def norm(self, layer: nn.Module, value: int) -> int:
        assert isinstance(layer, nn.LayerNorm)
        return self.add("norm", [value], {"eps": float(layer.eps)}, scale=layer.weight, shift=layer.bias)

    def encoder(self, model: Model) -> int:
        weight, bias = model.encoder.weight, model.encoder.bias
        if model.config.tokens:
            return self.add("embed", [0], table=weight.t() + bias)
        return self.linear(model.encoder, 0)

    def block(self, block: Block, value: int, snap: bool) -> int:
        """What `Block.forward` does in one step."""
        start = value
        if block.norm is not None and block.norm_at == "pre":
            value = self.norm(block.norm, value)
        if block.conv is not None:
            branch = self._active(block, "conv", self._convolution(block.conv, value, snap))
            value = self._join(block, "conv", value, branch)
        if block.recurrence is not None:
            branch = self._active(block, "recurrence", self._recurrence(block.recurrence, value))
            if block.projection is not None:
                branch = self.linear(block.projection, branch)
            value = self._join(block, "recurrence", value, branch)
        if block.mlp is not None:
            inner = self.norm(block.branch_norms["mlp"], value) if "mlp" in block.branch_norms else value
            branch = self._mlp(block.mlp, inner)
            value = self.add("add", [value, branch]) if "mlp" in block.skips else branch
        if "layer" in block.skips:
            value = self.add("add", [start, value])
        if block.norm is not None and block.norm_at == "post":
            value = self.norm(block.norm, value)
        return value

    def _active(self, block: Block, name: str, branch: int) -> int:
        return self.add("gelu", [branch]) if name in block.activations else branch

    def _join(self, block: Block, name: str, value: int, branch: int) -> int:
        if name in block.branch_norms:
            branch = self.norm(block.branch_norms[name], branch)
        return self.add("add", [value, branch]) if name in block.skips else branch

    def _convolution(self, conv: nn.Module, value: int, snap: bool) -> int:
        if isinstance(conv, DilatedConv):
            lag = torch.arange(conv.weight.shape[1]) * conv.dilation
            return self.add("filter", [value], weight=conv.weight.t(), lag=lag)
        assert isinstance(conv, DelayConv)
        kernel = conv.kernel()
        if snap:
            weight, lag = conv.snapped()
            return self.add("taps", [value], weight=weight, lag=lag)
        return self.add("filter", [value], weight=kernel.t(), lag=torch.arange(conv.length))

    def _recurrence(self, layer: nn.Module, value: int) -> int:
        if isinstance(layer, MinGRU):
            if layer.candidate != "linear":
                raise ValueError(f"candidate must be 'linear' in a program, got {layer.candidate!r}")
            halves = zip(layer.weight.chunk(2), layer.bias.chunk(2), strict=True)
            gate, candidate = (self.add("linear", [value], weight=weight, bias=bias) for weight, bias in halves)
            return self.add("gated", [gate, candidate])
        assert isinstance(layer, LRU)
        gain, rate, phase = (torch.exp(log) for log in (layer.log_gain, layer.log_rate, layer.log_phase))
        into = (gain[:, None] * layer.input).transpose(0, 1).flatten(0, 1)
        out = torch.stack([layer.output[0], -layer.output[1]], -1).flatten(1)
        size = torch.exp(-rate)
        drive = self.add("linear", [value], weight=into, bias=into.new_zeros(into.shape[0]))
        decay = torch.stack([size * torch.cos(phase), size * torch.sin(phase)], 1)
        hidden = self.add("rotate", [drive], decay=decay)
        read = self.add("linear", [hidden], weight=out, bias=out.new_zeros(out.shape[0]))
        return self.add("add", [read, self.add("scale", [value], weight=layer.skip)])

    def _mlp(self, mlp: nn.Module, value: int) -> int:
        if isinstance(mlp, MLP):
            return self.linear(mlp.output, self.add("gelu", [self.linear(mlp.input, value)]))
        assert isinstance(mlp, GLU)
        active = self.add("gelu", [value])
        return self.add("glu", [self.linear(mlp.value, active), self.linear(mlp.gate, active)])

    def readout(self, model: Model, value: int) -> None:
        """The head at every step. Pooling comes after the head: the result is the same, the state smaller."""
        head = model.readout.head
        assert isinstance(head, nn.Linear)
        if model.readout.active:
            value = self.add("gelu", [value])
        value = self.linear(head, value)
        if model.config.readout in ("mean", "sum"):
            self.add(model.config.readout, [value])


def _array(tensor: Tensor) -> npt.NDArray[np.generic]:
    tensor = tensor.detach().cpu()
    if tensor.is_floating_point():
        return np.ascontiguousarray(tensor.numpy().astype(np.float32))
    if int(tensor.max()) > LONGEST:
        raise ValueError(f"a delay must be at most {LONGEST} steps to export, got {int(tensor.max())}")
    return np.ascontiguousarray(tensor.numpy().astype(np.uint16))
