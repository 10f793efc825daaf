"""The sections of the page that follow the paper: its tables and figures, in its order."""

from __future__ import annotations

from collections.abc import Sequence

from mgrade.footprint import measure, published
from mgrade.report import paper
from mgrade.report.figures import delays, lorenz, memory, patterns, series
from mgrade.report.figures.series import Known
from mgrade.report.html import Cells, missing, paper_table, share, table
from mgrade.report.section import Part, Pick, Section, not_run, runs_behind
from mgrade.report.tables import rows_of
from mgrade.report.wording import model_name, printed, task_name
from mgrade.train.recipe import load_recipe


def paper_sections(known: Known) -> list[Section]:
    """All of them."""
    return [
        _memory(known),
        _lorenz(known),
        _patterns(known),
        _flipflop(known),
        _arena(known),
        _instantiated(),
        _speech(known),
        _ablation(known),
        _spikes(known),
        _delays(known),
    ]


def _memory(known: Known) -> Section:
    lead = (
        "The memory that models need for their accuracy on five tasks of the Long Range Arena (Fig. 1C, and its "
        "counterpart in the appendix)."
    )
    return Section("memory", "Accuracy against memory", lead, [memory.memory(known)])


def _lorenz(known: Known) -> Section:
    views = {"gates open, as in the paper": "", "gates ajar": "ajar"}
    drawn = {name: [figure] for name, variant in views.items() if (figure := lorenz.attractors(known, variant))}
    title = "Lorenz: an attractor from one coordinate"
    lead = (
        "A model sees one coordinate of a chaotic system and predicts its next value (Table 1, Fig. 2, and appendix)."
    )
    figures = [Pick(drawn) if drawn else None, lorenz.learning(known), lorenz.components(known)]
    return _experiment(known, "lorenz", title, lead, figures)


def _patterns(known: Known) -> Section:
    lead = "Sixteen patterns that differ in the order of their symbols, slow to fast (appendix)."
    return _experiment(known, "highfreq", "High-frequency patterns", lead, [patterns.patterns(known)])


def _flipflop(known: Known) -> Section:
    bits, copying = rows_of(["flipflop"], known), rows_of(["selective-copying"], known)
    h3 = [("H3", share(paper.H3[0] / 100), *paper.H3[1:])]
    lead = "Keeping a bit while ignoring all else; picking what matters and repeating it (Table 2, and appendix)."
    parts = [
        patterns.recall(known),
        paper_table(bits, paper.BYTES, title="Flip-Flop"),
        series.training("selective-copying", known),
        paper_table(copying, paper.BYTES, h3, title="Selective copying"),
        missing([*bits, *copying], ["flipflop", "selective-copying"]),
        runs_behind([*bits, *copying]),
    ]
    return Section("flipflop", "Flip-Flop and selective copying", lead, parts)


def _arena(known: Known) -> Section:
    options: dict[str, list[Part]] = {}
    found = []
    for task in paper.ARENA:
        beside = {row.model: (row.parameters, row.buffer) for row in published(task)}
        ours = {f"{task}/mgrade": beside["mGRADE"], f"{task}/lru": beside[paper.OWN_LRU]}
        rows = [row for row in rows_of([task], known) if row.recipe.partition("@")[0] in ours]
        more = [
            (_published_name(model, task), share(paper.arena_accuracy(model, task)), *_dashes(beside.get(model)))
            for model in paper.arena_models()
            if model not in ("mGRADE", paper.OWN_LRU)
        ]
        options[task_name(task)] = [paper_table(rows, ours, more, task_name(task)), series.training(task, known)]
        found += rows
    lead = "Five long tasks, beside published models (Table 3). A star: the model sees both directions of its input."
    return Section("lra", "Long Range Arena", lead, [Pick(options), missing(found, ["lra"]), runs_behind(found)])


def _instantiated() -> Section:
    columns = ["model", *(task_name(task) for task in paper.ARENA)]
    by_task = [{row.model: row.instantiated for row in published(task)} for task in paper.ARENA]
    models = [model for model in by_task[0] if any(found[model] for found in by_task)]
    rows: list[Cells] = [[model, *(found[model] or "—" for found in by_task)] for model in models]
    ours = [sum(measure(load_recipe(f"{task}/mgrade").model).instantiated.values()) for task in paper.ARENA]
    rows.append(["mGRADE, by our formula", *(printed(4 * count) for count in ours)])
    lead = (
        "Bytes of parameters with every kernel and every recurrent matrix expanded (appendix), as printed; the last "
        "row counts our recipes, which needs no run."
    )
    return Section("instantiated", "Parameters, expanded", lead, [table(columns, rows)])


def _speech(known: Known) -> Section:
    rows = rows_of(["speech35"], known)
    beside = {row.model: (row.parameters, row.buffer) for row in published("speech35")}
    more = []
    for model, (causal, both) in paper.SPEECH_ACCURACY.items():
        if model != "mGRADE":
            told = [share(causal / 100) if causal else None, f"{share(both / 100)} both ways" if both else None]
            more.append((model, "; ".join(filter(None, told)), *_dashes(beside.get(model))))
    parts = [paper_table(rows, {"speech35/mgrade": beside["mGRADE"]}, more), series.training("speech35", known)]
    lead = "Thirty-five words, sample by sample at 16 kHz (Table 4). Both ways: it sees both directions of the input."
    return Section("speech", "Raw speech", lead, [*parts, runs_behind(rows)])


def _ablation(known: Known) -> Section:
    options: dict[str, list[Part]] = {}
    found = []
    for task in ("listops", "image", "pathfinder"):
        names = [f"{task}/{model}" for model in ("mgrade", "mingru", "dcls", "tcn")]
        ours = rows_of([task], known)
        rows = [row for name in names for row in ours if row.recipe.partition("@")[0] == name]
        options[task_name(task)] = [paper_table(rows, paper.ABLATION_BYTES, (), task_name(task))]
        found += rows
    lead = (
        "mGRADE without its convolution (minGRU), without its recurrence (DCLS), and with plain dilation instead "
        "(TCN). Widths make them about equally large, except DCLS on Image, which has three quarters of mGRADE's "
        "weights, as in the paper (Table 5, and appendix)."
    )
    parts = [Pick(options), missing(found, ["ablation"]), runs_behind(found)]
    return Section("ablation", "What each part is for", lead, parts)


def _spikes(known: Known) -> Section:
    rows = rows_of(["shd"], known)
    more = [
        (model, f"{accuracy:.2f}{f' ± {spread:.2f}' if spread else ''} %", weights, buffer or "—")
        for model, (accuracy, spread, weights, buffer) in paper.SPIKES.items()
    ]
    parts = [paper_table(rows, paper.BYTES, more), series.training("shd", known), runs_behind(rows)]
    lead = "Spoken digits, encoded as spikes by a model of the ear (appendix)."
    return Section("spikes", "Spiking Heidelberg Digits", lead, parts)


def _delays(known: Known) -> Section:
    found: dict[str, list[Part]] = {
        f"{task_name(run.experiment)}, {model_name(run.name)}": [delays.delays(run)]
        for run in delays.with_delays(known)
    }
    lead = "The delay of every tap of every channel after training (the appendix has Image, Pathfinder and ListOps)."
    return Section("delays", "Learned delays", lead, [Pick(found) if found else not_run("mgrade train vowels/mgrade")])


def _experiment(known: Known, name: str, title: str, lead: str, drawn: Sequence[Part]) -> Section:
    """The section of one experiment: figures, table, missing runs, provenance."""
    rows = rows_of([name], known)
    return Section(
        name, title, lead, [*drawn, paper_table(rows, paper.BYTES), missing(rows, [name]), runs_behind(rows)]
    )


def _published_name(model: str, task: str) -> str:
    name = "LRU, published" if model == "LRU" else model
    return f"{name} *" if task in paper.BOTH_DIRECTIONS.get(model, ()) else name


def _dashes(pair: tuple[str | None, str | None] | None) -> tuple[str, str]:
    weights, buffer = pair or (None, None)
    return weights or "—", buffer or "—"
