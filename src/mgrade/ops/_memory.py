"""Large results on a CPU reuse the memory of earlier results that have been freed.

Faulting in fresh pages takes longer than the pass that fills them, and the system's allocator returns large blocks to
the system on every free: once per layer and step. This pool keeps them, up to a limit.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Sequence

import torch
from torch import Tensor

# Smaller blocks are left to the system's allocator, which caches them itself.
LEAST = 1 << 20
# Most bytes in the pool, in use or free; requests beyond that go to the system.
LIMIT = 1 << 29


class Pool:
    """Blocks of memory, each free once the pool holds the only reference to it."""

    def __init__(self, limit: int = LIMIT):
        self.limit, self.total = limit, 0
        self._blocks: dict[int, list[torch.UntypedStorage]] = {}
        self._lock = threading.Lock()

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """An uninitialised tensor, contiguous, like `torch.empty`."""
        size = math.prod(shape) * dtype.itemsize
        if size < LEAST or size > self.limit:
            return torch.empty(shape, dtype=dtype)
        with self._lock:
            block = self._free(size) or self._new(size)
            if block is None:
                return torch.empty(shape, dtype=dtype)
            return torch.empty(0, dtype=dtype).set_(block, 0, tuple(shape))  # type: ignore[call-overload]

    def _free(self, size: int) -> torch.UntypedStorage | None:
        """A free block of `size` bytes, if any; blocks that were shared or resized are dropped from the pool."""
        blocks = self._blocks.get(size, [])
        for at in reversed(range(len(blocks))):
            if _held(blocks, at):
                continue
            if blocks[at].nbytes() == size and not blocks[at].is_shared():
                return blocks[at]
            del blocks[at]
            self.total -= size
        return None

    def _new(self, size: int) -> torch.UntypedStorage | None:
        if self.total + size > self.limit:
            self._drop()
        if self.total + size > self.limit:
            return None
        block = torch.UntypedStorage(size)
        self._blocks.setdefault(size, []).append(block)
        self.total += size
        return block

    def _drop(self) -> None:
        """Returns all free blocks to the system."""
        for size, blocks in self._blocks.items():
            held = [blocks[at] for at in range(len(blocks)) if _held(blocks, at)]
            self.total -= size * (len(blocks) - len(held))
            blocks[:] = held


def _held(blocks: list[torch.UntypedStorage], at: int) -> bool:
    """Whether anything but its list refers to a block: a tensor, or the storage object itself."""
    if torch._C._storage_Use_Count(blocks[at]._cdata) > 1:
        return True
    return sys.getrefcount(blocks[at]) > 2  # the list's, and that of the argument


empty = Pool().empty
