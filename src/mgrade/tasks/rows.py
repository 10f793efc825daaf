"""Images read row after row: how many learned delays lead to a pixel straight above."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

NEAR = 2
"""Steps beside a whole row that still count as there."""


def at_rows(delays: npt.ArrayLike, row: int) -> float:
    """Share of delays that are whole rows of `row` steps, one row or more."""
    steps = np.asarray(delays, dtype=np.float64)
    rows = np.round(steps / row)
    near = (np.abs(steps - row * rows) <= NEAR) & (rows > 0)
    return float(near.sum() / max(1, near.size))


def at_rows_by_chance(longest: int, row: int) -> float:
    """The same of delays spread evenly from 0 to the longest."""
    near = sum(min(longest, whole + NEAR) - (whole - NEAR) for whole in range(row, longest + NEAR, row))
    return near / longest if longest else 0.0
