"""`mgrade fit`: from a CSV file of labelled recordings to a program for a chip, without writing Python."""

from __future__ import annotations

import csv
import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from mgrade.cli.common import AsJson, console, fail, listing, say

if TYPE_CHECKING:
    from mgrade.estimator.fitting import Fitted
    from mgrade.footprint import Chip


def fit(
    recordings: Annotated[Path, typer.Argument(help="CSV file: column names, then one sample per line.")],
    label: Annotated[str, typer.Option(help="Column of the labels.")] = "label",
    sequence: Annotated[
        str | None, typer.Option(help="Column that tells recordings apart. Default: a new label begins one.")
    ] = None,
    channels: Annotated[
        str | None,
        typer.Option(help="Columns to learn from, such as ax,ay,az; quote names with commas. Default: all others."),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(help="Cut recordings into pieces of this many samples, the length that one answer takes."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("fitted"),
    to: Annotated[str, typer.Option("--to", help="c, arduino, onnx or wasm.")] = "c",
    chip: Annotated[
        str | None, typer.Option(metavar="NAME", help="A chip of `mgrade footprint` that it must fit.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Bytes for weights and state, such as 16KB. Default: 32KB, or half the chip's smaller memory if less."
        ),
    ] = None,
    precision: Annotated[str, typer.Option(help="float32, or int8 weights.")] = "int8",
    test: Annotated[float, typer.Option(help="Share of the recordings held out for testing.")] = 0.25,
    frame: Annotated[int, typer.Option(help="Samples that the program reads per step.")] = 1,
    epochs: Annotated[
        int | None,
        typer.Option(help="Passes over the recordings. Default: 100, fewer for many recordings."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the weights and of the held-out recordings.")] = 0,
    verify: Annotated[bool, typer.Option("--verify", help="Run the program on the chip's emulated core.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a classifier on labelled recordings, test it on others, and write it as a program for a chip."""
    from mgrade.deploy import check_target
    from mgrade.deploy.chip import CORES, ChipError
    from mgrade.footprint import find_chip

    _need_sklearn()
    from mgrade.estimator.checks import check_output
    from mgrade.estimator.fitting import budget_for, prepare, verify_on
    from mgrade.estimator.fitting import fit as train

    target = None if chip is None else find_chip(chip)
    if verify and target is None:
        raise ValueError("--verify needs --chip: which core to emulate")
    _check_options(precision, to, test, seed, epochs)
    core = target.core.lower() if verify and target else None
    if target is not None and core is not None and core not in CORES:
        emulated = ", ".join(CORES)
        raise ValueError(f"--verify: the core of {target.name} cannot be emulated: {emulated} can")
    check_target(to, core)
    check_output(out, to)
    limit = budget_for(target, budget)
    data = prepare(
        recordings,
        label=label,
        sequence=sequence,
        channels=None if channels is None else _named(channels),
        window=window,
        frame=frame,
        test=test,
        seed=seed,
    )
    remarks = list(data.remarks)
    with Console(stderr=True).status(f"training on {len(data.training.series)} {data.unit}") as status:

        def tell(epoch: str) -> None:
            """Shows an epoch; before the first, the remarks on the recordings, which passed every check."""
            while remarks:
                say(remarks.pop(0))
            status.update(epoch)

        found = train(
            data.training,
            data.held_out,
            limit,
            frame,
            tell,
            window,
            say,
            precision=precision,
            epochs=epochs,
            random_state=seed,
        )
    facts: dict[str, Any] = {
        "channels": data.whole.channels,
        "recordings": data.lengths,
        "trained_on": len(data.training.series),
        **found.to_dict(),
        "export": found.write(out, to),
    }
    fits = target is None or target.fits(found.program.parameter_bytes, found.program.state_bytes)
    if target is not None:
        facts |= {"chip": target.name, "fits": fits}
    if verify and target is not None:
        try:
            facts["verify"] = verify_on(target, out / to)
        except ChipError as error:
            fail(str(error))
    if as_json:
        print(json.dumps(facts, indent=1))
    else:
        _show(facts, found, target, out, to, data.unit)
    for line in (*found.shortfall(), *found.stale(out, to)):
        say(line)
    if target is not None and not fits:
        fail(f"the program does not fit {target.name}: give a smaller --budget than {limit} bytes")
    if verify and not facts["verify"]["equal"]:
        fail(f"the chip and the interpreter differ by {facts['verify']['error']:.2g}")


def _named(channels: str) -> list[str]:
    """The names in --channels, quoted as in CSV where necessary."""
    try:
        names = [name.strip() for name in next(csv.reader([channels], skipinitialspace=True, strict=True))]
    except csv.Error:
        names = []
    if not all(names) or not names:
        raise ValueError(f"--channels must be names separated by commas, got {channels!r:.60}")
    return names


def _check_options(precision: str, to: str, test: float, seed: int, epochs: int | None) -> None:
    from mgrade.estimator.base import whole
    from mgrade.estimator.budget import check_precision

    check_precision(precision)
    if to == "onnx" and precision != "float32":
        raise ValueError("--to onnx needs --precision float32")
    if to == "onnx" and importlib.util.find_spec("onnx") is None:
        raise ValueError("--to onnx needs the package onnx: pip install 'mgrade[onnx]'")
    if not 0 < test < 1:
        raise ValueError(f"--test must be between 0 and 1, such as 0.25, got {test:g}")
    if not 0 <= seed < 2**32:
        raise ValueError(f"--seed must be at least 0 and below 2^32, got {seed}")
    if epochs is not None:
        whole("epochs", epochs)


def _need_sklearn() -> None:
    try:
        import sklearn  # noqa: F401
    except ModuleNotFoundError:
        raise ValueError("fit needs scikit-learn: pip install 'mgrade[sklearn]'") from None


def _show(facts: dict[str, Any], found: Fitted, chip: Chip | None, out: Path, to: str, unit: str) -> None:
    table = listing()
    layers = f"{facts['depth']} layer{'s' if facts['depth'] > 1 else ''} of {facts['dim']} channels"
    table.add_row("channels", ", ".join(facts["channels"]))
    table.add_row("trained on", f"{facts['trained_on']} {unit}, {facts['seconds']:.0f} s: {layers}")
    table.add_row("held-out accuracy", f"{facts['right']['classifier']:.1%} of {facts['held_out']} {unit}")
    table.add_row(f"as {found.classifier.precision}", f"{facts['right']['program']:.1%}")
    for truth, said in facts["confusion"].items():
        table.add_row(f"  {truth}", _judged(truth, said, facts["judged_on"][truth]))
    table.add_row("outputs", ", ".join(facts["confusion"]))
    stored, kept = facts["export"]["parameter_bytes"], facts["export"]["state_bytes"]
    table.add_row("weights", f"{stored:,} bytes")
    table.add_row("state of a stream", f"{kept:,} bytes")
    if chip is not None:
        table.add_row(f"on {chip.name}", _room(chip, stored, kept) if facts["fits"] else "DOES NOT FIT")
    if ran := facts.get("verify"):
        table.add_row(f"on {ran['chip']}", "every output equal" if ran["equal"] else "OUTPUTS DIFFER")
        table.add_row("with its code", f"{ran['flash_bytes']:,} bytes of flash, {ran['ram_bytes']:,} of RAM")
        table.add_row(
            "a step", f"{ran['instructions']:,} instructions{_rate(ran['steps_a_second'], found.classifier.frame_)}"
        )
    table.add_row("written to", f"{out / to}, {out / 'model'}")
    console().print(table)


def _judged(truth: str, said: dict[str, int], recordings: int) -> str:
    """How many recordings of a label were right, what the others were taken for, and whether they are too few."""
    from mgrade.estimator.fitting import FEWEST_JUDGED

    count = sum(said.values())
    mistaken = "".join(f", {times} taken for {name}" for name, times in said.items() if name != truth)
    source = "" if recordings == count else f", of {recordings} recording{'s' if recordings > 1 else ''}"
    few = ", too few to judge by" if recordings < FEWEST_JUDGED else ""
    return f"{said.get(truth, 0)} of {count}{mistaken}{source if few else ''}{few}"


def _rate(steps: float | None, frame: int) -> str:
    """The rate that a chip's clock allows, in steps and in samples."""
    if steps is None:
        return ""
    samples = "" if frame == 1 else f", {frame * steps:,.0f} samples"
    return f", at most {steps:,.0f} steps a second{samples}"


def _room(chip: Chip, stored: int, kept: int) -> str:
    if not chip.flash:
        return f"{(stored + kept) / chip.ram:.1%} of its memory"
    return f"{stored / chip.flash:.1%} of its flash, {kept / chip.ram:.1%} of its RAM"
