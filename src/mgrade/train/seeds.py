"""Runs of a recipe with several seeds, one after another, to their result files; stop and resume at any moment."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from mgrade._files import check_place
from mgrade.tasks import data_folder
from mgrade.train.evaluate import Interrupted
from mgrade.train.processes import join, leave
from mgrade.train.progress import Reporter, need_tensorboard, reporter
from mgrade.train.recipe import Recipe, check_distinct, load_recipe, of_experiments
from mgrade.train.result import difference, read_result, result_path, run_folder, write_result
from mgrade.train.run import Run


class Deadline(NamedTuple):
    """A time limit in minutes, and its end in terms of `time.monotonic()`."""

    minutes: float
    at: float


class Stopped(Exception):  # noqa: N818
    """Training was asked to stop before its end, by `signal` if that is not None."""

    def __init__(self, message: str, signal: int | None):
        super().__init__(message)
        self.signal = signal


def launch(
    recipe: Recipe,
    *,
    seeds: Sequence[int] = (),
    root: Path = Path(),
    device: str = "cpu",
    resume: bool = False,
    max_minutes: float | None = None,
    checkpoint_seconds: float = 60.0,
    tensorboard: bool = False,
) -> list[Path]:
    """Trains `recipe` with each of `seeds` (default: its own) and returns the paths of the result files.

    Runs are kept in `root`/runs, results in `root`/results. A seed that has a result is not run again.
    """
    deadline = _deadline(max_minutes)
    if not checkpoint_seconds >= 0:
        raise ValueError(f"checkpoint_seconds must be at least 0, got {checkpoint_seconds}")
    seeds = seeds or recipe.seeds
    check_distinct(seeds)
    if tensorboard:
        need_tensorboard()
    more = {"checkpoint_seconds": checkpoint_seconds, "tensorboard": tensorboard}
    return _launch(recipe, seeds, root, device, resume, deadline, [], **more)


def run_missing(
    experiments: Sequence[str], *, root: Path = Path(), device: str = "cpu", max_minutes: float | None = None
) -> None:
    """Trains every seed of every recipe of the experiments that has no result yet."""
    deadline = _deadline(max_minutes)
    asked: list[int] = []
    for recipe in map(load_recipe, of_experiments(experiments)):
        _launch(recipe, recipe.seeds, root, device, True, deadline, asked)


def _deadline(max_minutes: float | None) -> Deadline | None:
    """The deadline `max_minutes` minutes from now."""
    if max_minutes is None:
        return None
    if not max_minutes > 0:
        raise ValueError(f"max_minutes must be above 0, got {max_minutes}")
    return Deadline(max_minutes, time.monotonic() + 60 * max_minutes)


def _launch(
    recipe: Recipe,
    seeds: Sequence[int],
    root: Path,
    device: str,
    resume: bool,
    deadline: Deadline | None,
    asked: list[int],
    **more: Any,
) -> list[Path]:
    """`launch` with checked arguments, until a deadline; `more` goes to every `Run`.

    asked: the stop signals received so far, including those during an earlier recipe.
    """
    if root.exists() and not root.is_dir():
        raise ValueError(f"--out must be a folder, got {root}")
    processes, own = join(device)
    say = reporter() if processes.first else Reporter()
    paths = [result_path(root, recipe, seed) for seed in seeds]
    try:
        todo = {seed: path for seed, path in zip(seeds, paths, strict=True) if not _done(root, recipe, seed, say)}
        for path in todo.values():
            check_place(path)
        for seed in todo:
            if asked:
                name, by = f"{recipe.experiment}/{recipe.name}", signal.Signals(asked[0]).name
                raise Stopped(f"stopped by {by} before seed {seed} of {name}", asked[0])
            try:
                run = Run(
                    recipe,
                    seed,
                    run_folder(root, recipe, seed),
                    device=own,
                    processes=processes,
                    reporter=say,
                    **more,
                )
            except OSError as error:
                raise ValueError(f"{error.filename or data_folder()}: cannot be read: {error.strerror}") from None
            with _signals(asked):
                _train(run, root, resume, deadline, asked)
            del run  # frees its device memory before the next one is made
        processes.wait()  # no process leaves while another still communicates
    except BrokenPipeError:
        raise ValueError("standard output was closed by its reader") from None
    except OSError as error:
        raise ValueError(f"{error.filename or root}: cannot be written: {error.strerror}") from None
    finally:
        leave()
    return paths


def _train(run: Run, root: Path, resume: bool, deadline: Deadline | None, asked: list[int]) -> None:
    """Trains `run` and writes its result under `root`, unless time runs out or a signal asks to stop."""

    def late() -> bool:
        return deadline is not None and time.monotonic() > deadline.at

    def signalled() -> bool:
        return bool(asked)

    def stopped(where: str) -> Stopped:
        by = signal.Signals(asked[0]).name if asked else "another process"
        if deadline is not None and not asked and late():
            by = f"--max-minutes {deadline.minutes:g}"
        run.processes.wait()
        return Stopped(f"stopped by {by} {where}", asked[0] if asked else None)

    try:
        run.open(resume)
        if _done(root, run.recipe, run.seed, run.reporter):  # by the process that held the folder until now
            return
        trains = run.step < run.steps
        if not run.go(lambda: signalled() or late(), signalled):
            raise stopped(f"at step {run.step} of {run.steps}")
        try:  # if only the test is left, ignore the time limit: it would interrupt every attempt
            found = run.finish(lambda: signalled() or (trains and late()))
        except Interrupted:
            raise stopped("while the test set was judged") from None
        _conclude(run, result_path(root, run.recipe, run.seed), found)
    finally:
        run.close()


def _done(root: Path, recipe: Recipe, seed: int, say: Reporter) -> bool:
    """Whether this recipe has its result already; the result of another recipe is an error, not overwritten."""
    path = result_path(root, recipe, seed)
    found = read_result(path)
    if found is None:
        return False
    for field in ("seed", "metrics"):
        if field not in found:
            raise ValueError(f"{path}: is not a result file: {field} is missing")
    metrics = found["metrics"]
    if not isinstance(metrics, dict) or not all(type(value) in (int, float) for value in metrics.values()):
        raise ValueError(f"{path}: is not a result file: metrics must be an object of numbers, got {metrics!r:.60}")
    if found["seed"] != seed:
        raise ValueError(f"{path}: is the result of another seed: seed must be {seed}, got {found['seed']!r:.40}")
    if differs := difference(recipe.to_dict(), found["recipe"]):
        raise ValueError(f"{path} is the result of another recipe ({differs}): choose another --out")
    gone = not (run_folder(root, recipe, seed) / "model").is_dir()  # where only results were shipped
    hint = ", without its model: another --out trains it again" if gone else ""
    say.say(f"{recipe.experiment}/{recipe.name} seed {seed} is finished: {_figures(recipe, found)}; {path}{hint}")
    return True


def _figures(recipe: Recipe, found: dict[str, Any]) -> str:
    """All figures of a result, with those of the paper unless other data stood in for the paper's."""
    examined = found.get("examined")
    paper = {} if isinstance(examined, dict) and "stand_in" in examined else recipe.paper
    return ", ".join(f"{name} {value:.4f}{_beside(paper, name)}" for name, value in found["metrics"].items())


def _beside(paper: Mapping[str, Any], figure: str) -> str:
    """The paper's value of a figure, in brackets."""
    if figure not in paper:
        return ""
    value, spread = str(paper[figure]), paper.get(f"{figure}_spread")
    if "paper" in value:  # as in "not in the paper"
        return f" ({value})"
    return f" (paper: {value}{'' if spread is None else f' ± {spread}'})"


def _conclude(run: Run, path: Path, found: dict[str, Any]) -> None:
    if not run.processes.first:
        return
    figures = _figures(run.recipe, found)
    write_result(path, run.recipe, run.seed, run.model, run.device, found)
    run.reporter.say(f"{run.recipe.experiment}/{run.recipe.name} seed {run.seed}: {figures}; {path}")


@contextlib.contextmanager
def _signals(asked: list[int]) -> Iterator[None]:
    """Collects SIGINT and SIGTERM in `asked` instead of dying from them; a second one takes effect at once."""

    def note(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    try:
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: it cannot handle signals
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
