"""A model's figures over a split: every example counts, including those in the last, smaller batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

from mgrade.nn import Model
from mgrade.tasks import Batch, Task
from mgrade.train.lengths import width
from mgrade.train.processes import Processes

# Limits of a batch without gradients on a GPU: activations of a layer (a few hundred MB), and rows. Smaller batches
# would leave the GPU waiting.
_ACTIVATIONS, _ROWS = 2**27, 4096


class Interrupted(Exception):  # noqa: N818
    """An evaluation was asked to stop before its end."""


@contextlib.contextmanager
def interruptible(model: Model, stop: Callable[[], bool]) -> Iterator[None]:
    """Makes every pass of `model` ask `stop` first, and raise `Interrupted` if it is true."""

    def ask(*given: object) -> None:
        if stop():
            raise Interrupted

    hook = model.register_forward_pre_hook(ask)
    try:
        yield
    finally:
        hook.remove()


@contextlib.contextmanager
def precision(name: str, device: torch.device) -> Iterator[None]:
    """Exact float32, TF32 matrix products, or bfloat16 activations; the latter two on CUDA only."""
    before = torch.get_float32_matmul_precision()
    on_cuda = device.type == "cuda"
    torch.set_float32_matmul_precision("high" if on_cuda and name != "float32" else "highest")
    half = on_cuda and name == "bfloat16"
    # cached casts of weights would become stale when the weights change
    cast = torch.autocast("cuda", torch.bfloat16, cache_enabled=False) if half else contextlib.nullcontext()
    try:
        with cast:
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def rows_at_once(batch: int, steps: int, dim: int) -> int:
    """How many rows of `steps` steps to evaluate at once on a GPU, with `dim` channels and training batch `batch`."""
    return max(batch, min(_ROWS, _ACTIVATIONS // max(1, steps * dim)))


@torch.no_grad()
def evaluate(model: Model, task: Task, examples: Batch, batch: int, processes: Processes) -> dict[str, float]:
    """The task's figures of `model` over `examples`, in batches of `batch` or more, shared among the processes."""
    training = model.training
    if examples[0].is_cuda:
        steps = examples[0].shape[1:].numel() // (1 if model.config.tokens else model.config.inputs)
        batch = rows_at_once(batch, steps, model.config.dim)
    model.eval()
    sums: dict[str, torch.Tensor] = {}
    try:
        for part in _parts(task, examples, batch):
            rows = processes.share(len(part[0]))
            for name, (total, weight) in task.judge(model, *(tensor[rows] for tensor in part)).items():
                pair = torch.stack([total.double(), weight.double()])
                sums[name] = sums[name] + pair if name in sums else pair
        figures = task.watch(model, *examples) if isinstance(model, Model) else {}  # a Program shows no hidden states
    finally:
        model.train(training)
    for name, pair in sums.items():
        total, weight = processes.add(pair).tolist()
        figures[name] = total / weight if weight else float("nan")
    return figures


def _parts(task: Task, examples: Batch, batch: int) -> Iterator[Batch]:
    """The examples in batches; those of unequal length sorted, and each batch cut to its longest example."""
    lengths = task.lengths(*examples)
    if lengths is None:
        yield from zip(*(tensor.split(batch) for tensor in examples), strict=True)
        return
    longest = int(lengths.max())
    for rows in lengths.argsort().split(batch):
        steps = width(int(lengths[rows[-1]]), longest)
        yield tuple(tensor[rows] for tensor in task.cut(steps, *examples))
