"""The module that implements `kernel_forward`, `kernel_backward`, `fir_forward` and `fir_backward`."""

from __future__ import annotations

from types import ModuleType

from mgrade.ops.delay_conv import c, reference


def implementation(backend: str) -> ModuleType:
    """The implementation called `backend`; Triton is imported only when it is asked for."""
    if backend == "triton":
        from mgrade.ops.delay_conv import triton

        return triton
    return c if backend == "c" else reference
