"""A run: one recipe with one seed, from the first step to the result file, through any number of interruptions.

Batches and random numbers are functions of the seed and the step. The state of a run is therefore its step, the
weights, the optimiser's moments, averages and best weights so far, and the curve. A checkpoint holds exactly these.
"""

from __future__ import annotations

import errno
import functools
import json
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from mgrade._files import lock, reason, replace
from mgrade._provenance import commit
from mgrade.nn import DelayConv, Model
from mgrade.tasks import derive
from mgrade.train import best, checkpoint, curve
from mgrade.train.best import Best
from mgrade.train.checkpoint import Checkpoint
from mgrade.train.evaluate import Interrupted, evaluate, interruptible, precision
from mgrade.train.failure import offender
from mgrade.train.feed import Feed
from mgrade.train.fingerprint import described, keep
from mgrade.train.finished import RECIPE
from mgrade.train.options import MOST
from mgrade.train.processes import Processes
from mgrade.train.progress import Log, Reporter
from mgrade.train.recipe import Recipe
from mgrade.train.result import difference
from mgrade.train.rounding import rounded_weights
from mgrade.train.schedule import evaluations, factors, sigma_stages
from mgrade.train.step import TrainingStep

# What a checkpoint holds besides tensors.
_FACTS = {"recipe": dict, "seed": int, "seconds": (int, float), "points": list, "data": dict, "commits": list}
# The interval, in steps, at which several processes check, save, and agree whether to stop.
_AGREE_EVERY = 10


class NotFiniteError(ValueError):
    """A loss was not a finite number."""


class Run:
    """Trains `recipe` with `seed` in `folder`: `open` it, `go`, `finish`, and `close` it in any case."""

    def __init__(
        self,
        recipe: Recipe,
        seed: int,
        folder: Path,
        *,
        device: torch.device,
        processes: Processes,
        reporter: Reporter,
        checkpoint_seconds: float = 60.0,
        tensorboard: bool = False,
    ):
        self.recipe, self.seed, self.folder, self.device = recipe, seed, folder, device
        self.processes, self.reporter = processes, reporter
        self.checkpoint_seconds, self.tensorboard = checkpoint_seconds, tensorboard
        train = recipe.train
        torch.manual_seed(derive(seed, "weights"))
        self.model = Model(recipe.model).to(device)
        self.feed = Feed(recipe.task, seed, train.batch, device, processes, train.by_length)
        self.steps = train.steps or (train.epochs or 0) * (self.feed.steps_per_epoch or 0)
        if self.steps > MOST["steps"]:
            most = MOST["steps"] // (self.feed.steps_per_epoch or 1)
            raise ValueError(f"train.epochs must be at most {most} for this task and batch, got {train.epochs}")
        self.evaluations = evaluations(self.steps, train.evaluations)
        self.sigma = sigma_stages(train, recipe.model.sigma, self.steps)
        # a partial, not a bound method: that would be a reference cycle, and keep device memory alive
        self.loss = functools.partial(recipe.task.loss, weight=self.feed.class_weights(train.class_weights))
        self.training = TrainingStep(
            self.model,
            self.loss,
            rate=train.rate,
            decay=train.decay,
            recurrence_rate=train.recurrence_rate,
            recurrence_decay=train.recurrence_decay,
            schedule=factors(train, self.steps),
            clip=train.clip,
            int8=train.int8,
            average=train.average,
            processes=processes,
        )
        self.validation = recipe.task.examples("validation", seed, device)
        fixed = {} if recipe.task.endless else {"train": self.feed.examples}
        self.sets = {
            name: described(recipe.task, one) for name, one in (fixed | {"validation": self.validation}).items()
        }
        recipe.task.check_test()
        if remark := recipe.task.remark():
            reporter.say(remark)
        self.step, self.points, self.seconds = 0, list[dict[str, Any]](), 0.0
        self.best: Best | None = None
        self.commits = [commit()]  # the different commits of the source over all legs of the run
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)  # since the last evaluation
        self._lock: IO[bytes] | None = None

    def open(self, resume: bool) -> None:
        """Locks the folder, and resumes from a checkpoint in it if asked."""
        try:
            self._open(resume)
        except BaseException:
            self.close()
            raise

    def _open(self, resume: bool) -> None:
        if self.processes.first:
            self._possess()
        self.processes.wait()
        found, problems = checkpoint.newest(self._checkpoints, _FACTS)
        for line in problems:
            self.reporter.say(f"damaged checkpoint {line}")
        if found and not resume:
            raise ValueError(
                f"{self.folder} holds a run at step {found.step}: --resume continues it, or choose another --out"
            )
        if problems and not found:
            raise ValueError(f"{self.folder} holds no intact checkpoint: choose another --out")
        if found:
            self._load(found)
        else:
            self._narrow()
        self.processes.wait()  # every process has read the folder before it changes
        if self.processes.first:
            replace(self.folder / RECIPE, self._description())
            if not found:
                self._save()

    def _possess(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = lock(self.folder / "lock")
        if self._lock is None:
            raise ValueError(f"{self.folder}: another process is training here")
        checkpoint.clean(self._checkpoints)

    def go(self, stop: Callable[[], bool] = lambda: False, at_once: Callable[[], bool] = lambda: False) -> bool:
        """Trains until the last step, or until `stop` is true; whether it is done. Leaves a checkpoint either way.

        An evaluation is finished first, unless `at_once` is true; it is then repeated on resuming.
        """
        self._log = Log(self.folder, self.points, self.tensorboard) if self.processes.first else None
        self.reporter.start(f"{self.recipe.experiment}/{self.recipe.name} seed {self.seed}", self.step, self.steps)
        try:
            with precision(self.recipe.train.precision, self.device):
                self._train(stop, at_once)
        finally:
            self.reporter.stop()
            if self._log is not None:
                self._log.close()
        return self.step == self.steps and not self._evaluation_is_due()

    def finish(self, stop: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        """Evaluates the best weights on the test set, once, and saves the model with the run.

        If `stop` becomes true before the end, raises `Interrupted` without writing anything, and can be repeated.
        """
        assert self.best is not None
        self.model.load_state_dict(self.best.weights)
        task, batch = self.recipe.task, self.recipe.train.batch
        test = task.examples("test", self.seed, self.device)
        sets = {**self.sets, "test": described(task, test)}
        with precision(self.recipe.train.precision, self.device), torch.no_grad(), self._heeding(stop):
            figures = evaluate(self.model, task, test, batch, self.processes)
            self.model.eval()
            examined = task.examine(self.model, self.seed, self.device)
        if self.processes.first:
            keep(self.folder, sets)
            self.model.save(self.folder / "model")
        metrics = {task.test_prefix + name: value for name, value in figures.items()}
        metrics |= {name: examined.pop(name) for name in list(examined) if isinstance(examined[name], float)}
        return {
            "metrics": {**metrics, f"validation_{task.metric}": self.best.value},
            "data": sets,
            "validation_chooses": task.metric,
            "chosen_step": self.best.step,
            "minutes": round(self.seconds / 60, 4),
            "commit": self.commits[-1],
            **({"commits": self.commits} if len(self.commits) > 1 else {}),
            "curves": curve.columns(self.points),
            "examined": examined,
        }

    def close(self) -> None:
        """Unlocks the folder."""
        if self._lock is not None:
            self._lock.close()

    def _train(self, stop: Callable[[], bool], at_once: Callable[[], bool]) -> None:
        begun, first = time.monotonic(), self.step
        saved = reported = begun
        reported_step, reported_sum = self.step, float(self.loss_sum)
        before = self.seconds
        drops, alone = self.recipe.model.dropout > 0, self.processes.count == 1
        self.model.train()
        if self._evaluation_is_due():  # one that was interrupted
            if not self._evaluate(at_once):
                return
            self._save()
        while self.step < self.steps:
            if drops:
                torch.manual_seed(derive(self.seed, "dropout", self.step, self.processes.rank))
            self.loss_sum += self.training(*self.feed(self.step))
            self.step += 1
            self._narrow()
            due = self.step in self.evaluations
            if not (alone or due or self.step % _AGREE_EVERY == 0):
                continue
            now = time.monotonic()
            if due or not alone:
                self._check()
            if due:
                if not self._evaluate(at_once):
                    self._save()
                    return
                reported_step, reported_sum = self.step, 0.0
            elif now - reported > 0.5:
                self._check()
                total = float(self.loss_sum)
                rate = (self.step - first) / (now - begun)
                self.reporter.moved(self.step, (total - reported_sum) / (self.step - reported_step), rate)
                reported, reported_step, reported_sum = now, self.step, total
            self.seconds = before + time.monotonic() - begun
            asked = self._asked_to_stop(stop)
            if asked or self.step == self.steps or now - saved > self.checkpoint_seconds:
                self._check()
                self._save()
                saved = time.monotonic()
            if asked:
                return

    def _asked_to_stop(self, stop: Callable[[], bool]) -> bool:
        if self.processes.count == 1:
            return stop()
        return self.step % _AGREE_EVERY == 0 and self.processes.any(stop(), self.device)

    def _heeding(self, stop: Callable[[], bool]) -> AbstractContextManager[None]:
        """Asks `stop` before every pass of the model inside the block; all processes get the same answer."""
        return interruptible(self.model, lambda: self.processes.any(stop(), self.device))

    def _evaluation_is_due(self) -> bool:
        return self.step in self.evaluations and not (self.points and self.points[-1]["step"] == self.step)

    def _evaluate(self, stop: Callable[[], bool]) -> bool:
        """Adds a point to the curve, and keeps the weights if none were better; false if stopped."""
        try:
            with self.training.averaged(), rounded_weights(self.model, self.recipe.train.int8), self._heeding(stop):
                self._judge()
        except Interrupted:
            return False
        return True

    def _judge(self) -> None:
        task = self.recipe.task
        figures = evaluate(self.model, task, self.validation, self.recipe.train.batch, self.processes)
        since = self.step - (self.points[-1]["step"] if self.points else 0)
        point = {"step": self.step, "loss": float(self.loss_sum) / since, "validation": figures}
        self.loss_sum.zero_()
        self.points.append(point)
        if self._log is not None:
            self._log.add(point)
        self.reporter.evaluated(point)
        value = figures[task.metric]
        if self.step < max(self.sigma, default=0):  # taps are not as in the saved model yet
            return
        before = math.nan if self.best is None else self.best.value
        if math.isnan(before) or (value >= before if task.higher_is_better else value <= before):
            weights = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
            self.best = Best(self.step, value, weights)

    def _check(self) -> None:
        """Raises an error if a loss or the weights are not finite."""
        if not self.training.failed():
            self._check_weights()
            return
        done = int(self.training.updates())
        named = offender(self.model, self.loss, self.feed(done))
        rate = factors(self.recipe.train, self.steps)[done] * self.recipe.train.rate
        raise NotFiniteError(
            f"the loss of step {done + 1} is not finite: learning rate {rate:.3g}, first tensor: {named};"
            f" {self.folder} keeps the last good checkpoint"
        )

    def _check_weights(self) -> None:
        named = list(self.model.named_parameters())
        finite = torch.stack([parameter.isfinite().all() for _, parameter in named])
        if not finite.all():
            name = named[int(finite.logical_not().nonzero()[0])][0]
            raise NotFiniteError(
                f"the weights after step {self.step} are not finite: learning rate up to {self.recipe.train.rate:.3g},"
                f" first tensor: {name}; {self.folder} keeps the last good checkpoint"
            )

    def _narrow(self) -> None:
        """Sets the width of taps from this step on, before an evaluation of it."""
        if self.step in self.sigma:
            if self.recipe.train.snap and self.step == max(self.sigma):
                for conv in self._delays():
                    conv.snap_()
                    self.training.renew(conv.weight)
            self._set_width()

    def _set_width(self) -> None:
        """Sets the width of taps at this step; taps that have become whole delays keep their positions."""
        passed = [step for step in self.sigma if step <= self.step]
        for conv in self._delays():
            conv.sigma = self.sigma[max(passed)]
            if self.recipe.train.snap and max(passed) == max(self.sigma):
                self.training.rest(conv.position)
        self.training.recapture()

    def _delays(self) -> list[DelayConv]:
        return [module for module in self.model.modules() if isinstance(module, DelayConv)]

    # What a checkpoint holds.

    @property
    def _checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def _save(self) -> None:
        if not self.processes.first:
            return
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        tensors |= {f"optimiser.{name}": tensor for name, tensor in self.training.state().items()}
        tensors["loss_sum"] = self.loss_sum
        facts = {
            "recipe": self.recipe.to_dict(),
            "seed": self.seed,
            "seconds": self.seconds,
            "points": self.points,
            "data": self.sets,
            "commits": self.commits,
        }
        if self.best is not None:
            tensors |= {f"best.{name}": tensor for name, tensor in self.best.weights.items()}
            facts["best"] = self.best.facts
        try:
            checkpoint.write(self._checkpoints, Checkpoint(self.step, tensors, facts))
        except OSError as error:
            full = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else error.strerror
            raise ValueError(
                f"{self._checkpoints}: the checkpoint of step {self.step} cannot be written: {full};"
                " the one before is intact"
            ) from None

    def _load(self, found: Checkpoint) -> None:
        facts = found.facts
        differs = difference(self.recipe.to_dict(), facts["recipe"])
        if differs:
            raise ValueError(
                f"{self.folder} holds another run: {differs}: --resume needs the --set values it began with"
            )
        if facts["seed"] != self.seed:
            raise ValueError(f"{self.folder} holds another run: the seed differs")
        if facts["data"] != self.sets:
            raise ValueError(
                f"{self.folder} holds a run on other data, or of an earlier version: --resume needs those it began with"
            )
        if found.step > self.steps:
            raise ValueError(f"{self.folder} holds a checkpoint of step {found.step}, the run has {self.steps}")
        try:
            self.model.load_state_dict(_under("model.", found.tensors))
            self.training.load_state(_under("optimiser.", found.tensors))
            self.loss_sum.copy_(found.tensors["loss_sum"])
            self.points = curve.checked(facts["points"])
            if "best" in facts:
                self.best = best.checked(facts["best"], _under("best.", found.tensors), self.model, self.device)
        except (KeyError, RuntimeError, ValueError) as error:
            raise ValueError(
                f"{self.folder}: the checkpoint of step {found.step} is of another model: {reason(error)}"
            ) from None
        self.step, self.seconds = found.step, facts["seconds"]
        self.commits = [earlier for earlier in facts["commits"] if earlier != self.commits[-1]] + self.commits
        if self.sigma:
            self._set_width()

    def _description(self) -> bytes:
        facts = {"experiment": self.recipe.experiment, "model": self.recipe.name, "seed": self.seed}
        return (json.dumps({**facts, "recipe": self.recipe.to_dict()}, indent=1) + "\n").encode()


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
