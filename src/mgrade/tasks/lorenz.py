"""Lorenz's chaotic system: predict the next value of one coordinate, seen with noise.

The set follows Ostrow et al. (2024): every trajectory starts on the same ray from the origin, loses its transient, and
gets noise. A model that predicts well has reconstructed, in its hidden state, the two coordinates that it never sees;
`overlap` measures how faithfully.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from mgrade._checks import is_number
from mgrade.nn import MinGRU, Model
from mgrade.tasks.task import Batch, Drawn, Part, generator, whole

SIGMA, RHO, BETA = 10.0, 28.0, 2.667
# Trajectories start at this point times a random number from 0 to SPREAD.
START, SPREAD = (-9.7869288, -15.03852, 20.533978), 5.0
# Terms of the Taylor series, and its longest step: exact to about 1e-11 over a time unit.
ORDER, LONGEST_STEP = 18, 0.01
# The longest time between two steps of a trajectory, far beyond the memory of the system.
LONGEST_DT = 100.0

NEIGHBOURS = 20
SHOWN = 4
CHOICES = {"noise_kind": ("absolute", "relative"), "objective": ("mase", "mse")}


def trajectories(count: int, length: int, source: torch.Generator, *, dt: float = 0.01, burn_in: int = 200) -> Tensor:
    """`count` random noiseless trajectories (count, length, 3), float64, in steps of `dt` after `burn_in` steps.

    Computed on the generator's device.
    """
    scale = SPREAD * torch.rand(count, dtype=torch.float64, generator=source, device=source.device)
    state = torch.tensor(START, dtype=torch.float64, device=source.device)[:, None] * scale
    substeps = math.ceil(dt / LONGEST_STEP)
    states = []
    for step in range(burn_in + length):
        if step > 0:
            for _ in range(substeps):
                state = advance(state, dt / substeps)
        if step >= burn_in:
            states.append(state)
    return torch.stack(states).permute(2, 0, 1).contiguous()


def advance(state: Tensor, step: float) -> Tensor:
    """state (3, count) after `step` time units, by the Taylor series, with each term computed from those before."""
    terms = state.new_empty(ORDER + 1, *state.shape)
    terms[0] = state
    for n in range(ORDER):
        x, y, z = terms[n]
        xy, xz = (terms[: n + 1, :1] * terms[: n + 1, 1:].flip(0)).sum(0)
        torch.stack([SIGMA * (y - x), RHO * x - y - xz, xy - BETA * z], out=terms[n + 1])
        terms[n + 1] *= step / (n + 1)
    return terms.sum(0)


@dataclass(frozen=True, kw_only=True)
class Lorenz(Drawn):
    """Next-step prediction of the first coordinate; also judged on the other two, which training never shows.

    The figure is MASE: the sum of absolute errors, divided by that of the naive prediction that the value does not
    change. Both sums run over all trajectories and steps of a set.
    """

    metric: ClassVar[str] = "mase_observed"
    higher_is_better: ClassVar[bool] = False
    test_prefix: ClassVar[str] = ""
    endless: ClassVar[bool] = False

    trajectories: int = 2000
    """Training examples."""
    validation: int = 2000
    test: int = 2000
    length: int = 500
    """Steps of a trajectory; all but the first are predicted."""
    noise: float = 0.05
    """Standard deviation of the noise on every coordinate."""
    noise_kind: str = "absolute"
    """Noise in the units of the system (`absolute`, as in Ostrow et al.), or as a share of each coordinate's standard
    deviation over the set (`relative`: one reading of the paper's "5 %")."""
    dt: float = 0.01
    """Time units between steps."""
    burn_in: int = 200
    """Steps dropped from the start of a trajectory."""
    objective: str = "mase"
    """The training loss: `mase`, or the mean squared error (`mse`, as in Ostrow et al.)."""
    overlap_trajectories: int = 10
    """Test trajectories on which hidden states are compared with true ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(trajectories=self.trajectories, overlap_trajectories=self.overlap_trajectories)
        whole(2, length=self.length)
        whole(0, burn_in=self.burn_in)
        if not is_number(self.noise) or self.noise < 0:
            raise ValueError(f"noise must be a number of at least 0, got {self.noise!r}")
        if not is_number(self.dt) or not 0 < self.dt <= LONGEST_DT:
            raise ValueError(f"dt must be above 0 and at most {LONGEST_DT}, got {self.dt!r}")
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")
        for name, count in (("validation", self.validation), ("test", self.test)):
            if self.overlap_trajectories > count:
                raise ValueError(
                    f"overlap_trajectories must be at most {name} = {count}, got {self.overlap_trajectories}"
                )
        if self.overlap_trajectories * (self.length - 1) < NEIGHBOURS:
            raise ValueError(
                f"overlap_trajectories must give at least {NEIGHBOURS} points of {self.length - 1} per trajectory,"
                f" got {self.overlap_trajectories}"
            )

    def model_fields(self) -> dict[str, Any]:
        """One value in, one out, at every step."""
        return {"inputs": 1, "outputs": 1, "tokens": False, "readout": "every"}

    @property
    def sizes(self) -> dict[str, int]:
        """Examples of each split."""
        return {"train": self.trajectories, **super().sizes}

    def draw(self, split: str, count: int, source: torch.Generator) -> Batch:
        """Observed values and the next ones, both (count, length - 1, 1), and the noisy states (count, length, 3)."""
        states = trajectories(count, self.length, source, dt=self.dt, burn_in=self.burn_in)
        scale = self.noise * (states.std((0, 1), correction=0) if self.noise_kind == "relative" else 1)
        noise = torch.randn(states.shape, dtype=states.dtype, generator=source, device=source.device)
        full = (states + scale * noise).float()
        return full[:, :-1, :1].contiguous(), full[:, 1:, :1].contiguous(), full

    def source(self, split: str, seed: int) -> torch.Generator:
        """The random source of a fixed set."""
        return generator(seed, "lorenz", split)

    @property
    def numbers(self) -> int:
        """Three coordinates at every step."""
        return 3 * self.length

    def loss(self, model: Model, *batch: Tensor, weight: Tensor | None = None) -> Part:
        """MASE, or the squared error per value; there are no classes, so `weight` is unused."""
        x, target, _ = batch
        prediction = model(x)[0].float()
        if self.objective == "mase":
            return (target - prediction).abs().sum(), (target - x).abs().sum()
        error = (target - prediction).square().sum()
        return error, error.new_full((), target.numel())

    def judge(self, model: Model, *batch: Tensor) -> dict[str, Part]:
        """MASE of each coordinate, given as the input; the first is the observed one.

        `mase_unobserved` divides the summed errors of both unobserved coordinates by the summed naive ones.
        """
        full = batch[-1]
        values = full.permute(2, 0, 1).flatten(0, 1)[..., None]
        x, target = values[:, :-1].contiguous(), values[:, 1:]
        error = (target - model(x)[0].float()).abs().reshape(3, -1).sum(1)
        naive = (target - x).abs().reshape(3, -1).sum(1)
        return {
            "mase_observed": (error[0], naive[0]),
            "mase_unobserved": (error[1:].sum(), naive[1:].sum()),
            "mase_y": (error[1], naive[1]),
            "mase_z": (error[2], naive[2]),
        }

    def watch(self, model: Model, *examples: Tensor) -> dict[str, float]:
        """`neighbour_overlap` of hidden and true states over the first trajectories; for minGRU layers only."""
        if model.config.recurrence != "mingru":
            return {}
        x, _, full = (part[: self.overlap_trajectories] for part in examples)
        true, hidden = full[:, :-1], hidden_states(model, x)
        return {"neighbour_overlap": overlap(true.flatten(0, 1), hidden.flatten(0, 1), NEIGHBOURS)}

    @torch.no_grad()
    def examine(self, model: Model, seed: int, device: torch.device) -> dict[str, Any]:
        """True states along the first test trajectories and, for minGRU layers, principal components of hidden ones."""
        x, _, full = (part[: self.overlap_trajectories] for part in self.examples("test", seed, device))
        true = full[:, :-1]
        found: dict[str, Any] = {"trajectories": _rounded(true[:SHOWN], 3)}
        if model.config.recurrence != "mingru":
            return found
        hidden = hidden_states(model, x)
        components, explained = principal_components(hidden.flatten(0, 1))
        shown = components.unflatten(0, hidden.shape[:2])[:SHOWN]
        return found | {
            "principal_components": _rounded(shown, 5),
            "explained_variance": _rounded(explained, 5),
        }


@torch.no_grad()
def hidden_states(model: Model, x: Tensor) -> Tensor:
    """The recurrent state of the last layer after every step of x (batch, time, inputs): (batch, time, hidden)."""
    recurrence = model.layers[-1].recurrence
    if not isinstance(recurrence, MinGRU):
        raise ValueError(f"recurrence must be mingru to read hidden states, got {model.config.recurrence!r}")
    seen: list[Tensor] = []
    hook = recurrence.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        model(x)
    finally:
        hook.remove()
    return recurrence(seen[0])[0]


def overlap(true: Tensor, embedded: Tensor, k: int = NEIGHBOURS, chunk: int = 512) -> float:
    """The share of a point's k nearest neighbours that both spaces have in common, averaged over all points.

    true (points, 3), embedded (points, hidden). A point is its own first neighbour, so the share is at least 1 / k.
    """
    points = true.shape[0]
    if embedded.shape[0] != points:
        raise ValueError(f"embedded must have as many points as true, {points}, got {embedded.shape[0]}")
    if not 1 <= k <= points:
        raise ValueError(f"k must be from 1 to the number of points, {points}, got {k}")
    common = torch.zeros((), dtype=torch.int64, device=true.device)
    for rows in torch.arange(points, device=true.device).split(chunk):
        first, second = (_nearest(space.double(), rows, k) for space in (true, embedded))
        common += (first[:, :, None] == second[:, None, :]).sum()
    return float(common) / (points * k)


def _nearest(points: Tensor, rows: Tensor, k: int) -> Tensor:
    """Indices (rows, k) of the points nearest to those in `rows`, themselves included."""
    distance = torch.cdist(points[rows], points, compute_mode="donot_use_mm_for_euclid_dist")
    distance.scatter_(1, rows[:, None], -1.0)
    return distance.topk(k, largest=False).indices


def principal_components(points: Tensor, count: int = 3) -> tuple[Tensor, Tensor]:
    """points (points, hidden) along their first principal components (points, count), and the shares of variance."""
    centred = points.double() - points.double().mean(0)
    variance, axes = torch.linalg.eigh(centred.T @ centred)
    variance, axes = variance.flip(0)[:count], axes.flip(1)[:, :count]
    # fixes the sign of each axis: its largest entry is positive
    axes = axes * axes.gather(0, axes.abs().argmax(0)[None]).sign()
    return centred @ axes, variance / centred.square().sum().clamp_min(torch.finfo(torch.float64).tiny)


def _rounded(tensor: Tensor, decimals: int) -> Any:
    return tensor.double().round(decimals=decimals).tolist()
