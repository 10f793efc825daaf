"""Images read row after row: how many learned delays point to a pixel straight above."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

NEAR = 2
"""Steps off a whole row that still count as on it."""


def at_rows(delays: npt.ArrayLike, row: int) -> float:
    """The share of delays that are a whole number of rows, at least one, of `row` steps."""
    steps = np.asarray(delays, dtype=np.float64)
    rows = np.round(steps / row)
    near = (np.abs(steps - row * rows) <= NEAR) & (rows > 0)
    return float(near.sum() / max(1, near.size))


def at_rows_by_chance(longest: int, row: int) -> float:
    """The same share for delays spread evenly from 0 to the longest."""
    near = sum(min(longest, whole + NEAR) - (whole - NEAR) for whole in range(row, longest + NEAR, row))
    return near / longest if longest else 0.0
