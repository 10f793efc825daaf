"""A kernel that copies as much as it is told, for the test of the guard."""

import triton
import triton.language as tl


@triton.jit
def copy(x, y, reads, writes, BLOCK: tl.constexpr):
    """y[:writes] = x[:reads], with zeros after."""
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < reads, other=0.0), mask=at < writes)
