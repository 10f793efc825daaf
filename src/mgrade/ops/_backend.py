"""Chooses the implementation for a call, and tells which modes of PyTorch are active."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import NoReturn, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from mgrade.ops import _c

_P = ParamSpec("_P")
_T = TypeVar("_T")

BACKENDS = ("auto", "reference", "c", "triton")
C_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128)
TRITON_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.complex64)

HAS_C = _c.LIBRARY is not None
HAS_TRITON = importlib.util.find_spec("triton") is not None
# Triton kernels can also run on the CPU, slowly, through Triton's interpreter: that is how they are tested there.
TRITON_INTERPRETED = HAS_TRITON and os.environ.get("TRITON_INTERPRET") == "1"


def available() -> tuple[str, ...]:
    """The backends that can run on this machine, the reference first."""
    triton = TRITON_INTERPRETED or (HAS_TRITON and torch.cuda.is_available())
    return ("reference", *("c",) * HAS_C, *("triton",) * triton)


_plain = ContextVar("mgrade.ops.plain", default=False)


@contextmanager
def plain() -> Iterator[None]:
    """Within this context every operator is plain PyTorch: slower, but differentiable any number of times.

    Otherwise operators have first derivatives only, by backpropagation. (Under `torch.func` and forward-mode
    differentiation they are plain automatically.)
    """
    before = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(before)


def is_plain() -> bool:
    """Whether a mode is active that supports only PyTorch's own operators: `plain`, `torch.func` or forward mode."""
    if torch.compiler.is_compiling():
        return False
    return _plain.get() or is_transformed() or has_tangents()


def is_transformed() -> bool:
    """Whether a `torch.func` transform is active, whose tensors hide their values."""
    return torch._C._functorch.maybe_current_level() is not None


def is_recorded() -> bool:
    """Whether calls are being traced, or tensors are fake: values must be neither read nor cached.

    True within `torch.compile`, `torch.export`, `torch.jit.trace`, `make_fx` and `FakeTensorMode`.
    """
    return torch.compiler.is_compiling() or torch._C._is_tracing() or torch._C._len_torch_dispatch_stack() > 0


def has_tangents() -> bool:
    """Whether forward-mode differentiation is active: equal tensors may then have different tangents."""
    return forward_ad._current_level >= 0


def implements(operator: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Registers a function as the implementation of an operator, run on the device of its first tensor.

    Without that, Triton would launch on the current device, whichever device its tensors are on.
    """

    def register(function: Callable[_P, _T]) -> Callable[_P, _T]:
        @functools.wraps(function)
        def on_device(*arguments: _P.args, **options: _P.kwargs) -> _T:
            first = arguments[0]
            if isinstance(first, Tensor) and first.is_cuda and first.get_device() != torch.cuda.current_device():
                with torch.cuda.device(first.device):
                    return function(*arguments, **options)
            return function(*arguments, **options)

        torch.library.impl(operator, "default")(on_device)
        return on_device

    return register


def first_only(operator: str) -> None:
    """Makes differentiating a gradient operator an error; PyTorch would otherwise take the derivative to be zero."""
    torch.library.register_autograd(operator, lambda ctx, *grads: refuse_second(operator))


def refuse_second(operator: str) -> NoReturn:
    """Raises an error that says how to get second derivatives."""
    raise RuntimeError(
        f"{operator} has no derivative of its own: for second derivatives run the model within mgrade.ops.plain()"
    )


def choose(backend: str, tensor: Tensor) -> str:
    """The backend for `tensor`: the one asked for, or for `auto` the fastest that takes its device and dtype."""
    device = tensor.device.type
    fits = {
        "reference": True,
        "c": HAS_C and device == "cpu" and tensor.dtype in C_DTYPES,
        "triton": HAS_TRITON
        and tensor.dtype in TRITON_DTYPES
        and (device == "cuda" or (device == "cpu" and TRITON_INTERPRETED)),
    }
    if backend == "auto":
        if is_plain():
            return "reference"
        fast = "triton" if device == "cuda" else "c"
        return fast if fits[fast] else "reference"
    if backend not in fits:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    if not fits[backend]:
        raise ValueError(
            f"backend {backend!r} cannot run {tensor.dtype} tensors on {device} here;"
            f" available: {', '.join(available())}"
        )
    return backend


@functools.cache
def implementation(operator: str, backend: str) -> ModuleType:
    """The module `mgrade.ops.<operator>.<backend>`, imported on first use, because importing Triton is slow."""
    return importlib.import_module(f"mgrade.ops.{operator}.{backend}")


def is_one_step(x: Tensor) -> bool:
    """Whether x (batch, time, channels) is one step of a stream on a CPU, where calls cost more than arithmetic.

    A few direct PyTorch calls are then fastest; nothing needs operators that autograd or a tracer could see.
    """
    return (
        x.shape[1] == 1
        and x.is_cpu
        and x.dtype in (torch.float32, torch.float64)
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and not is_recorded()
    )


def is_autocast(x: Tensor) -> bool:
    """Whether autocast is enabled for the device of x; PyTorch raises an error if asked about `meta`."""
    device = x.device.type
    return device != "meta" and torch.is_autocast_enabled(device)


def channels_last(*tensors: Tensor) -> bool:
    """Whether all of these (batch, time, channels) keep their channels contiguous, and not time."""
    return all(x.stride(2) == 1 and x.stride(1) != 1 and x.shape[1] != 1 for x in tensors)


def like_result(x: Tensor, backend: str, across: bool = False) -> Tensor:
    """An uninitialised (batch, time, channels) laid out as `backend` returns it.

    Triton keeps time contiguous, except in kernels that work `across` contiguous channels as well.
    """
    if backend == "triton" and not across:
        batch, time, channels = x.shape
        return x.new_empty(batch, channels, time).transpose(1, 2)
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The dtype that sums and states are kept in: float32 for half and bfloat16, else the dtype itself."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
