"""Scales map values to pixels, with round ticks. Whatever the data, a scale is never empty."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

# Larger values count as diverged, smaller ones as zero: their sums and ratios might overflow.
LARGEST, SMALLEST = 1e100, 1e-100


def drawable(value: float) -> bool:
    """Whether a value can be drawn: it is finite and not absurdly large."""
    return abs(value) <= LARGEST


@dataclass(frozen=True)
class Scale:
    """Maps values from `low` to `high` to pixels from `start` to `stop`, linearly or logarithmically."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value, clipped to the ends."""
        low, high, value = self._along(self.low), self._along(self.high), self._along(value)
        share = min(1.0, max(0.0, (value - low) / (high - low)))
        return self.start + share * (self.stop - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """Round values between the ends, about as many as asked for: multiples of 1, 2 or 5, or powers of ten."""
        return self._powers(about) if self.log else _round_steps(self.low, self.high, about)

    def _along(self, value: float) -> float:
        return math.log10(max(value, self.low * 1e-9)) if self.log else value

    def _powers(self, about: int) -> list[float]:
        exponents = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for factors in ((1,), (1, 3), (1, 2, 5)):
            ticks = [float(f"{factor}e{exponent}") for exponent in exponents for factor in factors]
            found = [tick for tick in ticks if self.low <= tick <= self.high]
            if len(found) >= 3:
                return found[:: max(1, math.ceil(len(found) / (about + 2)))]
        return found or [self.low]


def linear(values: Iterable[float], start: float, stop: float, *, ends: tuple[float | None, float | None]) -> Scale:
    """A scale for these values with a little room around them; `ends` fixes the lower or the upper end.

    Without values, it goes from 0 to 1; a single value is in the middle.
    """
    found = [value for value in values if drawable(value)]
    low, high = (min(found), max(found)) if found else (0.0, 1.0)
    low, high = (given if given is not None else end for given, end in zip(ends, (low, high), strict=True))
    if high - low < SMALLEST:
        half = abs(low) / 2 if abs(low) >= SMALLEST else 0.5
        low, high = low - half, low + half
    room = 0.06 * (high - low)
    return Scale(low if ends[0] is not None else low - room, high if ends[1] is not None else high + room, start, stop)


def logarithmic(values: Iterable[float], start: float, stop: float) -> Scale:
    """A logarithmic scale for these values with a little room; values without a logarithm are ignored."""
    found = [value for value in values if SMALLEST <= value <= LARGEST]
    low, high = (min(found), max(found)) if found else (1.0, 10.0)
    room = max(0.05 * math.log10(high / low), 0.15)
    return Scale(low / 10**room, high * 10**room, start, stop, log=True)


def _round_steps(low: float, high: float, about: int) -> list[float]:
    rough = (high - low) / max(1, about)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1, 2, 5, 10) if f * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]
