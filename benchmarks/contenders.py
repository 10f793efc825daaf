"""The contenders: for every question, names and builders of callables that do the work once.

Every builder is a `functools.partial` of a function in this module, so it can be sent to another process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks import peers
from benchmarks.configurations import Configuration
from benchmarks.measure import Build, Run
from mgrade import Model, ModelConfig
from mgrade.nn import MinGRU
from mgrade.ops import delay_conv, gated_scan
from mgrade.train import TrainingStep, cross_entropy

PRECISIONS = ("float32", "tf32", "bfloat16")


@dataclass(frozen=True)
class Workload:
    """A configuration on a device. precision: plain float32, TF32 matrix products, or bfloat16 autocast."""

    configuration: Configuration
    device: str
    precision: str = "float32"

    def data(self) -> tuple[Tensor, Tensor]:
        """A batch of inputs and class targets, the same for every contender."""
        c = self.configuration
        generator = torch.Generator().manual_seed(0)
        shape = (c.batch, c.time)
        x = torch.randint(c.inputs, shape, generator=generator) if c.tokens else None
        x = torch.randn(*shape, c.inputs, generator=generator) if x is None else x
        target = torch.randint(c.outputs, shape if c.every else shape[:1], generator=generator)
        return x.to(self.device), target.to(self.device)

    def activations(self, count: int) -> list[Tensor]:
        """`count` random tensors (batch, time, dim)."""
        c = self.configuration
        generator = torch.Generator(self.device).manual_seed(0)
        return [torch.randn(c.batch, c.time, c.dim, generator=generator, device=self.device) for _ in range(count)]

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """bfloat16 autocast, if that is the precision."""
        if self.precision == "bfloat16":
            return torch.autocast(self.device, torch.bfloat16)
        return contextlib.nullcontext()

    def set_precision(self) -> None:
        """Sets how this process multiplies float32 matrices."""
        exact = self.precision == "float32"
        torch.set_float32_matmul_precision("highest" if exact else "high")
        torch.backends.cudnn.allow_tf32 = not exact


# Training steps: forward, loss, backward, optimiser.


def training_steps(
    workload: Workload, *, with_peers: bool = True, compiled: bool = True, mode: str = "default"
) -> dict[str, Build]:
    """mgrade and the composition of peers, each as a whole training step."""
    steps: dict[str, Build] = {"mgrade": partial(mgrade_step, workload)}
    if workload.device == "cuda":
        steps["mgrade, captured"] = partial(mgrade_step, workload, captured=True)
    if with_peers:
        steps["peers"] = partial(composition_step, workload)
        if compiled:
            steps["peers, compiled"] = partial(composition_step, workload, compiled=True, mode=mode)
    return steps


def mgrade_step(workload: Workload, captured: bool = False) -> Run:
    """One training step of mgrade, launch by launch or captured as one CUDA graph."""
    return MgradeStep(workload, captured)


class MgradeStep:
    """A training step on a fixed batch, as in the tutorial: `TrainingStep` with the loss of `mgrade.train`.

    Recipes run the same step with the loss of their task, which may use only some of the steps.
    """

    def __init__(self, workload: Workload, captured: bool):
        torch.manual_seed(0)
        model = Model(model_config(workload.configuration)).to(workload.device)
        self._batch = workload.data()

        def loss(model: Model, x: Tensor, target: Tensor) -> Tensor:
            with workload.autocast():
                return cross_entropy(model(x)[0], target)

        self._step = TrainingStep(model, loss, rate=1e-3, decay=0.01, capture=captured)
        if workload.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self()
            self.peak_allocated = torch.cuda.max_memory_allocated()

    def __call__(self) -> None:
        self._step(*self._batch)


def composition_step(workload: Workload, compiled: bool = False, mode: str = "default") -> Run:
    """One training step of the composition of peers, eager or through torch.compile as one graph."""
    torch.manual_seed(0)
    model = peers.Composition(workload.configuration, workload.device).to(workload.device)
    forward: Callable[[Tensor], Tensor] = model
    if compiled:
        torch.compiler.reset()  # otherwise, graphs of earlier models count towards the recompilation limit
        forward = torch.compile(model, fullgraph=True, dynamic=False, mode=mode)
    return _training_step(model, forward, workload)


def model_config(c: Configuration) -> ModelConfig:
    """The configuration as a `ModelConfig`."""
    return ModelConfig(
        inputs=c.inputs,
        outputs=c.outputs,
        tokens=c.tokens,
        dim=c.dim,
        depth=c.depth,
        taps=c.taps,
        max_delay=c.max_delay,
        sigma=peers.SIGMA,
        readout="every" if c.every else "mean",
    )


def _training_step(
    model: nn.Module,
    forward: Callable[[Tensor], Tensor],
    workload: Workload,
) -> Run:
    x, target = workload.data()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        with workload.autocast():
            loss = functional.cross_entropy(forward(x).flatten(0, -2), target.flatten())
        loss.backward()
        optimiser.step()

    return step


# Parts of one layer: forward and backward.


def scans(workload: Workload, with_peers: bool = True) -> dict[str, Build]:
    """The gated recurrence alone, from gate logits and candidates: dense tensors (batch, time, dim).

    On CUDA mgrade's also runs in the layout of its own models, where time is contiguous.
    """
    functions = {"mgrade gated_scan": mgrade_scan}
    if with_peers:
        functions["log-space (minGRU-pytorch)"] = peers.log_space_scan
    if with_peers and workload.device == "cuda":
        functions["accelerated-scan, with transposes"] = peers.accelerated_scan
        functions["HGRN chunk (fla)"] = peers.hgrn_scan
    builds: dict[str, Build] = {name: partial(_scan_part, workload, function) for name, function in functions.items()}
    if workload.device == "cuda":  # not called mgrade: others are compared on the same tensors
        builds["gated_scan, time-contiguous"] = partial(_scan_part, workload, mgrade_scan, along_time=True)
    return builds


def mgrade_scan(gate: Tensor, candidate: Tensor) -> Tensor:
    """gate, candidate (batch, time, hidden) -> h (batch, time, hidden)."""
    return gated_scan(gate, candidate)[0]


def _scan_part(workload: Workload, scan: Callable[[Tensor, Tensor], Tensor], along_time: bool = False) -> Run:
    tensors = workload.activations(3)
    if along_time:
        tensors = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in tensors]
    gate, candidate, grad = tensors
    return _forward_backward(partial(scan, gate, candidate), [gate, candidate], grad)


def recurrent_layers(workload: Workload, with_peers: bool = True) -> dict[str, Build]:
    """A whole recurrent layer including its matrix products, which nn.GRU cannot leave out."""
    kinds = ("mgrade MinGRU", "minGRU-pytorch", "torch.nn.GRU") if with_peers else ("mgrade MinGRU",)
    return {kind: partial(_layer_part, workload, kind) for kind in kinds}


def _layer_part(workload: Workload, kind: str) -> Run:
    dim, device = workload.configuration.dim, workload.device
    if kind == "minGRU-pytorch":
        layer = peers.MINGRU.load(device).minGRU(dim).to(device)
        return _layer_run(layer, layer, workload)
    layer = (MinGRU(dim, dim) if kind == "mgrade MinGRU" else nn.GRU(dim, dim, batch_first=True)).to(device)
    return _layer_run(layer, lambda x: layer(x)[0], workload)


def convolutions(workload: Workload, with_peers: bool = True) -> dict[str, Build]:
    """The convolution of one layer, from its taps' weights and positions."""
    functions = {"dense F.conv1d": peers.dense_conv, "FFT": peers.fft_conv} if with_peers else {}
    functions = {"mgrade delay_conv": mgrade_conv, **functions}
    builds: dict[str, Build] = {name: partial(_conv_part, workload, function) for name, function in functions.items()}
    if with_peers:
        builds["DCLS"] = partial(_dcls_part, workload)
    return builds


def mgrade_conv(x: Tensor, weight: Tensor, position: Tensor, length: int) -> Tensor:
    """x (batch, time, dim); weight, position (dim, taps) -> (batch, time, dim)."""
    return delay_conv(x, weight, position, length=length, sigma=peers.SIGMA)[0]


def _conv_part(workload: Workload, conv: Callable[..., Tensor]) -> Run:
    c = workload.configuration
    x, grad = workload.activations(2)
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(c.dim, c.taps, generator=generator).to(workload.device)
    position = (torch.rand(c.dim, c.taps, generator=generator) * (c.max_delay - 1)).to(workload.device)
    return _forward_backward(partial(conv, x, weight, position, c.max_delay), [x, weight, position], grad)


def _dcls_part(workload: Workload) -> Run:
    c = workload.configuration
    layer = peers.DclsConv(c.dim, c.taps, c.max_delay, workload.device).to(workload.device)
    return _layer_run(layer, layer, workload)


def _layer_run(layer: nn.Module, call: Callable[[Tensor], Tensor], workload: Workload) -> Run:
    x, grad = workload.activations(2)
    return _forward_backward(partial(call, x), [x, *layer.parameters()], grad)


def _forward_backward(forward: Callable[[], Tensor], inputs: list[Tensor], grad: Tensor) -> Run:
    """Computes outputs and the gradients of all `inputs`; nothing is accumulated."""
    for tensor in inputs:
        tensor.requires_grad_()

    def run() -> tuple[Tensor, ...]:
        return torch.autograd.grad(forward(), inputs, grad)

    return captured(run) if grad.is_cuda else run


def captured(run: Run) -> Run:
    """`run` as a CUDA graph, so that the device is timed and not the launches; `run` itself if capture fails."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            run()
    except RuntimeError:
        return run

    def replay() -> None:
        assert run is not None  # keeps the tensors alive that the graph reads
        graph.replay()

    return replay
