"""The demo: train a small model on Flip-Flop strings, then stream the test strings through it, bit by bit.

Train on short and long gaps between writing and reading, judge on strings with long gaps only, and check that
one symbol at a time gives the predictions of the whole string at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mgrade.nn import Model, ModelConfig
from mgrade.tasks import flipflop
from mgrade.train import parameter_groups
from mgrade.train.result import state_bytes

LENGTH = 512
SPARSE = 0.98  # ignored pairs in the test strings: about 100 symbols between a bit and its recall
MIXED = (0.8, SPARSE)


@dataclass(frozen=True)
class DemoResult:
    """What the demo found."""

    recall: float
    streamed_equal: bool
    parameter_bytes: int
    state_bytes: int
    train_seconds: float
    step_microseconds: float


def demo_config() -> ModelConfig:
    """One mGRADE layer of 32 channels with a single tap over two delays, as in the paper's Flip-Flop model."""
    return ModelConfig.mgrade(
        inputs=len(flipflop.SYMBOLS),
        outputs=len(flipflop.SYMBOLS),
        tokens=True,
        dim=32,
        depth=1,
        taps=1,
        max_delay=2,
        gate_bias="closed",
        norm="none",
    )


def run(
    *,
    steps: int = 1000,
    batch: int = 32,
    tests: int = 500,
    seed: int = 0,
    progress: Callable[[int, float], None],
) -> DemoResult:
    """Trains for `steps` batches, calling `progress(step, loss)` after each, and evaluates `tests` strings."""
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    torch.manual_seed(seed)
    model = Model(demo_config())
    begin = time.perf_counter()
    _train(model, steps, batch, seed, progress)
    seconds = time.perf_counter() - begin
    strings = flipflop.strings(tests, LENGTH, ignore=SPARSE, generator=torch.Generator().manual_seed(seed + 1))
    model.eval()
    with torch.no_grad():
        whole, _ = model(strings[:, :-1])
        begin = time.perf_counter()
        streamed = _stream(model, strings[:, :-1])
        per_step = (time.perf_counter() - begin) / (LENGTH - 1)
    return DemoResult(
        recall=flipflop.recall(streamed, strings),
        streamed_equal=torch.equal(streamed.argmax(-1), whole.argmax(-1)),
        parameter_bytes=sum(p.numel() * p.element_size() for p in model.parameters()),
        state_bytes=state_bytes(model),
        train_seconds=seconds,
        step_microseconds=1e6 * per_step,
    )


def _train(model: Model, steps: int, batch: int, seed: int, progress: Callable[[int, float], None]) -> None:
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(parameter_groups(model, rate=8e-3, decay=0.01))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step in range(steps):
        parts = [flipflop.strings(batch // len(MIXED), LENGTH, ignore=ignore, generator=generator) for ignore in MIXED]
        strings = torch.cat(parts)
        logits, _ = model(strings[:, :-1])
        reads = flipflop.reads(strings)
        loss = F.cross_entropy(logits[reads], strings[:, 1:][reads])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        model.constrain_()
        progress(step + 1, float(loss.detach()))


def _stream(model: Model, tokens: Tensor) -> Tensor:
    """tokens (count, time) one step at a time -> logits (count, time, symbols)."""
    state, outputs = model.initial_state(tokens.shape[0]), []
    for token in tokens.unbind(1):
        y, state = model.step(token, state)
        outputs.append(y)
    return torch.stack(outputs, 1)
