"""The inverse of a footprint: the mGRADE configurations that fit a memory and keep up with a sample rate."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from mgrade.footprint import chips
from mgrade.footprint.measure import Footprint, measure
from mgrade.footprint.operations import operations
from mgrade.nn import ModelConfig

# The grid: all combinations with no more taps than delays.
GRID = {
    "dim": (4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512),
    "depth": (1, 2, 3, 4, 5, 6, 7, 8),
    "taps": (1, 2, 4, 8, 16, 32),
    "max_delay": (2, 4, 8, 16, 32, 64, 128, 256, 512),
}
# Sizes of memory up to here are exact as floats.
MOST_BYTES = 2**53


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a device: bytes of RAM and flash (0: a single memory), and multiply-accumulates per step."""

    ram: int
    flash: int
    operations: float | None = None

    def __post_init__(self) -> None:
        if self.ram < 1:
            raise ValueError(f"ram must be at least 1 byte, got {self.ram}")
        if self.flash < 0:
            raise ValueError(f"flash must be at least 0 bytes, got {self.flash}")


@dataclass(frozen=True)
class Candidate:
    """A configuration that fits."""

    footprint: Footprint
    instantiated: bool
    operations: int

    @property
    def config(self) -> ModelConfig:
        """The model."""
        return self.footprint.config

    @property
    def parameters(self) -> int:
        """The number of trained parameters, by which configurations are sorted."""
        return sum(self.footprint.parameters.values()) + sum(self.footprint.left_out.values())

    @property
    def bytes(self) -> tuple[int, int]:
        """Bytes of parameters and of buffer on the device."""
        return self.footprint.needs(self.instantiated)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        stored, kept = self.bytes
        shape = {name: getattr(self.config, name) for name in GRID}
        sizes = {"parameters": self.parameters, "parameter_bytes": stored, "buffer_bytes": kept}
        return {**shape, **sizes, "operations": self.operations}


def grid(inputs: int, outputs: int) -> Iterator[ModelConfig]:
    """All configurations of the grid, with a pooled readout, as in classification."""
    for values in product(*GRID.values()):
        fields = dict(zip(GRID, values, strict=True))
        if fields["taps"] <= fields["max_delay"]:
            yield ModelConfig.mgrade(inputs=inputs, outputs=outputs, readout="mean", **fields)


def sizes(
    limits: Limits, *, inputs: int = 1, outputs: int = 10, precision: str = "float32", instantiated: bool = False
) -> list[Candidate]:
    """All configurations of the grid within the limits, sorted by parameters, largest first.

    Ties go to the longer buffer, then to fewer layers. With `instantiated`, delay kernels are stored written out. In
    whole numbers, a layer is no wider than their sums allow.
    """
    found = []
    for config in grid(inputs, outputs):
        candidate = Candidate(measure(config, precision), instantiated, sum(operations(config).values()))
        if candidate.footprint.too_wide:
            continue
        slow = limits.operations is not None and candidate.operations > limits.operations
        if not slow and chips.fits(*candidate.bytes, limits.ram, limits.flash):
            found.append(candidate)
    return sorted(found, key=lambda one: (-one.parameters, -one.bytes[1], one.config.depth))


def parse_bytes(text: str) -> int:
    """Parses 65536, 64K, 64KB, 64KiB or 1.5M into bytes: K and M are 1024-based, as on data sheets."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]?)(?:i?b)?", text.strip().lower())
    if match is None:
        raise ValueError(f"a size of memory is a number of bytes, as 65536, 64K or 1.5M, got {text!r}")
    size = float(match[1]) * 1024 ** ("kmg".index(match[2]) + 1 if match[2] else 0)
    if size > MOST_BYTES:
        raise ValueError(f"a size of memory is at most {MOST_BYTES} bytes, got {text!r}")
    return int(size)
