"""`StreamClassifier` and its alternatives: `python -m benchmarks.estimator`.

Writes results/compare/estimator.json: accuracy, bytes, fit seconds, and the cost of an answer after each new sample.
aeon's classifiers need its dependencies, `pip install -c constraints.txt aeon`; spoken digits need their recordings
(`mgrade data fetch fsdd`, MGRADE_DATA). What is missing is reported as such.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks import measure, report
from benchmarks.classifiers import Array, Contender, Estimator, Kernels, Recurrent
from benchmarks.measure import UnavailableError
from mgrade._provenance import commit, hardware, versions
from mgrade.tasks.digits import SpokenDigits
from mgrade.tasks.folder import data_folder
from mgrade.tasks.labelled import Sequences
from mgrade.tasks.series import PROBLEMS

WHAT = (
    "StreamClassifier with its defaults, exported to C, beside aeon's convolution classifiers with theirs and a GRU"
    " trained as StreamClassifier trains: accuracy on the official test set, bytes, fit seconds, and the cost of an"
    " answer after each new sample"
)
TITLES = {
    "vowels": "Japanese Vowels",
    "motions": "Basic Motions",
    "fsdd": "Free Spoken Digits, raw at 8 kHz",
}
# Recordings of digits are cut after this many samples, one second.
MOST_SAMPLES = 8000


class Data(NamedTuple):
    """Raw series (channels, time) and their classes."""

    X: list[Array]
    y: Array
    X_test: list[Array]
    y_test: Array

    @property
    def longest(self) -> int:
        """Steps of the longest series."""
        return max(one.shape[1] for one in [*self.X, *self.X_test])

    def fewer(self, count: int) -> Data:
        """A few cases of every class, for a smoke run."""
        train, test = (slice(None, None, max(1, len(y) // count)) for y in (self.y, self.y_test))
        return Data(self.X[train], self.y[train], self.X_test[test], self.y_test[test])


def read(name: str) -> Data:
    """Loads a dataset from the data folder, or from the package aeon."""
    try:
        train, test = (_archived(name, split) if name in PROBLEMS else _digits(split) for split in ("train", "test"))
    except ValueError as error:
        raise UnavailableError(str(error)) from None
    return Data(*train, *test)


def _archived(name: str, split: str) -> tuple[list[Array], Array]:
    problem = PROBLEMS[name]
    mean, scale = problem.standard(data_folder())
    found = problem.read(split, data_folder())
    return _cases(found._replace(values=found.values * scale + mean))


def _digits(split: str) -> tuple[list[Array], Array]:
    return _cases(SpokenDigits(frame=1, max_samples=MOST_SAMPLES).read(split, data_folder()))


def _cases(found: Sequences) -> tuple[list[Array], Array]:
    assert found.lengths is not None
    cases = zip(found.values, found.lengths, strict=True)
    return [np.ascontiguousarray(one[:length].T, np.float32) for one, length in cases], found.labels


def contenders(most_minutes: float) -> dict[str, Callable[[], Contender]]:
    """All contenders; both of mgrade's share their fits."""
    fitted: dict[int, Any] = {}
    return {
        "mgrade": lambda: Estimator("float32", fitted),
        "mgrade int8": lambda: Estimator("int8", fitted),
        "MiniRocket": lambda: Kernels("MiniRocketClassifier", most_minutes),
        "ROCKET": lambda: Kernels("RocketClassifier", most_minutes),
        "GRU": Recurrent,
    }


def judge(contender: Contender, data: Data, seeds: int, repeats: int) -> dict[str, Any]:
    """Fits once per seed, tests each fit once, and times the last."""
    contender.prepare(data.X, data.y, data.longest)
    right, seconds = [], []
    for seed in range(seeds):
        begin = time.perf_counter()
        contender.fit(data.X, data.y, seed)
        seconds.append(time.perf_counter() - begin)
        right.append(float(np.mean(contender.predict(data.X_test) == data.y_test)))
    run, answers = contender.step(data.X_test[0])
    times = measure.interleave({"step": run}, "cpu", repeats)["step"]
    return {
        "accuracy": right,
        "accuracy_mean": statistics.mean(right),
        **contender.sizes(),
        "fit_seconds": seconds,
        "step_microseconds": 1e6 * statistics.median(times) / answers,
        "step_how": contender.how,
        "samples_per_step": contender.samples_per_step,
    }


def compare(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The entry of one dataset: its sizes, the models, and those that are not available."""
    data = read(name)
    if options.quick:
        data = data.fewer(20)
    models: dict[str, Any] = {}
    unavailable: dict[str, str] = {}
    for label, build in contenders(options.minutes).items():
        try:
            models[label] = judge(build(), data, options.seeds, options.repeats)
            print(f"{name}, {label}: {models[label]['accuracy_mean']:.1%}", flush=True)
        except UnavailableError as reason:
            unavailable[label] = str(reason)
    if "mgrade int8" in models and "mgrade" in models:  # one fit for both
        models["mgrade int8"]["fit_seconds"] = models["mgrade"]["fit_seconds"]
    return {
        "title": TITLES[name],
        "train": len(data.X),
        "test": len(data.X_test),
        "channels": len(data.X[0]),
        "classes": len(np.unique(data.y)),
        "longest": data.longest,
        "models": models,
        "unavailable": unavailable,
    }


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Parses the options."""
    parser = argparse.ArgumentParser(description="StreamClassifier, aeon's classifiers and a GRU, on one core")
    parser.add_argument("--out", type=Path, default=report.ROOT / "results" / "compare", help="folder for the file")
    parser.add_argument("--only", default=",".join(TITLES), help="datasets, with commas (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="fits of each model (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=30, help="samples of a step's time (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=5, help="limit on a fit of aeon (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a smoke run: about 20 cases of each dataset, one seed")
    options = parser.parse_args(argv)
    options.only = [name.strip() for name in options.only.split(",")]
    for name in options.only:
        if name not in TITLES:
            parser.error(f"--only: no dataset {name!r}; choose from {', '.join(TITLES)}")
    for name in ("seeds", "repeats"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(options, name)}")
    if options.quick:
        options.seeds, options.repeats = 1, 2
    return options


def main(argv: list[str] | None = None) -> int:
    """Runs everything, prints the table, writes the file; returns the exit status."""
    options = parse(argv)
    torch.set_num_threads(1)
    document: dict[str, Any] = {
        "what": WHAT,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "quick": options.quick,
        "hardware": hardware(torch.device("cpu")),
        "versions": {**versions(), **_aeon()},
        "datasets": {},
    }
    for name in options.only:
        try:
            document["datasets"][name] = compare(name, options)
        except UnavailableError as reason:
            document.setdefault("unavailable", {})[name] = str(reason)
            print(f"{TITLES[name]}: unavailable: {reason}")
    show(document)
    return report.finish(document, options.out, "estimator.json")


def _aeon() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in ("aeon", "numba", "scikit-learn"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


COLUMNS = ("", "model", "accuracy", "parameters, B", "state, B", "an answer, us", "fit, s")


def rows(document: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The cells of the table, model by model."""
    found = []
    for entry in document["datasets"].values():
        for name, model in entry["models"].items():
            worst, best = 100 * min(model["accuracy"]), 100 * max(model["accuracy"])
            spread = f" ({worst:.1f} to {best:.1f})" if worst < best else ""
            found.append(
                (
                    entry["title"],
                    name,
                    f"{100 * model['accuracy_mean']:.1f} %{spread}",
                    f"{model['parameter_bytes']:,}",
                    f"{model['state_bytes']:,}",
                    f"{model['step_microseconds']:,.1f}",
                    f"{statistics.mean(model['fit_seconds']):,.1f}",
                )
            )
        for name, reason in entry["unavailable"].items():
            found.append((entry["title"], name, f"unavailable: {reason}", "", "", "", ""))
    return found


def show(document: dict[str, Any]) -> None:
    """Prints the table and the conclusions."""
    report.table("Series classified, one core", COLUMNS, rows(document))
    print(against(document))


def markdown_table(document: Mapping[str, Any]) -> str:
    """The table for a page, the conclusions, and the provenance of the numbers."""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *rows(document)]
    versions, machine = document["versions"], document["hardware"]
    seeds = max(len(model["accuracy"]) for e in document["datasets"].values() for model in e["models"].values())
    note = (
        f"Mean (and range) over {seeds} seeds, each tested once, on one core of {machine['cpu']}; torch"
        f" {versions['torch']}, aeon {versions['aeon']}, commit `{(document['commit'] or 'unknown')[:12]}`; in"
        " `results/compare/estimator.json`."
    )
    return "\n".join([*("| " + " | ".join(line) + " |" for line in lines), "", against(document), "", note]) + "\n"


def against(document: Mapping[str, Any], ours: str = "mgrade int8", theirs: str = "MiniRocket") -> str:
    """One sentence: by how many points `ours` differs from `theirs`, and at what share of its bytes."""
    parts = []
    for entry in document["datasets"].values():
        if ours in entry["models"] and theirs in entry["models"]:
            one, other = entry["models"][ours], entry["models"][theirs]
            points = 100 * (one["accuracy_mean"] - other["accuracy_mean"])
            share = _memory(one) / _memory(other)
            parts.append(f"{points:+.1f} points at {100 * share:.1f} % of the memory on {entry['title']}")
    return f"{ours} against {theirs}, parameters and state together: {'; '.join(parts) or 'not measured'}."


def _memory(model: Mapping[str, Any]) -> int:
    return model["parameter_bytes"] + model["state_bytes"]


if __name__ == "__main__":
    sys.exit(main())
