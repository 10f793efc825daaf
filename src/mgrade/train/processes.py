"""Several processes that train one model: which rows each takes, and how they agree.

`torchrun --nproc-per-node N -m mgrade train …` starts them. Without it there is one process, and all this is free.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import NoReturn

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Processes:
    """This process among all: `rank` of `count`."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def share(self, rows: int) -> slice:
        """The rows of `rows` that this process takes; shares differ by at most one row."""
        return slice(self.rank * rows // self.count, (self.rank + 1) * rows // self.count)

    def add(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if self.count > 1:
            dist.all_reduce(tensor)
        return tensor

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether `flag` is true in any process."""
        if self.count == 1:
            return flag
        return bool(self.add(torch.tensor(float(flag), device=device)) > 0)

    def wait(self) -> None:
        """Waits until all processes get here."""
        if self.count > 1:
            dist.barrier()


def check_device(device: str) -> str:
    """The kind of a device; refused if it is not available."""
    kind = torch.device(device).type
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError("device must be cpu: PyTorch sees no CUDA device, got cuda")
    return kind


def join(device: str) -> tuple[Processes, torch.device]:
    """Joins the other processes if torchrun started this one; also returns the device of this process."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    kind = check_device(device)
    if count == 1:
        return Processes(), torch.device(device)
    own = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if kind == "cuda" else torch.device("cpu")
    if own.type == "cuda":
        torch.cuda.set_device(own)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if own.type == "cuda" else "gloo")
    return Processes(dist.get_rank(), dist.get_world_size()), own


def leave() -> None:
    """Undoes `join`."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def end(status: int) -> NoReturn:
    """Ends one of several processes without shutting down its interpreter.

    DistributedDataParallel keeps gloo's threads alive past `leave`; one that releases a tensor while the interpreter
    shuts down occasionally aborts the process, after all work is done.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
