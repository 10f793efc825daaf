"""The C kernels, called through ctypes: a library beside this file, if a compiler was available at installation."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from mgrade._library import load_library

# Below this many multiply-adds a second thread costs more than it saves.
PARALLEL_FROM = 1 << 15
# Columns per panel of a matrix, as in product.h.
PANEL = 16
# Rows that pass through a layer together; the least for a group of their own.
ROWS = 96
# Most groups of rows with separate sums; does not depend on the number of threads.
PARTS = 16

_SUFFIX = {torch.float32: "f32", torch.complex64: "f32", torch.float64: "f64", torch.complex128: "f64"}
_POINTER, _INT64, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
# Arguments in order: p pointer, n int64, r real of the kernel's type, t thread count.
_SIGNATURES = {
    "gated_scan_forward": "pppppppppp nnn nnnnnn t",
    "gated_scan_backward": "pppppppppppp nnn nnnnnn t",
    "diagonal_scan_forward": "ppppp nnn t",
    "diagonal_scan_backward": "pppppppp nnn t",
    "delay_kernel_forward": "ppp nnn rr",
    "delay_kernel_backward": "ppppp nnn rr",
    "product": "pppp nnn t",
    "outer": "ppp nnnn t",
    "feedforward_forward": "pppppppp nnnnn t",
    "feedforward_backward": "pppppppp nnnnn t",
    "fir_forward": "ppppp nnnnn nn t",
    "fir_backward": "pppppppp n nnnnn nnnn t",
    "layer_step": "pppppppppppp pppp nnnnnn r",
}


def _declare(lib: ctypes.CDLL) -> None:
    for name, letters in _SIGNATURES.items():
        for suffix, real in (("f32", ctypes.c_float), ("f64", ctypes.c_double)):
            kinds = {"p": _POINTER, "n": _INT64, "r": real, "t": _INT}
            function = getattr(lib, f"mgrade_{name}_{suffix}")
            function.argtypes = [kinds[letter] for letter in letters.replace(" ", "")]
            function.restype = None


# The shared library, or None where it was not built.
LIBRARY = load_library(Path(__file__).parent, "_kernels", _declare)


def call(name: str, dtype: torch.dtype, *arguments: Tensor | int | float | None) -> None:
    """Runs a kernel. Tensors are passed by address: the caller keeps them alive, on the CPU and in the right layout."""
    function = getattr(LIBRARY, f"mgrade_{name}_{_SUFFIX[dtype]}")
    function(*(a.data_ptr() if isinstance(a, Tensor) else a for a in arguments))


def rows(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """`tensor` (batch, time, channels) in `dtype` with contiguous channels, copied only if needed."""
    tensor = tensor.to(dtype)
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def contiguous(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """`tensor` in `dtype`, made contiguous, or None."""
    return None if tensor is None else tensor.to(dtype).contiguous()


def panels(matrix: Tensor) -> Tensor:
    """`matrix` (K, N) in the layout of the products: (N / PANEL, K, PANEL), padded with zeros."""
    filled = F.pad(matrix, (0, -matrix.shape[1] % PANEL))
    return filled.unflatten(1, (-1, PANEL)).transpose(0, 1).contiguous()


def parts(rows: int) -> int:
    """The number of groups of rows with separate sums."""
    return max(1, min(PARTS, -(-rows // ROWS)))


def threads(work: int) -> int:
    """The number of threads for a kernel of `work` multiply-adds."""
    return torch.get_num_threads() if work >= PARALLEL_FROM else 1
