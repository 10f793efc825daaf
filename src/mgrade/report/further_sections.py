"""The sections of the page that go beyond the paper: other tasks, speed, export, other estimators, other runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mgrade.report.figure import Figure
from mgrade.report.figures import series, speed, stages
from mgrade.report.figures.series import Known
from mgrade.report.html import Cells, metric, our_bytes, ours, provenance, table
from mgrade.report.markup import Markup, tag
from mgrade.report.runs import Run, reading
from mgrade.report.section import Contents, Part, Pick, Section, not_run, runs_behind
from mgrade.report.tables import rows_of
from mgrade.report.wording import model_name, seconds, task_name, value

TASKS = ("vowels", "motions", "fsdd", "smnist", "scifar", "speech10", "pathx")
# Files of measurements: the function that draws each, and the command that produces it.
SPEED: dict[str, tuple[Callable[[Mapping[str, Any]], Figure], str]] = {
    "gpu_steps": (speed.gpu_steps, "python -m benchmarks.gpu"),
    "gpu_parts": (speed.gpu_parts, "python -m benchmarks.gpu"),
    "cpu": (speed.cpu, "python -m benchmarks.cpu"),
    "deploy": (speed.streaming, "python -m benchmarks.deploy"),
}


def further_sections(contents: Contents) -> list[Section]:
    """All of them."""
    found = [_tasks(contents.measured.known), _speed(contents), _export(contents), _compared(contents)]
    return [*found, _others(contents.others)] if contents.others else found


def _tasks(known: Known) -> Section:
    rows = rows_of(TASKS, known)
    columns = ["task", "model", "accuracy", "seeds", "parameters", "bytes"]
    cells: list[Cells] = []
    for row in rows:
        parameters = "" if row.parameters is None else f"{row.parameters:,}"
        name, seeds = task_name(row.recipe.partition("/")[0]), f"{len(row.runs)} of {row.asked}"
        cells.append([name, model_name(row.recipe), ours(row), seeds, parameters, our_bytes(row)])
    curves = {task_name(task): [figure] for task in TASKS if (figure := series.training(task, known))}
    lead = "Tasks that the paper does not have, or on which it reports chance."
    parts = [table(columns, cells, words=2), Pick(curves) if curves else None, runs_behind(rows)]
    return Section("beyond", "Beyond the paper", lead, parts)


def _speed(contents: Contents) -> Section:
    parts: list[Part] = []
    for name, (draw, making) in SPEED.items():
        document = contents.measured.bench.get(name)
        if document is None:
            parts.append(not_run(making))
            continue
        with reading(contents.folder / "bench" / f"{name}.json"):
            parts.append(draw(document))
            parts += [_chips(document) if name == "deploy" else None, provenance([document], "measurement")]
    return Section("speed", "Speed", "Compared with the pieces that one would otherwise assemble.", parts)


def _chips(document: Mapping[str, Any]) -> Markup:
    columns = ["emulated chip", "precision", "instructions a step", "flash, bytes", "RAM, bytes"]
    figures = ("instructions", "flash", "ram")
    rows = [
        [chip, precision, *(f"{run[key]:,}" if key in run else "unavailable" for key in figures)]
        for chip, runs in document["chips"].items()
        for precision, run in runs.items()
    ]
    return table(columns, rows, words=2)


def _export(contents: Contents) -> Section:
    found: dict[str, list[Part]] = {}
    for name, document in contents.measured.stages.items():
        with reading(contents.folder / "deploy" / f"{name}.json"):
            found[task_name(name)] = [stages.stages(document, name), provenance([document], "export")]
    making = "mgrade stages runs/vowels/mgrade/seed0 --out results/deploy/vowels.json"
    lead = "A trained model becomes a program that shrinks in stages; each is evaluated on the whole test set."
    return Section("export", "From training to a chip", lead, [Pick(found) if found else not_run(making)])


def _compared(contents: Contents) -> Section:
    title = "The estimator and others"
    lead = "The estimator and others on the same splits: accuracy, bytes, and the time of one answer per sample."
    document = contents.compared
    if document is None:
        return Section("compare", title, lead, [not_run("python -m benchmarks.estimator")])
    with reading(contents.folder / "compare" / "estimator.json"):
        found: dict[str, list[Part]] = {
            task_name(name): [_dataset(name, entry)] for name, entry in document["datasets"].items()
        }
        parts = [Pick(found) if found else None, provenance([document], "measurement")]
        return Section("compare", title, str(document.get("what") or lead), parts)


def _dataset(name: str, entry: Mapping[str, Any]) -> Markup:
    columns = ["model", "accuracy", "seeds", "weights, bytes", "state, bytes", "an answer", "fit", "how"]
    rows = [_model(model, found) for model, found in entry["models"].items()]
    for model, reason in entry.get("unavailable", {}).items():
        rows.append([model, tag("em", f"unavailable: {reason}"), *[""] * 6])
    about = f"{task_name(name)}: {entry['train']:,} for training, {entry['test']:,} for testing"
    return table(columns, rows, title=f"{about}, {entry['channels']} channels, {entry['classes']} classes")


def _model(model: str, found: Mapping[str, Any]) -> Cells:
    scores, fits, step = found["accuracy"], found.get("fit_seconds"), found.get("step_microseconds")
    return [
        model,
        value("accuracy", found["accuracy_mean"], statistics.stdev(scores) if len(scores) > 1 else None),
        len(scores),
        *("—" if found.get(key) is None else f"{found[key]:,}" for key in ("parameter_bytes", "state_bytes")),
        "—" if step is None else seconds(1e-6 * step),
        seconds(statistics.fmean(fits)) if fits else "—",
        found.get("step_how", ""),
    ]


def _others(runs: Sequence[Run]) -> Section:
    columns = ["recipe", "seed", "figures", "parameters", "state bytes"]
    rows: list[Cells] = []
    for run in runs:
        figures = ", ".join(f"{name} {metric(name, figure)}" for name, figure in run.metrics.items())
        rows.append([run.name, run.seed, figures, f"{run.parameters:,}", f"{run.state_bytes:,}"])
    lead = (
        "Runs of recipes that are not shipped or have changed since, and of seeds that a recipe does not have. The "
        "paper has nothing to compare them with."
    )
    return Section("others", "Other runs", lead, [table(columns, rows), provenance([run.provenance for run in runs])])
