"""One training step: forward, loss, backward, clipping, optimiser, schedule; on CUDA as a single graph.

A compact model is a long sequence of short kernels, which take longer to launch one by one than to run. A CUDA graph
launches the whole step at once. It needs static shapes: every batch shape has a graph of its own, and shapes beyond
the first `_MOST_GRAPHS` run kernel by kernel, with the same result.
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

# The number of batch shapes to capture: more than the padded lengths of batches `by_length`.
_MOST_GRAPHS = 40


class _Captured(NamedTuple):
    """A captured step for one batch shape: its input tensors, the graph, and the loss that it writes."""

    inputs: tuple[Tensor, ...]
    graph: torch.cuda.CUDAGraph
    result: Tensor


def cosine(steps: int, warmup: int = 0) -> list[float]:
    """Learning-rate factors: a linear rise over `warmup` steps, then half a cosine down to 0 at `steps`."""
    if not 0 <= warmup <= steps:
        raise ValueError(f"warmup must be from 0 to steps = {steps}, got {warmup}")
    rise = [(step + 1) / warmup for step in range(warmup)]
    fall = [0.5 * (1 + math.cos(math.pi * step / (steps - warmup))) for step in range(steps - warmup)]
    return rise + fall


class TrainingStep:
    """A callable that updates `model` on a batch and returns the loss, a tensor that the next call overwrites.

    loss(model, *batch) -> a scalar, or a sum and its divisor. `schedule` holds a factor of the learning rate per step;
    the last one stays in force. `clip` bounds gradients, as ("value", limit) or ("norm", limit). With `int8`, the loss
    is that of weights rounded as in an int8 export. With `average` above 0, the step also maintains a moving average of
    the weights, of which it keeps that share; `averaged` puts it into the model. Once a loss is not finite, weights,
    averages and the schedule stop changing, and `failed()` is true.

    With several `processes`, each passes its own rows, and all take the same step that one would take over all rows.
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
        if self.on_cuda:  # a graph can only change rates on the device
            groups = [{**group, "lr": rate} for group, rate in zip(groups, self.current, strict=True)]
        optimiser: Any = torch.optim.AdamW(groups, fused=True, capturable=self.on_cuda)
        self.optimiser = optimiser
        self.optimiser.found_inf = torch.zeros((), device=device)  # at 1, the optimiser changes nothing
        # the learning rates of the groups, one row per step
        self.table = (torch.tensor(list(schedule), dtype=torch.float64)[:, None] * rates).float().to(device)
        self.count = torch.zeros(1, dtype=torch.int64, device=device)
        self.called = model if self.processes.count == 1 else nn.parallel.DistributedDataParallel(model)
        self.resting = set[nn.Parameter]()
        self._captured = dict[tuple[Any, ...], _Captured]()
        self._stream = (
            torch.cuda.Stream(device) if self.captures else None
        )  # only one: cuBLAS keeps a workspace per stream

    def __call__(self, *batch: Tensor) -> Tensor:
        """Takes one step on `batch`."""
        if not self.captures:
            return self._step(*batch)
        with torch.cuda.device(self.current.device):
            return self._replay(batch)

    def _replay(self, batch: tuple[Tensor, ...]) -> Tensor:
        """Replays the step as a graph, captured at the first batch with the same shapes and modes."""
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
        """Whether a loss was not finite; the weights are those before that step."""
        return bool(self.optimiser.found_inf)

    def updates(self) -> int:
        """How many steps have updated the weights."""
        steps = [int(state["step"]) for state in self.optimiser.state.values() if "step" in state]
        return max(steps, default=0)

    @torch.no_grad()
    def renew(self, parameter: nn.Parameter) -> None:
        """Restarts a parameter's average from its values, after something other than a step changed them."""
        if parameter in self.averages:
            self.averages[parameter].copy_(parameter)

    def rest(self, parameter: nn.Parameter) -> None:
        """Freezes a parameter and its average at its current values."""
        self.resting.add(parameter)
        self.renew(parameter)
        self.recapture()

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Gives the model its averaged weights, if any, inside the block, and restores its own afterwards."""
        exact = {parameter: parameter.detach().clone() for parameter in self.averages}
        _copy(self.averages)
        try:
            yield
        finally:
            _copy(exact)

    def recapture(self) -> None:
        """Discards captured graphs, after a change to something that they hold as a constant."""
        self._captured.clear()

    def state(self) -> dict[str, Tensor]:
        """The optimiser's state by parameter; with the weights, everything that the next step depends on."""
        kept = {"count": self.count}
        for name, parameter in self.model.named_parameters():
            for key, value in self.optimiser.state.get(parameter, {}).items():
                kept[f"{key}.{name}"] = value
            if parameter in self.averages:
                kept[f"average.{name}"] = self.averages[parameter]
        return kept

    @torch.no_grad()
    def load_state(self, state: dict[str, Tensor]) -> None:
        """The inverse of `state`, after any number of steps; refuses the state of a different model."""
        self._check_state(state)
        self.recapture()  # graphs refer to the optimiser's previous state
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
        """Checks shapes, which the optimiser's kernels do not: they would read and write past the end of a tensor."""
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
            parameter.grad = None  # the optimiser skips it
        self._bound_gradients()
        self._set_rates()
        found = self.optimiser.found_inf
        torch.maximum(found, torch.ne(shown * 0, 0), out=found)
        self.optimiser.step()
        torch.clear_autocast_cache()  # an autocast around several steps would keep using stale copies of the weights
        self.model.constrain_()
        self._take_averages()
        self.count.add_(found == 0).clamp_(max=len(self.table) - 1)
        return shown

    def _loss(self, *batch: Tensor) -> tuple[Tensor, Tensor]:
        """The loss to differentiate, and the loss over the rows of all processes."""
        result = self.loss(self.called, *batch)
        if isinstance(result, Tensor):
            return result, result.detach()
        total, weight = result
        if self.processes.count == 1:
            loss = total / _divisor(weight)
            return loss, loss.detach()
        sums = self.processes.add(torch.stack([total.detach().float(), weight.float()]))
        # gradients are averaged over the processes, so each multiplies its part of the loss by their number
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
        """Warms up on a side stream, restores everything, and captures one step without running it."""
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
        # graphs share their memory, since they never run at once
        pool = next((captured.graph.pool() for captured in self._captured.values()), None)
        with torch.cuda.graph(graph, pool, stream):
            result = self._step(*inputs)
        torch.cuda.set_rng_state(random, inputs[0].device)  # dropout draws the same numbers as without a warm-up
        return _Captured(inputs, graph, result)

    def _snapshot(self) -> dict[str, Any]:
        """Copies of everything that a step changes: weights, averages, the optimiser's state and the count."""
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
            for name, value in state.items():  # in place: a graph is about to capture these tensors
                value.copy_(kept.get(name, torch.zeros_like(value)))


def _divisor(weight: Tensor) -> Tensor:
    """The divisor of a sum: 1 if the weight is 0, so that the loss is 0."""
    return torch.where(weight == 0, 1, weight)


@torch.no_grad()
def _copy(values: Mapping[Any, Tensor]) -> None:
    for tensor, value in values.items():
        tensor.copy_(value)
