"""One training step: forward, loss, backward, clipping, optimiser, schedule; on CUDA as a single graph.

A compact model is a long row of short kernels, and launching them one by one takes longer than running them. A CUDA
graph launches the whole step at once. It needs static shapes: every shape of a batch has a graph of its own, and what
comes after the first so many shapes runs launch by launch, with the same result.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mgrade.nn import Model
from mgrade.train.optimiser import parameter_groups
from mgrade.train.processes import Processes
from mgrade.train.rounding import rounded_weights

# Batches of so many shapes are captured: more than there are lengths of batches `by_length`.
_MOST_GRAPHS = 40


class _Captured(NamedTuple):
    """A step on batches of one shape: what it reads, the graph, and the loss it leaves."""

    inputs: tuple[Tensor, ...]
    graph: torch.cuda.CUDAGraph
    result: Tensor


def cosine(steps: int, warmup: int = 0) -> list[float]:
    """Learning-rate factors: a linear rise over `warmup` steps, then half a cosine down to 0 at `steps`."""
    if not 0 <= warmup <= steps:
        raise ValueError(f"warmup must lie within 0 and steps = {steps}, got {warmup}")
    rise = [(step + 1) / warmup for step in range(warmup)]
    fall = [0.5 * (1 + math.cos(math.pi * step / (steps - warmup))) for step in range(steps - warmup)]
    return rise + fall


class TrainingStep:
    """Call it with a batch: it updates `model` and returns the loss, as a tensor that the next call overwrites.

    loss(model, *batch) -> a scalar, or a sum and what to divide it by. `schedule` holds a factor of the learning rate
    for every step; after its end the last one stays. `clip` bounds gradients, as ("value", limit) or ("norm", limit).
    With `int8` the loss is that of weights rounded as an int8 export rounds them. With `average`, a moving average of
    the weights is kept as well, of which each step leaves that share: `averaged` puts it into the model.
    From the first loss on that is not finite nothing moves any more, neither weights nor averages nor the schedule:
    `failed()` says so.

    With several `processes` each gives its own rows, and all take the step that one would take over all rows.
    """

    def __init__(
        self,
        model: Model,
        loss: Callable[..., Tensor | tuple[Tensor, Tensor]],
        *,
        rate: float,
        decay: float = 0.0,
        recurrence_rate: float = 1.0,
        recurrence_decay: float = 0.0,
        schedule: Sequence[float] = (1.0,),
        clip: tuple[str, float] | None = None,
        capture: bool = True,
        int8: bool = False,
        average: float = 0.0,
        processes: Processes | None = None,
    ):
        if clip is not None and (clip[0] not in ("value", "norm") or not clip[1] > 0):
            raise ValueError(f"clip must be ('value', limit) or ('norm', limit) with a limit above 0, got {clip!r}")
        self.model, self.loss, self.clip, self.int8 = model, loss, clip, int8
        self.processes = processes or Processes()
        self.parameters = list(model.parameters())
        self.average = average
        self.averages = {parameter: parameter.detach().clone() for parameter in self.parameters if average}
        device = self.parameters[0].device
        self.on_cuda = device.type == "cuda"
        self.captures = capture and self.on_cuda and self.processes.count == 1
        groups = parameter_groups(
            model, rate, decay, recurrence_rate=recurrence_rate, recurrence_decay=recurrence_decay
        )
        rates = torch.tensor([group["lr"] for group in groups])
        self.current = rates.to(device)
        if self.on_cuda:  # rates that a graph can change must live on the device
            groups = [{**group, "lr": rate} for group, rate in zip(groups, self.current, strict=True)]
        optimiser: Any = torch.optim.AdamW(groups, fused=True, capturable=self.on_cuda)
        self.optimiser = optimiser
        self.optimiser.found_inf = torch.zeros((), device=device)  # where it is 1, the optimiser leaves all as it is
        # the rates of every step, one row each
        self.table = (torch.tensor(list(schedule), dtype=torch.float64)[:, None] * rates).float().to(device)
        self.count = torch.zeros(1, dtype=torch.int64, device=device)
        self.called = model if self.processes.count == 1 else nn.parallel.DistributedDataParallel(model)
        self.resting = set[nn.Parameter]()
        self._captured = dict[tuple[Any, ...], _Captured]()
        self._stream = torch.cuda.Stream(device) if self.captures else None  # one: cuBLAS keeps a workspace for each

    def __call__(self, *batch: Tensor) -> Tensor:
        """One step on `batch`."""
        if not self.captures:
            return self._step(*batch)
        with torch.cuda.device(self.current.device):
            return self._replay(batch)

    def _replay(self, batch: tuple[Tensor, ...]) -> Tensor:
        """The step as a graph, recorded before the first batch of its shapes and in its mode."""
        key = (self.model.training, torch.is_autocast_enabled("cuda"), *((b.shape, b.dtype) for b in batch))
        if key not in self._captured:
            if len(self._captured) == _MOST_GRAPHS:
                return self._step(*batch)
            self._captured[key] = self._capture(batch)
        captured = self._captured[key]
        for static, given in zip(captured.inputs, batch, strict=True):
            static.copy_(given)
        captured.graph.replay()
        torch.clear_autocast_cache()
        return captured.result

    def failed(self) -> bool:
        """Whether a loss was not finite; the weights are those before it."""
        return bool(self.optimiser.found_inf)

    def updates(self) -> int:
        """How many steps have updated the weights."""
        steps = [int(state["step"]) for state in self.optimiser.state.values() if "step" in state]
        return max(steps, default=0)

    @torch.no_grad()
    def renew(self, parameter: nn.Parameter) -> None:
        """Begins a parameter's average anew, where something else than a step has set its values."""
        if parameter in self.averages:
            self.averages[parameter].copy_(parameter)

    def rest(self, parameter: nn.Parameter) -> None:
        """Leaves a parameter as it is from now on, and in the average."""
        self.resting.add(parameter)
        self.renew(parameter)
        self.recapture()

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside, the model has the averaged weights, if there are any; afterwards, its own."""
        exact = {parameter: parameter.detach().clone() for parameter in self.averages}
        _copy(self.averages)
        try:
            yield
        finally:
            _copy(exact)

    def recapture(self) -> None:
        """Makes the next calls record the step anew, after something that a graph holds as a constant changed."""
        self._captured.clear()

    def state(self) -> dict[str, Tensor]:
        """What the optimiser keeps, by parameter: with the weights, all that the next step depends on."""
        kept = {"count": self.count}
        for name, parameter in self.model.named_parameters():
            for key, value in self.optimiser.state.get(parameter, {}).items():
                kept[f"{key}.{name}"] = value
            if parameter in self.averages:
                kept[f"average.{name}"] = self.averages[parameter]
        return kept

    @torch.no_grad()
    def load_state(self, state: dict[str, Tensor]) -> None:
        """The reverse of `state`, before or after any number of steps; that of another model is refused."""
        self._check_state(state)
        self.recapture()  # graphs hold what the optimiser kept before
        self.count.copy_(state["count"])
        self.optimiser.found_inf.zero_()
        for name, parameter in self.model.named_parameters():
            if parameter in self.averages:
                self.averages[parameter].copy_(state[f"average.{name}"])
            kept = self.optimiser.state[parameter]
            for key in ("step", "exp_avg", "exp_avg_sq"):
                given = state.get(f"{key}.{name}")
                if given is None:
                    kept.pop(key, None)
                elif key in kept:
                    kept[key].copy_(given)
                else:
                    kept[key] = given.to(parameter.device, copy=True)

    def _check_state(self, state: dict[str, Tensor]) -> None:
        """The optimiser's kernels believe what they are given, and would read and write beyond a tensor's end."""
        if state["count"].shape != (1,) or not 0 <= int(state["count"]) < len(self.table):
            raise ValueError(f"count must be from 0 to {len(self.table) - 1}, got {state['count'].tolist()}")
        for name, parameter in self.model.named_parameters():
            shapes = {"step": torch.Size(), "exp_avg": parameter.shape, "exp_avg_sq": parameter.shape}
            there = {key for key in shapes if f"{key}.{name}" in state}
            if there and there != set(shapes):
                raise ValueError(f"{', '.join(sorted(set(shapes) - there))} of {name} is missing")
            if parameter in self.averages:
                shapes["average"] = parameter.shape
                there.add("average")
            for key in there:
                given = state[f"{key}.{name}"]
                if given.shape != shapes[key] or not given.is_floating_point():
                    raise ValueError(f"{key}.{name} must have shape {tuple(shapes[key])}, got {tuple(given.shape)}")

    def _step(self, *batch: Tensor) -> Tensor:
        self.optimiser.zero_grad(set_to_none=True)
        with rounded_weights(self.model, self.int8):
            loss, shown = self._loss(*batch)
            loss.backward()
        for parameter in self.resting:
            parameter.grad = None  # which the optimiser passes over
        self._bound_gradients()
        self._set_rates()
        found = self.optimiser.found_inf
        torch.maximum(found, torch.ne(shown * 0, 0), out=found)
        self.optimiser.step()
        torch.clear_autocast_cache()  # around several steps, autocast would go on with its copies of these weights
        self.model.constrain_()
        self._take_averages()
        self.count.add_(found == 0).clamp_(max=len(self.table) - 1)
        return shown

    def _loss(self, *batch: Tensor) -> tuple[Tensor, Tensor]:
        """What to differentiate, and the loss over the rows of all processes."""
        result = self.loss(self.called, *batch)
        if isinstance(result, Tensor):
            return result, result.detach()
        total, weight = result
        if self.processes.count == 1:
            loss = total / _divisor(weight)
            return loss, loss.detach()
        sums = self.processes.add(torch.stack([total.detach().float(), weight.float()]))
        # gradients are averaged over the processes, so each takes its part of the loss that many times
        return total * (self.processes.count / _divisor(sums[1])), sums[0] / _divisor(sums[1])

    def _bound_gradients(self) -> None:
        if self.clip is None:
            return
        kind, limit = self.clip
        bound = torch.nn.utils.clip_grad_value_ if kind == "value" else torch.nn.utils.clip_grad_norm_
        bound(self.parameters, limit, foreach=True)

    @torch.no_grad()
    def _take_averages(self) -> None:
        if not self.averages:
            return
        averages = list(self.averages.values())
        towards = torch._foreach_sub(list(self.averages), averages)
        torch._foreach_mul_(towards, (1 - self.average) * (1 - self.optimiser.found_inf))
        torch._foreach_add_(averages, towards)

    def _set_rates(self) -> None:
        torch.index_select(self.table, 0, self.count, out=self.current[None])
        if not self.on_cuda:
            for group, rate in zip(self.optimiser.param_groups, self.current.tolist(), strict=True):
                group["lr"] = rate

    def _capture(self, batch: tuple[Tensor, ...]) -> _Captured:
        """Warms up on a side stream, puts everything back as it was, and records one step without running it."""
        inputs = tuple(b.clone() for b in batch)
        before, random = self._snapshot(), torch.cuda.get_rng_state(inputs[0].device)
        stream = self._stream
        assert stream is not None
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._step(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        self._restore(before)
        graph = torch.cuda.CUDAGraph()
        # graphs share their memory, since no two run at once
        pool = next((captured.graph.pool() for captured in self._captured.values()), None)
        with torch.cuda.graph(graph, pool, stream):
            result = self._step(*inputs)
        torch.cuda.set_rng_state(random, inputs[0].device)  # dropout draws what it would have without a warm-up
        return _Captured(inputs, graph, result)

    def _snapshot(self) -> dict[str, Any]:
        """Copies of all that a step changes: weights, what the optimiser keeps about them, and the count."""
        return {
            "weights": {parameter: parameter.detach().clone() for parameter in self.parameters},
            "averages": {average: average.clone() for average in self.averages.values()},
            "moments": {
                parameter: {name: value.clone() for name, value in state.items()}
                for parameter, state in self.optimiser.state.items()
            },
            "count": self.count.clone(),
            "found_inf": self.optimiser.found_inf.clone(),
        }

    @torch.no_grad()
    def _restore(self, before: dict[str, Any]) -> None:
        _copy(before["weights"] | before["averages"])
        self.count.copy_(before["count"])
        self.optimiser.found_inf.copy_(before["found_inf"])
        for learned, state in self.optimiser.state.items():
            kept = before["moments"].get(learned, {})
            for name, value in state.items():  # in place: a graph is about to be recorded over these tensors
                value.copy_(kept.get(name, torch.zeros_like(value)))


def _divisor(weight: Tensor) -> Tensor:
    """What a sum is divided by: where nothing counts, the loss is 0."""
    return torch.where(weight == 0, 1, weight)


@torch.no_grad()
def _copy(values: Mapping[Any, Tensor]) -> None:
    for tensor, value in values.items():
        tensor.copy_(value)
