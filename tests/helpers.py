"""What tests of several folders share: the operators under one roof, the backends, the presets, errors."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import keystr, tree_leaves_with_path

from mgrade import Model, ModelConfig, State
from mgrade.ops import available, delay_conv, diagonal_scan, dilated_conv, gated_recurrence, gated_scan

# How far a float32 result may be from the truth, or two ways to one float64 result from each other.
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12, torch.complex64: 2e-6, torch.complex128: 1e-12}
GRADIENT_TOLERANCE = 2e-5
# What has faded below this, such as the gradient of a long forgotten state, counts as zero.
SMALLEST = 1e-30
TRITON_DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INTERPRETED = TRITON_DEVICE == "cpu"

# Triton's interpreter computes with NumPy, which speaks up where a device is silent.
INTERPRETER_WARNINGS = (
    "ignore:Conversion of an array with ndim > 0:DeprecationWarning",
    "ignore:invalid value encountered:RuntimeWarning",
)

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA"))]
PRESETS = ("mgrade", "mingru", "dcls", "tcn", "lru", "lru_dcls")


def assert_refused(match: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """A ValueError of one line that says what is wrong."""
    with pytest.raises(ValueError, match=match) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)


def small(preset: str, **fields: Any) -> ModelConfig:
    """A preset small enough to run step by step in a test."""
    sizes = {"inputs": 3, "outputs": 4, "dim": 6, "depth": 2, "taps": 2, "max_delay": 9}
    return getattr(ModelConfig, preset)(**{**sizes, **fields})


def model_of(config: ModelConfig, dtype: torch.dtype = torch.float64) -> Model:
    return Model(config).to(dtype)


def random_input(config: ModelConfig, batch: int, time: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """What a model of `config` reads: values, or token ids."""
    if config.tokens:
        return torch.randint(0, config.inputs, (batch, time))
    return torch.randn(batch, time, config.inputs, dtype=dtype)


def leaves(state: State) -> dict[str, Tensor]:
    """The tensors of a state by their names."""
    return {keystr(path): tensor for path, tensor in tree_leaves_with_path(state)}


def steps_of(model: Model, x: Tensor) -> Tensor:
    """The outputs of `model.step`, one sample after the other, from the beginning."""
    state, steps = model.initial_state(len(x)), []
    with torch.no_grad():
        for x_t in x.unbind(1):
            y, state = model.step(x_t, state)
            steps.append(y)
    return torch.stack(steps, 1)


def in_pieces(
    model: Model,
    x: Tensor,
    state: State | None,
    cuts: Sequence[int],
    lengths: Tensor | None = None,
    reset: Tensor | None = None,
) -> tuple[Tensor, State]:
    """`model(x, state)` one piece after the other, cut where `cuts` says."""
    outputs = []
    for begin, end in itertools.pairwise(cuts):
        y, state = model(
            x[:, begin:end],
            state,
            lengths=None if lengths is None else (lengths - begin).clamp(0, end - begin),
            reset=None if reset is None else reset[:, begin:end],
        )
        outputs.append(y)
    return torch.cat(outputs, 1) if model.config.readout == "every" else outputs[-1], state


def relative_error(actual: Tensor, expected: Tensor, *more: Tensor) -> float:
    """Largest difference over the largest value of what is expected (or of `more` that belongs to it)."""
    assert actual.shape == expected.shape
    if not expected.numel():
        return 0.0
    wide = torch.complex128 if expected.is_complex() else torch.float64
    difference = (actual.detach().to(wide) - expected.detach().to(wide)).abs().max()
    largest = max(float(tensor.detach().abs().max()) for tensor in (expected, *more) if tensor.numel())
    return float(difference) / max(largest, SMALLEST)


def assert_close(actual: Tensor, expected: Tensor, tolerance: float, *more: Tensor, what: str = "result") -> None:
    error = relative_error(actual, expected, *more)
    assert error <= tolerance, f"{what}: relative error {error:.2e} is over {tolerance:.0e}"


def from_end_to_end(gone: Tensor) -> bool:
    """Whether every channel of (batch, time, channels) is gone as a whole or not at all, chance zeros apart."""
    share = gone.float().mean(1)
    return bool(((share < 0.1) | (share > 0.9)).all())


def some(batch: int, time: int, share: float = 0.2, device: str = "cpu") -> Tensor:
    """A random boolean mask (batch, time)."""
    return torch.rand(batch, time, device=device) < share


@dataclass(frozen=True)
class Operator:
    """One of the primitives, called the same way as the others: named tensors in, output and state out."""

    call: Callable[..., tuple[Tensor, Tensor]]
    timed: tuple[str, ...]
    """Inputs (batch, time, channels)."""
    state: str
    """The input that carries the past."""
    shapes: Callable[[int], dict[str, tuple[int, ...]]]
    """Shapes of the parameters for some number of channels."""
    past: tuple[int, ...] = ()
    """Axes of the state between batch and channels."""
    options: dict[str, Any] = field(default_factory=dict)
    complex: bool = False
    mixes: bool = False
    """Channels are not independent of each other."""

    def __call__(self, tensors: dict[str, Tensor], **options: Any) -> tuple[Tensor, Tensor]:
        return self.call(**tensors, **self.options, **options)

    def sample(
        self, batch: int, time: int, channels: int, dtype: torch.dtype = torch.float64, device: str = "cpu"
    ) -> dict[str, Tensor]:
        """Random inputs, all of which take a gradient."""
        if self.complex and not dtype.is_complex:
            dtype = dtype.to_complex()
        shapes = dict.fromkeys(self.timed, (batch, time, channels))
        shapes |= {self.state: (batch, *self.past, channels), **self.shapes(channels)}
        tensors = {name: torch.randn(shape, dtype=dtype, device=device) for name, shape in shapes.items()}
        if "position" in tensors:
            tensors["position"] = torch.rand_like(tensors["position"]) * (self.options["length"] - 1)
        if self.mixes:
            tensors["weight"] /= channels**0.5
        if "decay" in tensors:
            tensors["decay"] = 0.9 * torch.sgn(tensors["decay"])
        return {name: tensor.requires_grad_() for name, tensor in tensors.items()}

    def pulls(self, tensors: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Random gradients of output and state."""
        state, x = tensors[self.state], tensors[self.timed[0]]
        return state.new_empty(*x.shape[:2], state.shape[-1]).normal_(), torch.randn_like(state)

    def cut(self, tensors: dict[str, Tensor], begin: int, end: int) -> dict[str, Tensor]:
        """The same inputs, over some of the steps only."""
        return tensors | {name: tensors[name][:, begin:end] for name in self.timed}

    def row(self, tensors: dict[str, Tensor], index: int) -> dict[str, Tensor]:
        """The same inputs, for one row of the batch only."""
        batched = (*self.timed, self.state)
        return {name: t[index : index + 1] if name in batched else t for name, t in tensors.items()}

    def channel(self, tensors: dict[str, Tensor], index: int) -> dict[str, Tensor]:
        """The same inputs, for one channel only."""
        one, wide = slice(index, index + 1), (*self.timed, self.state)
        return {name: t[..., one] if name in wide else t[one] for name, t in tensors.items()}

    def without_state(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in tensors.items() if name != self.state}


def delay(length: int, taps: int = 3, **options: Any) -> Operator:
    """`delay_conv` of some length."""
    shapes = lambda channels: {"weight": (channels, taps), "position": (channels, taps)}  # noqa: E731
    return Operator(delay_conv, ("x",), "history", shapes, (length - 1,), options={"length": length, **options})


def dilated(dilation: int, taps: int = 3, **options: Any) -> Operator:
    """`dilated_conv` of some dilation."""
    shapes, past = lambda channels: {"weight": (channels, taps)}, ((taps - 1) * dilation,)
    return Operator(dilated_conv, ("x",), "history", shapes, past, options={"dilation": dilation, **options})


GATED = Operator(gated_scan, ("gate", "candidate"), "initial", lambda channels: {})


def time_contiguous(tensor: Tensor) -> Tensor:
    """The same (batch, time, channels) with time contiguous, as activations of a model are on CUDA."""
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


def gappy(tensor):
    """The same tensor with gaps between its entries."""
    return torch.stack([tensor, torch.full_like(tensor, 9)], -1)[..., 0]


def transposed(tensor):
    """The same tensor with its last two axes the other way round in memory."""
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2) if tensor.dim() > 1 else tensor


GATED_ALONG_TIME = Operator(
    lambda gate, candidate, **rest: gated_scan(time_contiguous(gate), time_contiguous(candidate), **rest),
    ("gate", "candidate"),
    "initial",
    lambda channels: {},
)
RECURRENCE = Operator(
    gated_recurrence,
    ("x",),
    "initial",
    lambda channels: {"weight": (2 * channels, channels), "bias": (2 * channels,)},
    options={"skip": True},
    mixes=True,
)
DIAGONAL = Operator(diagonal_scan, ("drive",), "initial", lambda channels: {"decay": (channels,)}, complex=True)
OPERATORS = {
    "gated_scan": GATED,
    "gated_recurrence": RECURRENCE,
    "delay_conv": delay(5),
    "delay_conv_skip": delay(5, skip=True),
    "dilated_conv": dilated(2),
    "diagonal_scan": DIAGONAL,
}


def backend_param(backend: str, *values: Any, name: str = "") -> Any:
    """A parameter that is skipped by name where its backend cannot run."""
    reasons = {"c": "the C kernels are not built", "triton": "triton is not installed, or has no device"}
    marks = [] if backend in available() else [pytest.mark.skip(reason=reasons[backend])]
    if backend == "triton":
        marks += [pytest.mark.filterwarnings(ignored) for ignored in INTERPRETER_WARNINGS]
    return pytest.param(*values, backend, marks=marks, id=f"{name}-{backend}" if name else backend)


def each_operator(*backends: str, mixing: bool = True) -> Any:
    """Parametrises `operator` and `backend`: every operator on every backend that has it."""
    backends = backends or ("reference", "c", "triton")
    parameters = [
        backend_param(backend, operator, name=name)
        for name, operator in OPERATORS.items()
        for backend in backends
        if mixing or not operator.mixes
    ]
    if "triton" in backends:  # which has a kernel of its own for each layout
        parameters.append(backend_param("triton", GATED_ALONG_TIME, name="gated_scan_along_time"))
    return pytest.mark.parametrize(("operator", "backend"), parameters)


def place(backend: str) -> dict[str, Any]:
    """The dtype and device on which a backend is tested: float64 wherever it can."""
    return {
        "dtype": torch.float32 if backend == "triton" else torch.float64,
        "device": TRITON_DEVICE if backend == "triton" else "cpu",
    }


def gradients(
    operator: Operator, tensors: dict[str, Tensor], pulls: tuple[Tensor, Tensor], **options: Any
) -> dict[str, Tensor]:
    """Output, state, and the gradient of every input through both of them, by name."""
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in tensors.items()}
    y, state = operator(leaves, **options)
    pulls = (pulls[0].to(y.dtype), pulls[1].to(state.dtype))
    grads = torch.autograd.grad((y, state), list(leaves.values()), pulls)
    return {"output": y, "state": state, **dict(zip(leaves, grads, strict=True))}


def assert_agrees(
    operator: Operator, tensors: dict[str, Tensor], reset: Tensor | None, backend: str, truth: str = "reference"
) -> None:
    """A backend's outputs, states and gradients against those of `truth` in double precision."""
    pulls = operator.pulls(tensors)
    wide = {name: tensor.detach().to(_double(tensor)) for name, tensor in tensors.items()}
    actual = gradients(operator, tensors, pulls, reset=reset, backend=backend)
    expected = gradients(operator, wide, pulls, reset=reset, backend=truth)
    for name, tensor in expected.items():
        tolerance = TOLERANCE[torch.float32] if name in ("output", "state") else GRADIENT_TOLERANCE
        # the final state is the last of the outputs, or of the inputs: one value alone may be close to zero
        more = [expected["output"]] if name == "state" else []
        assert_close(actual[name], tensor, tolerance, *more, what=name)


def compiled(function: Callable[..., Any], backend: Any = None, **options: Any) -> Callable[..., Any]:
    """`function` as one graph; by default with inductor, which needs a C++ compiler, or else without it."""
    torch._dynamo.reset()
    default = "inductor" if shutil.which("g++") or TRITON_DEVICE == "cuda" else "aot_eager"
    return torch.compile(function, fullgraph=True, backend=backend or default, **options)


def _double(tensor: Tensor) -> torch.dtype:
    return torch.complex128 if tensor.is_complex() else torch.float64
