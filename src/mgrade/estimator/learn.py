"""Training of the estimators: whole epochs, a warm-up and a cosine, and the weights with the best validation loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mgrade.nn import Model
from mgrade.train import TrainingStep, cosine
from mgrade.train.lengths import alike

Batch = tuple[Tensor, ...]
"""Values (cases, time, channels), lengths (cases), and what else the loss needs."""
Loss = Callable[..., tuple[Tensor, Tensor]]
"""loss(model, *batch) -> a sum and its divisor."""
# Cases are sorted by length within this many batches.
MIXED = 8
# The most updates of a training: the rates of all of them are computed in advance.
MOST_STEPS = 10**7
WARMUP = 0.1
DECAY = 0.1


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The length and the speed of a training."""

    epochs: int
    batch: int
    rate: float
    patience: int
    verbose: int = 0


@dataclass(frozen=True)
class Epoch:
    """The mean losses of an epoch; `validation` is None without held-out cases."""

    training: float
    validation: float | None


def learn(model: Model, loss: Loss, training: Batch, held_out: Batch | None, plan: Plan) -> tuple[list[Epoch], int]:
    """Trains `model` in place; returns the losses of each epoch, and the epoch whose weights it keeps, from 1.

    With held-out cases, training ends `patience` epochs after the best validation loss and restores its weights;
    without, it ends after all epochs. Random numbers come from PyTorch's global generator.
    """
    device = next(model.parameters()).device
    training = tuple(tensor.to(device) for tensor in training)
    held_out = held_out and tuple(tensor.to(device) for tensor in held_out)
    count = len(training[0])
    size = min(plan.batch, count)
    steps = plan.epochs * math.ceil(count / size)
    if steps > MOST_STEPS:
        most = MOST_STEPS // math.ceil(count / size)
        raise ValueError(f"epochs must be at most {most} for {count} series in batches of {size}, got {plan.epochs}")
    step = TrainingStep(
        model,
        loss,
        rate=plan.rate,
        decay=DECAY,
        schedule=cosine(steps, round(WARMUP * steps)),
        clip=("norm", 1.0),
    )
    epochs: list[Epoch] = []
    best, at, weights = math.inf, plan.epochs, None
    for epoch in range(1, plan.epochs + 1):
        model.train()
        losses = [step(*_rows(training, rows)).clone() for rows in _batches(training[1], size)]
        trained = float(torch.stack(losses).mean())
        if step.failed():
            raise ValueError(
                f"rate must be low enough to train: the loss of epoch {epoch} is not finite at {plan.rate}"
            )
        validated = None if held_out is None else mean_loss(model, loss, held_out, plan.batch)
        epochs.append(Epoch(trained, validated))
        _show(epoch, epochs[-1], plan)
        if validated is None:
            continue
        if validated < best:
            best, at = validated, epoch
            weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        elif epoch - at >= plan.patience:
            break
    if weights is not None:
        model.load_state_dict(weights)
    model.eval()
    return epochs, at if held_out is not None else len(epochs)


@torch.no_grad()
def mean_loss(model: Model, loss: Loss, data: Batch, batch: int) -> float:
    """The mean loss over all cases of `data`, without dropout."""
    model.eval()
    total, weight = 0.0, 0.0
    for rows in torch.arange(len(data[0]), device=data[0].device).split(max(batch, 256)):
        part, of = loss(model, *_rows(data, rows))
        total, weight = total + float(part), weight + float(of)
    return total / weight


def _batches(lengths: Tensor, size: int) -> list[Tensor]:
    """All cases in random batches; on the CPU, of similar lengths, to save padding."""
    order = torch.randperm(len(lengths)).to(lengths.device)
    if lengths.is_cuda:
        return list(order.split(size))
    return alike(order, lengths, size, MIXED)


def _rows(data: Batch, rows: Tensor) -> Batch:
    """Some cases; on the CPU, cut to the longest of them. CUDA graphs need the same shape every time."""
    values, *rest = (tensor[rows] for tensor in data)
    if not values.is_cuda:
        values = values[:, : int(rest[0].max())]
    return values, *rest


def _show(epoch: int, losses: Epoch, plan: Plan) -> None:
    every = 1 if plan.verbose > 1 else 10
    if plan.verbose and (epoch % every == 0 or epoch in (1, plan.epochs)):
        held = "" if losses.validation is None else f", validation loss {losses.validation:.4f}"
        print(f"epoch {epoch} of {plan.epochs}: loss {losses.training:.4f}{held}")
