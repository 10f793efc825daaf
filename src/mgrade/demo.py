"""The demo: from real recordings to a C program, with the accuracy and the bytes of every stage.

The Japanese Vowels set: which of nine speakers says /ae/, from 12 channels over 7 to 29 steps.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from mgrade._files import lock, make_folder
from mgrade.deploy import (
    Compiled,
    Source,
    dequantise_output,
    open_source,
    quantise_input,
    write_export,
)
from mgrade.deploy.c import compile_if_possible
from mgrade.deploy.export import check_folder
from mgrade.deploy.source import as_name
from mgrade.deploy.stages import Stage, forms, judged
from mgrade.footprint import CHIPS
from mgrade.train import launch, load_recipe
from mgrade.train.result import result_path, run_folder

RECIPE = "vowels/mgrade"
# The folder of the exported program, inside that of the demo.
EXPORT = "export"
# A file in the run's folder that allows a later demo to replace the run.
MARK = "demo"


@dataclass(frozen=True)
class Story:
    """The results of the demo."""

    stages: list[Stage]
    train_seconds: float
    step_microseconds: float | None
    fits: list[str]
    files: Path


def train(out: Path, epochs: int | None = None, seed: int = 0) -> tuple[Source, Stage, float]:
    """Trains the recipe from scratch under `out`: the run, the trained model as a stage, and the seconds it took."""
    if epochs is not None and epochs < 1:
        raise ValueError(f"epochs must be at least 1, got {epochs}")
    recipe = load_recipe(RECIPE, [] if epochs is None else [f"train.epochs={epochs}"])
    recipe.task.examples("test", seed, torch.device("cpu"))  # fails if the data is missing, before anything is replaced
    check_folder(out / EXPORT, as_name(recipe.experiment), "c")
    _make_way(run_folder(out, recipe, seed), result_path(out, recipe, seed))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with so small a model, more threads would only wait for each other
    begin = time.perf_counter()
    try:
        (path,) = launch(recipe, seeds=[seed], root=out, device="cpu")
    finally:
        torch.set_num_threads(threads)
    seconds = time.perf_counter() - begin
    result = json.loads(path.read_text("utf-8"))
    figures = {"accuracy": result["metrics"]["test_accuracy"]}
    stage = Stage("trained, in PyTorch", figures, 4 * result["parameters"], result["state_bytes"])
    return open_source(out / "runs" / RECIPE / f"seed{seed}"), stage, seconds


def _make_way(folder: Path, result: Path) -> None:
    """Removes the run and the result of an earlier demo; refuses those of other origin, and a run in progress."""
    if folder.exists() or result.exists():
        if not (folder / MARK).is_file():
            raise ValueError(f"{folder if folder.exists() else result} was not made by a demo: choose another --out")
        held = lock(folder / "lock")
        if held is None:
            raise ValueError(f"{folder}: another process is training here")
        with held:
            result.unlink(missing_ok=True)
            shutil.rmtree(folder)
    make_folder(folder)
    (folder / MARK).touch()


def run(out: Path, epochs: int | None = None, seed: int = 0) -> Story:
    """Runs all stages, and leaves their files under `out`."""
    source, trained, seconds = train(out, epochs, seed)
    stages = [trained]
    for name, program in forms(source):
        stages.append(judged(source, name, program))
    files = out / EXPORT
    write_export(program, source.name, "c", files, source.known)
    step = None
    if (compiled := compile_if_possible(program)) is not None:
        accuracy, step = _stream(source, compiled, seed)
        figures = {"accuracy": accuracy}
        stages.append(Stage("compiled from C, streamed", figures, program.parameter_bytes, program.state_bytes))
    chips = sorted(CHIPS, key=lambda chip: chip.ram)
    fits = [chip.name for chip in chips if chip.fits(program.parameter_bytes, program.state_bytes)]
    return Story(stages, seconds, step, fits, files)


def _stream(source: Source, compiled: Compiled, seed: int) -> tuple[float, float]:
    """Runs the test set through the compiled program, one sequence at a time: accuracy, and microseconds per step."""
    assert source.task is not None
    values, labels, lengths = source.task.examples("test", seed, torch.device("cpu"))
    right, steps, seconds = 0, 0, 0.0
    for x, label, length in zip(values.numpy(), labels.tolist(), lengths.tolist(), strict=True):
        samples = quantise_input(compiled.program, x[:length])
        compiled.reset()
        begin = time.perf_counter()
        outputs = compiled.run(samples)
        seconds += time.perf_counter() - begin
        steps += length
        right += int(dequantise_output(compiled.program, outputs)[-1].argmax()) == label
    return right / len(labels), 1e6 * seconds / steps
