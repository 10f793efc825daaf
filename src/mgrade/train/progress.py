"""The progress of a run: shown to people, and logged for programs."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from mgrade._files import replace


class Reporter:
    """Receives the progress of a run. This one shows nothing; subclasses override what they show."""

    def start(self, title: str, step: int, steps: int) -> None:
        """A run starts or resumes at `step` of `steps`."""

    def moved(self, step: int, loss: float, rate: float) -> None:
        """`step` steps are done, at `rate` steps per second; `loss` is the mean since the last report."""

    def evaluated(self, point: dict[str, Any]) -> None:
        """The model was evaluated on the validation set, with a new point of the curve."""

    def say(self, line: str) -> None:
        """Shows a message."""

    def stop(self) -> None:
        """The run has ended or paused."""


class Bar(Reporter):
    """A progress bar, for a terminal."""

    def __init__(self, console: Console):
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}  {task.fields[facts]}"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=console, transient=True)
        self._figures = ""

    def start(self, title: str, step: int, steps: int) -> None:
        self._figures = ""
        self._task = self._bar.add_task(title, total=steps, completed=step, facts="")
        self._bar.start()

    def moved(self, step: int, loss: float, rate: float) -> None:
        self._bar.update(self._task, completed=step, facts=f"loss {loss:.4f}{self._figures}  {rate:.0f} steps/s")

    def evaluated(self, point: dict[str, Any]) -> None:
        self._figures = "".join(f"  {name} {value:.4f}" for name, value in point["validation"].items())

    def say(self, line: str) -> None:
        self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def stop(self) -> None:
        self._bar.stop()
        self._bar.remove_task(self._task)


class Lines(Reporter):
    """Plain lines: a few per minute, and one per evaluation."""

    def __init__(self, every: float = 15.0) -> None:
        self._every, self._next = every, 0.0

    def start(self, title: str, step: int, steps: int) -> None:
        self._steps, self._next = steps, time.monotonic() + self._every
        self.say(f"{title}: " + (f"from step {step} of {steps}" if step else f"{steps} steps"))

    def moved(self, step: int, loss: float, rate: float) -> None:
        if time.monotonic() >= self._next:
            left = (self._steps - step) / rate if rate else 0.0
            self.say(f"step {step}/{self._steps}  loss {loss:.4f}  {rate:.0f} steps/s  {left / 60:.1f} min left")
            self._next = time.monotonic() + self._every

    def evaluated(self, point: dict[str, Any]) -> None:
        figures = "  ".join(f"{name} {value:.4f}" for name, value in point["validation"].items())
        self.say(f"step {point['step']}/{self._steps}  loss {point['loss']:.4f}  validation {figures}")

    def say(self, line: str) -> None:
        print(line, flush=True)


def reporter() -> Reporter:
    """A bar on a terminal, plain lines elsewhere."""
    return Bar(Console(stderr=True)) if sys.stderr.isatty() else Lines()


class Log:
    """The curve of a run as JSON lines in `metrics.jsonl`, and for TensorBoard on request."""

    def __init__(self, folder: Path, points: list[dict[str, Any]], tensorboard: bool):
        self.path = folder / "metrics.jsonl"
        # drops points that a killed process wrote after its last checkpoint: they will be computed again
        replace(self.path, "".join(json.dumps(point) + "\n" for point in points).encode())
        self._board = _board(folder, points[-1]["step"] + 1 if points else 0) if tensorboard else None

    def add(self, point: dict[str, Any]) -> None:
        """Adds the point of an evaluation."""
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(point) + "\n")
        if self._board is not None:
            self._board.add_scalar("train/loss", point["loss"], point["step"])
            for name, value in point["validation"].items():
                self._board.add_scalar(f"validation/{name}", value, point["step"])

    def close(self) -> None:
        """Flushes TensorBoard's buffer."""
        if self._board is not None:
            self._board.close()


def need_tensorboard() -> None:
    """Refuses to start if TensorBoard is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise ValueError("--tensorboard needs the package tensorboard: pip install tensorboard")


def _board(folder: Path, begin: int) -> Any:
    """A TensorBoard writer that replaces what an earlier process wrote from step `begin` on."""
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"), purge_step=begin)
