"""The alternatives to mgrade: public packages, and the model that a user would assemble from them.

Packages are imported on first use; a missing one raises an error that names it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.configurations import Configuration
from benchmarks.measure import UnavailableError

SIGMA = 0.8


@dataclass(frozen=True)
class Peer:
    """A package: its names on PyPI, the module to use, and whether it runs only on CUDA."""

    distributions: tuple[str, ...]
    module: str
    cuda_only: bool = False

    @property
    def name(self) -> str:
        return self.distributions[0]

    def version(self) -> str | None:
        """The installed version, if any."""
        for distribution in self.distributions:
            try:
                return importlib.metadata.version(distribution)
            except importlib.metadata.PackageNotFoundError:
                continue
        return None

    def load(self, device: str) -> Any:
        """The module, or `UnavailableError`."""
        if self.cuda_only and device != "cuda":
            raise UnavailableError(f"{self.name} runs on CUDA only")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return importlib.import_module(self.module)
        except Exception as error:  # packages may raise anything at import
            if self.version() is None:
                raise UnavailableError(f"{self.name} is not installed") from None
            reason = f"{type(error).__name__}: {error}"
            raise UnavailableError(f"{self.name} cannot be imported: {reason}") from error


MINGRU = Peer(("minGRU-pytorch",), "minGRU_pytorch.minGRU")
DCLS = Peer(("DCLS",), "DCLS.construct.modules")
ACCELERATED_SCAN = Peer(("accelerated-scan",), "accelerated_scan.scalar", cuda_only=True)
FLA = Peer(("flash-linear-attention", "fla-core"), "fla.ops.hgrn", cuda_only=True)
PEERS = (MINGRU, DCLS, ACCELERATED_SCAN, FLA)


def availability(device: str) -> dict[str, str]:
    """For every peer its version, or why it is not available."""
    found = {}
    for peer in PEERS:
        try:
            peer.load(device)
            found[peer.name] = peer.version() or "unknown version"
        except UnavailableError as reason:
            found[peer.name] = f"unavailable: {reason}"
    return found


# Scans: (gate logits, candidate), both (batch, time, hidden) -> h (batch, time, hidden).


def log_space_scan(gate: Tensor, candidate: Tensor) -> Tensor:
    """The log-space scan of minGRU-pytorch, as in its module, which makes candidates positive by its g."""
    package = MINGRU.load(gate.device.type)
    log_values = -functional.softplus(-gate) + package.log_g(candidate)
    return package.heinsen_associative_scan_log(-functional.softplus(gate), log_values)


def accelerated_scan(gate: Tensor, candidate: Tensor) -> Tensor:
    """accelerated-scan's Triton scan, which expects time last, including the transposes there and back."""
    package = ACCELERATED_SCAN.load(gate.device.type)
    take = torch.sigmoid(gate)
    keep, drive = ((1 - take).transpose(1, 2), (take * candidate).transpose(1, 2))
    return package.scan(keep.contiguous(), drive.contiguous()).transpose(1, 2).contiguous()


def hgrn_scan(gate: Tensor, candidate: Tensor) -> Tensor:
    """flash-linear-attention's chunked HGRN, which takes the logarithm of the forget gate."""
    package = FLA.load(gate.device.type)
    return package.chunk_hgrn(torch.sigmoid(gate) * candidate, functional.logsigmoid(-gate))[0]


# Convolutions: x (batch, time, dim) -> (batch, time, dim), causal and depthwise.


def gaussian_kernel(weight: Tensor, position: Tensor, length: int) -> Tensor:
    """weight, position (dim, taps) -> (dim, length): a dense kernel with Gaussian taps."""
    lag = torch.arange(length, device=weight.device, dtype=weight.dtype)
    distance = (lag - position.clamp(0, length - 1)[..., None]) / SIGMA
    return (weight[..., None] * torch.exp(-0.5 * distance**2)).sum(1)


def dense_conv(x: Tensor, weight: Tensor, position: Tensor, length: int) -> Tensor:
    """A dense kernel through `F.conv1d`, which is cuDNN on CUDA."""
    kernel = gaussian_kernel(weight, position, length)
    padded = functional.pad(x.transpose(1, 2), (length - 1, 0))
    return functional.conv1d(padded, kernel.flip(-1)[:, None], groups=x.shape[2]).transpose(1, 2)


def fft_conv(x: Tensor, weight: Tensor, position: Tensor, length: int) -> Tensor:
    """A dense kernel through the fast Fourier transform, padded to a size with small factors."""
    time = x.shape[1]
    least = time + length - 1
    size = min(factor << (-(-least // factor) - 1).bit_length() for factor in (1, 3, 5))
    spectrum = torch.fft.rfft(gaussian_kernel(weight, position, length), n=size)
    signal = torch.fft.rfft(x.transpose(1, 2), n=size)
    return torch.fft.irfft(signal * spectrum, n=size)[..., :time].transpose(1, 2)


class DclsConv(nn.Module):
    """The package DCLS, which normalises its Gaussians and also learns their widths."""

    def __init__(self, dim: int, taps: int, length: int, device: str):
        super().__init__()
        self.length = length
        module = DCLS.load(device).Dcls1d
        self.conv = module(dim, dim, taps, dilated_kernel_size=length, groups=dim, bias=False, version="gauss")

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(functional.pad(x.transpose(1, 2), (self.length - 1, 0))).transpose(1, 2)


# The composition a user would assemble today.


class CompositionLayer(nn.Module):
    """x + dense Gaussian convolution; x + minGRU-pytorch; x + MLP; LayerNorm."""

    def __init__(self, configuration: Configuration, device: str):
        super().__init__()
        dim, taps = configuration.dim, configuration.taps
        self.length = configuration.max_delay
        self.weight = nn.Parameter(torch.randn(dim, taps) / taps**0.5)
        self.position = nn.Parameter(torch.rand(dim, taps) * (self.length - 1))
        self.recurrence = MINGRU.load(device).minGRU(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(approximate="tanh"), nn.Linear(2 * dim, dim))
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + dense_conv(x, self.weight, self.position, self.length)
        x = x + self.recurrence(x)
        return self.norm(x + self.mlp(x))

    def step(self, x: Tensor, kernel: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x (batch, 1, dim); kernel (length, dim), oldest first; state: past inputs and the hidden state."""
        window = torch.cat([state[0], x], 1)
        x = x + (window * kernel).sum(1, keepdim=True)
        out, hidden = self.recurrence(x, state[1], return_next_prev_hidden=True)
        x = x + out
        return self.norm(x + self.mlp(x)), (window[:, 1:], hidden)


class Composition(nn.Module):
    """A linear encoder (of one-hot tokens), layers, and a linear head at every step or over the mean."""

    def __init__(self, configuration: Configuration, device: str):
        super().__init__()
        self.tokens = configuration.inputs if configuration.tokens else 0
        self.every = configuration.every
        self.encoder = nn.Linear(configuration.inputs, configuration.dim)
        self.layers = nn.ModuleList(CompositionLayer(configuration, device) for _ in range(configuration.depth))
        self.head = nn.Linear(configuration.dim, configuration.outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self._encode(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x if self.every else x.mean(1))

    def _encode(self, x: Tensor) -> Tensor:
        return self.encoder(functional.one_hot(x, self.tokens).to(self.encoder.weight.dtype) if self.tokens else x)

    def stream(self, batch: int) -> tuple[list[Tensor], list[tuple[Tensor, Tensor]]]:
        """What `step` needs: the kernels, computed once, and the initial state."""
        kernels, state = [], []
        for layer in self.layers:
            kernels.append(gaussian_kernel(layer.weight, layer.position, layer.length).flip(-1).t().contiguous())
            silence = layer.weight.new_zeros(batch, layer.length - 1, layer.weight.shape[0])
            state.append((silence, layer.weight.new_zeros(batch, 1, layer.weight.shape[0])))
        return kernels, state

    def step(self, x: Tensor, kernels: list[Tensor], state: list[Any]) -> tuple[Tensor, list[Any]]:
        """x (batch, 1, inputs), or tokens (batch, 1) -> outputs (batch, 1, outputs) and the next state."""
        x = self._encode(x)
        after = []
        for layer, kernel, memory in zip(self.layers, kernels, state, strict=True):
            x, memory = layer.step(x, kernel, memory)
            after.append(memory)
        return self.head(x), after
