"""Large results on a CPU take over the memory of earlier ones that nobody holds any more.

Pages fresh from the system cost more time than the pass that fills them, and the system's allocator gives large blocks
back to it whenever they are freed: once per layer and step. Here they are kept, up to a limit.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Sequence

import torch
from torch import Tensor

# Smaller blocks stay with the system's allocator, which keeps them itself.
LEAST = 1 << 20
# Bytes that are kept at most, in use or not; what is asked for beyond comes from the system.
LIMIT = 1 << 29


class Pool:
    """Blocks of memory, each free as soon as it is referred to by the pool alone."""

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
        """A block of `size` bytes that nobody else holds; those that were shared or resized leave the pool."""
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
        """Gives back all that is free."""
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
