"""`mgrade export` and `mgrade stream`."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from mgrade.cli.common import AsJson, Data, console, fail, listing, use_data, visible


def export(
    source: Annotated[Path, typer.Argument(help="Folder of a finished run, a saved model or a saved estimator.")],
    to: Annotated[str, typer.Option("--to", help="c, arduino, onnx or wasm.")] = "c",
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("export"),
    precision: Annotated[
        str | None,
        typer.Option(help="float32, or int8 weights. Default: an estimator's own; else, and for onnx, float32."),
    ] = None,
    activations: Annotated[str, typer.Option(help="With int8 weights: int16 or int8 activations.")] = "int16",
    state_bits: Annotated[int, typer.Option(help="With int8 weights: bits of the recurrent state, 16 or 32.")] = 32,
    snap: Annotated[
        bool, typer.Option("--snap", help="Keep one whole delay per tap instead of its full width.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="Name of functions and files.")] = None,
    calibrate: Annotated[
        Path | None,
        typer.Option(help="CSV of samples to calibrate ranges on. Default: the run's training data."),
    ] = None,
    verify: Annotated[
        str | None,
        typer.Option(help="Run it on an emulated chip, such as cortex-m55, and compare every output."),
    ] = None,
    judge: Annotated[bool, typer.Option("--judge", help="Stream the run's test set through the program.")] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Export a trained model: C for a chip, an Arduino library, ONNX or WebAssembly."""
    from mgrade.deploy import Choices, build, check_target, open_source, write_export
    from mgrade.deploy import verify as run_on_chip
    from mgrade.deploy.c.printer import check_name
    from mgrade.deploy.chip import ChipError

    use_data(data)
    check_target(to, verify)
    opened = open_source(source)
    chosen_precision = precision or ("float32" if to == "onnx" else opened.precision)
    if to == "onnx" and chosen_precision != "float32":
        raise ValueError(f"precision must be float32 for onnx, got {chosen_precision!r}")
    choices = Choices(chosen_precision, activations, state_bits, snap)
    chosen = check_name(name or opened.name)
    program = build(opened, choices, calibrate)
    figures = opened.judge(program) if judge else None
    facts: dict[str, Any] = write_export(program, chosen, to, out, opened.known)
    if verify is not None:
        try:
            facts["verify"] = run_on_chip(out, verify)
        except ChipError as error:
            fail(str(error))
    if figures is not None:
        facts["test"] = figures
    if as_json:
        print(json.dumps(facts, indent=1))
    else:
        _show(facts, out)
    if verify is not None and not facts["verify"]["equal"]:
        fail(f"{verify} and the interpreter differ by {facts['verify']['error']:.2g}")


def _show(facts: dict[str, Any], out: Path) -> None:
    table = listing()
    table.add_row("written to", str(out))
    if "replaced" in facts:
        table.add_row("replaced", f"the export {visible(facts['replaced'])} in this folder; --out another keeps both")
    table.add_row("activations", facts["activations"])
    table.add_row("weights", f"{facts['parameter_bytes']:,} bytes")
    table.add_row("state of a stream", f"{facts['state_bytes']:,} bytes")
    for figure, value in facts.get("test", {}).items():
        table.add_row(f"test {figure}", f"{value:.4f}")
    if found := facts.get("verify"):
        table.add_row(f"on {found['chip']}", "every output equal" if found["equal"] else "OUTPUTS DIFFER")
        table.add_row("flash", f"{found['flash_bytes']:,} bytes")
        table.add_row("RAM", f"{found['ram_bytes']:,} bytes, including {found['stack_bytes']:,} of stack")
        least = found["instructions_least"]
        at_least = "" if least == found["instructions"] else f", at least {least:,}"
        table.add_row("instructions a step", f"at most {found['instructions']:,}{at_least}")
    console().print(table)


def stream(
    source: Annotated[Path, typer.Argument(help="Folder of an export.")],
    wav: Annotated[
        Path | None,
        typer.Argument(help="A WAV file. Default: CSV lines from standard input."),
    ] = None,
    labels: Annotated[bool, typer.Option("--labels", help="Print only the most likely label.")] = False,
) -> None:
    """Stream samples through an export, compiled for this machine: one line of outputs per sample, as they come.

    If the model was trained on windows (`fit --window`), the stream restarts after every window.
    """
    from mgrade.deploy.about import read_about
    from mgrade.deploy.export import read_export
    from mgrade.deploy.stream import csv_samples, stream, wav_samples

    if wav is not None and wav.suffix == ".csv":
        raise ValueError(f"{wav}: CSV goes to standard input: mgrade stream {source} < {wav}")
    if wav is None and sys.stdin is None:
        raise ValueError(f"standard input is closed: mgrade stream {source} < FILE.csv")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(newline=None)  # as in files: a carriage return alone ends a line, too
    _, program = read_export(source)
    known = read_about(source, program)
    if labels and not (known and known.classes and known.labels):
        raise ValueError(f"--labels: {source} has no labels for its outputs")
    samples = wav_samples(program, wav, known) if wav else csv_samples(program, sys.stdin, "standard input", known)
    try:
        for outputs in stream(program, samples, known):
            values = ",".join(str(y).removesuffix(".0") for y in outputs)  # digits enough to recover the number
            line = visible(" ".join(known.labels[outputs.argmax()].split())) if known and labels else values
            print(line, flush=True)
    except BrokenPipeError:  # the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def stages(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    examples: Annotated[int | None, typer.Option(help="Use only this many examples of the test set.")] = None,
    tensors: Annotated[bool, typer.Option("--tensors", help="Also the cost of rounding each matrix alone.")] = False,
    verify: Annotated[str | None, typer.Option(help="Also run float32 and int8 on an emulated core.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write a result file.")] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Show accuracy and bytes of a run after every stage of its export: snapping, trimming, int8."""
    from mgrade._files import prepare_place, replace
    from mgrade.deploy.stages import stage_report

    use_data(data)
    if out is not None:
        prepare_place(out, b'"stages":')
    report = stage_report(run, examples=examples, with_tensors=tensors, chip=verify)
    if out is not None:
        replace(out, (json.dumps(report, indent=1) + "\n").encode())
    if as_json:
        print(json.dumps(report, indent=1))
        return
    figures = list(report["stages"][0]["figures"])
    table = Table(box=None, pad_edge=False)
    for column in ("stage", *figures, "weights", "state of a stream"):
        table.add_column(column, justify="left" if column == "stage" else "right", no_wrap=True)
    for stage in report["stages"]:
        cells = [f"{stage['figures'][name]:.4f}" for name in figures]
        table.add_row(stage["name"], *cells, f"{stage['parameter_bytes']:,} B", f"{stage['state_bytes']:,} B")
    console().print(table)
    for entry in report.get("tensors", [])[:5]:
        print(f"costliest to round: op {entry['op']} {entry['kind']} {entry['array']} {entry['shape']}")
    for entry in report.get("chips", []):
        print(f"{entry['precision']} on {entry['chip']}: {_on_chip(entry)}")


def _on_chip(found: dict[str, Any]) -> str:
    said = "every output equal" if found["equal"] else "OUTPUTS DIFFER"
    flash, ram, count = found["flash_bytes"], found["ram_bytes"], found["instructions"]
    return f"{said}, flash {flash:,} B, RAM {ram:,} B, {count:,} instructions a step"
