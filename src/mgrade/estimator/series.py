"""Users' X in all its forms, read as a list of series (time, channels)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Series = npt.NDArray[np.float64]
# The largest value in single precision, in which models learn.
LARGEST = float(np.finfo(np.float32).max)
LAYOUTS = ("cases_channels_time", "cases_time_channels")
# Spreads relative to a mean: the smallest that float32 weights resolve, and the rounding error of float64 sums.
LEAST_SPREAD, ROUNDING = 1e-6, 1e-12
# The smallest spread for any mean: weights for channels in such units are still finite in float32.
SMALLEST = 1e-30


class Cases(NamedTuple):
    """Series (time, channels) of any lengths, and the form they came in."""

    series: list[Series]
    form: str
    """`table` (cases, time), one channel; `array`, three axes; `list`, of series."""

    @property
    def channels(self) -> int:
        """Channels of every series."""
        return self.series[0].shape[1]


def is_table(X: Any) -> bool:
    """Whether X is a table (cases, time), to be checked by scikit-learn: all but lists of series and 3 axes."""
    if isinstance(X, (list, tuple)):
        return not (len(X) and hasattr(X[0], "ndim")) and getattr(_stacked(X), "ndim", 3) < 3
    if isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1:
        return not (len(X) and hasattr(X[0], "ndim"))
    return getattr(X, "ndim", 2) != 3


def _stacked(X: Any) -> npt.NDArray[Any] | None:
    """Nested lists as one array; None if their lengths differ."""
    try:
        return np.asarray(X)
    except ValueError:
        return None


def from_table(table: npt.NDArray[Any]) -> Cases:
    """A checked table (cases, time) as series of one channel."""
    return Cases([row[:, None] for row in within(table.astype(np.float64), "X")], "table")


def read(X: Any, layout: str) -> Cases:
    """Reads three axes, or a list of series with two (or one, for one channel), in the order of `layout`."""
    check_layout(layout)
    stacked = X if getattr(X, "ndim", 1) == 3 else None if hasattr(X[0], "ndim") else _stacked(X)
    form = "list" if stacked is None else "array"
    rows = [_numbers(one, f"X[{i}]") for i, one in enumerate(X)] if stacked is None else list(_numbers(stacked, "X"))
    if not rows:
        raise ValueError("X must hold at least one series, got none")
    series = [_one(row, f"X[{index}]", layout) for index, row in enumerate(rows)]
    for index, one in enumerate(series):
        if one.shape[1] != series[0].shape[1]:
            raise ValueError(
                f"X[{index}] must have {series[0].shape[1]} channels like X[0], got {one.shape[1]}{_hint(layout)}"
            )
    return Cases(series, form)


def check_present(X: Any) -> None:
    """Refuses masked values, whose masks NumPy would ignore, and tables with series in their cells."""
    table = X if isinstance(X, np.ndarray) else getattr(X, "values", None)  # a data frame's
    cells = table.flat[:1] if isinstance(table, np.ndarray) and table.dtype == object and table.ndim == 2 else ()
    if any(isinstance(cell, (list, tuple)) or getattr(cell, "ndim", 0) for cell in cells):
        raise ValueError("X must hold numbers, got series in its cells: give a list of arrays (channels, time)")
    if any(np.ma.is_masked(one) for one in (X, *(X if isinstance(X, (list, tuple)) else ()))):
        raise ValueError("X must not be masked: remove missing values, or fill them in")


def check_layout(layout: str) -> None:
    """Refuses an unknown order of axes."""
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")


def check_channels(cases: Cases, channels: int, layout: str) -> None:
    """Refuses series with another number of channels than in the fit."""
    if cases.channels != channels:
        turned = cases.form != "table" and any(one.shape[0] == channels for one in cases.series)
        raise ValueError(
            f"X must have {channels} channels as in fit, got {cases.channels}{_hint(layout) if turned else ''}"
        )


def _hint(layout: str) -> str:
    return f"; layout is {layout!r}: is time the {'last' if layout == LAYOUTS[0] else 'first'} axis of each series?"


def _numbers(X: Any, name: str) -> Series:
    if isinstance(X, Tensor):
        X = X.detach().cpu()
        X = (X.double() if X.is_floating_point() else X).numpy()  # NumPy has no bfloat16
    elif (X := _stacked(X)) is None:
        raise ValueError(f"{name} must have rows of one length")
    if np.iscomplexobj(X):
        raise ValueError(f"{name}: Complex data not supported")
    try:
        values = X.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must hold numbers, got {X.dtype}") from None
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    return within(values, name)


def within(values: Series, name: str) -> Series:
    """`values`; refused if single precision cannot hold them."""
    if (largest := np.abs(values).max(initial=0)) > LARGEST:
        raise ValueError(f"{name} must be within {LARGEST:.2g} of 0, got {largest:g}")
    return values


def _one(values: Series, name: str, layout: str) -> Series:
    """A series (time, channels)."""
    if values.ndim == 1:
        values = values[:, None]
    elif values.ndim == 2:
        values = values.T if layout == LAYOUTS[0] else values
    else:
        raise ValueError(f"{name} must be a series with two axes, got shape {values.shape}")
    if not values.size:
        raise ValueError(f"{name} must have at least one step and one channel, got {values.shape}")
    return values


def statistics(series: Sequence[Series]) -> tuple[Series, Series, npt.NDArray[np.bool_]]:
    """Mean and scale (channels) of all steps, and which channels are constant: their scale is set to 1 or more.

    The scale is the standard deviation. A channel whose spread float32 cannot resolve beside its mean counts as
    constant, with a warning.
    """
    steps = np.concatenate(series)
    mean, scale = steps.mean(0), steps.std(0)
    least = LEAST_SPREAD * np.abs(mean)
    still = scale <= np.maximum(least, SMALLEST)
    for channel in np.flatnonzero(still & (scale > ROUNDING * np.abs(mean))):
        tiny = least[channel] < SMALLEST
        enough = f"{SMALLEST:g}" if tiny else f"{LEAST_SPREAD:g} of its mean"
        warnings.warn(
            f"channel {channel} must vary by at least {enough} to be told from it, got a mean of"
            f" {mean[channel]:g} and a spread of {scale[channel]:g}: it counts as constant;"
            f" {'give it in smaller units' if tiny else 'subtract an offset'}",
            stacklevel=4,
        )
    return mean, np.where(still, np.maximum(least, 1.0), scale), still


def framed(series: Sequence[Series], frame: int) -> list[Series]:
    """Series (time, channels) as a model reads them, with `frame` samples per step: (steps, frame * channels).

    Drops samples at the end that do not fill a frame.
    """
    return [one[: len(one) // frame * frame].reshape(-1, frame * one.shape[1]) for one in series]


def cut(values: Tensor, lengths: Tensor, frame: int, skip: Tensor) -> tuple[Tensor, Tensor]:
    """Padded samples (cases, samples, channels) as frames (cases, steps, frame * channels), and their numbers of steps.

    Like `framed`, after dropping the first `skip` samples (cases).
    """
    cases, time, channels = values.shape
    steps = -(-time // frame)
    place = skip[:, None] + torch.arange(steps * frame, device=values.device)
    taken = values.gather(1, place.clamp_max(time - 1)[..., None].expand(-1, -1, channels))
    return taken.reshape(cases, steps, frame * channels), (lengths - skip) // frame


def pad(series: Sequence[Series], dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Series as values (cases, longest, channels), padded with zeros, and lengths (cases)."""
    lengths = torch.tensor([len(one) for one in series])
    values = torch.zeros(len(series), max(1, int(lengths.max())), series[0].shape[1], dtype=dtype)
    for row, one in zip(values, series, strict=True):
        row[: len(one)] = torch.tensor(one, dtype=dtype)
    return values, lengths
