"""`mgrade footprint` and `mgrade size`."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from mgrade.cli.common import AsJson, console

if TYPE_CHECKING:
    from mgrade.footprint import Candidate, Chip, Footprint, Limits

SHOWN = 10


class Precision(str, Enum):
    """Of weights; buffers are float32, or int16 with int8."""

    float32 = "float32"
    int8 = "int8"


At = Annotated[Precision, typer.Option("--precision", help="Precision of weights; with int8, buffers are int16.")]
Instantiated = Annotated[
    bool, typer.Option("--instantiated", help="Count delay kernels written out, as in Appendix C.")
]


def footprint(
    subject: Annotated[str, typer.Argument(metavar="RECIPE|CHECKPOINT|EXPORT", help="What to measure.")],
    target: Annotated[str | None, typer.Option("--target", metavar="CHIP", help="Show only this chip.")] = None,
    precision: Annotated[
        Precision | None,
        typer.Option("--precision", help="Precision of weights; with int8, buffers are int16. Default: float32."),
    ] = None,
    others: Annotated[bool, typer.Option("--published", help="Also show the published models of the task.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show parameters and buffer by component (by the paper's formulas; exactly for an export), and chips that fit."""
    from mgrade.deploy.footprint import measure_program, open_program
    from mgrade.footprint import CHIPS, find_chip, find_subject, measure, published
    from mgrade.footprint.measure import MAX_INTEGER_TERMS, widest

    chips = CHIPS if target is None else (find_chip(target),)
    if program := open_program(subject):
        if precision is not None or others:
            raise ValueError(
                f"{subject}: an export has its own precision, and no published models: leave the option out"
            )
        _show_program(subject, measure_program(program, chips), chips, as_json)
        return
    precision = precision or Precision.float32
    found = find_subject(subject)
    measured = measure(found.config, precision.value)
    beside = [row.to_dict() for row in published(found.experiment or "")]
    if as_json:
        print(json.dumps({"name": found.name, **measured.to_dict(chips), "published": beside}, indent=1))
        return
    screen = console()
    screen.print(f"{found.name}, {precision.value}: {_shape(measured)}")
    screen.print()
    screen.print(_components(measured))
    screen.print()
    screen.print(_chips(chips, measured.fits, lambda chip: measured.fits(chip, instantiated=True)))
    screen.print()
    if measured.too_wide:
        screen.print(
            f"fits nowhere in {precision.value}: a sum in its layers has {widest(found.config)} terms, and an integer"
            f" export allows at most {MAX_INTEGER_TERMS}",
        )
    screen.print(
        "fits: with delays as `mgrade export --snap` stores them; instantiated: with whole kernels, as without --snap\n"
        f"{_left_out(precision)}"
    )
    if others:
        screen.print()
        screen.print(_published(beside) if beside else "the paper has no published models of this task")


def size(
    ram: Annotated[str | None, typer.Option("--ram", help="RAM, as 64K. Default: the chip's.")] = None,
    flash: Annotated[
        str | None, typer.Option("--flash", help="Flash, as 256K; 0: all in RAM. Default: the chip's.")
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", metavar="HZ", help="Steps per second.")] = None,
    chip: Annotated[str | None, typer.Option("--chip", metavar="NAME", help="A chip of `mgrade footprint`.")] = None,
    precision: At = Precision.float32,
    inputs: Annotated[int, typer.Option(help="Input channels.")] = 1,
    outputs: Annotated[int, typer.Option(help="Output channels, or classes.")] = 10,
    instantiated: Instantiated = False,
    as_json: AsJson = False,
) -> None:
    """List the mGRADE configurations that fit a memory, largest first; with --rate and --chip, also fast enough."""
    from mgrade.footprint import sizes

    limits = _limits(ram, flash, rate, chip, precision.value)
    found = sizes(limits, inputs=inputs, outputs=outputs, precision=precision.value, instantiated=instantiated)
    if not found:
        raise ValueError(f"nothing on the grid fits {_says(limits)}")
    shown = found[:SHOWN]
    if as_json:
        document = {
            "ram": limits.ram,
            "flash": limits.flash,
            "operations": limits.operations,
            "precision": precision.value,
            "fitting": len(found),
            "configurations": [one.to_dict() for one in shown],
        }
        print(json.dumps(document, indent=1))
        return
    screen = console()
    told = f"{len(found):,} configurations fit {_says(limits)} at {precision.value}; the largest:"
    screen.print(told)
    screen.print(_candidates(shown, limits))
    stored = "written out" if instantiated else "as `mgrade export --snap` stores them; --instantiated: written out"
    screen.print(f"bytes: with delay kernels {stored}\n{_left_out(precision)}")


def _left_out(precision: Precision) -> str:
    """A note on what the paper's formulas leave out."""
    scales = ", and a byte for every row of a matrix, its scale" if precision is Precision.int8 else ""
    return f"not counted, so leave room for it: the program's code, about 10 KB{scales}"


def _limits(ram: str | None, flash: str | None, rate: float | None, name: str | None, precision: str) -> Limits:
    from mgrade.footprint import Limits, find_chip, parse_bytes

    chip = None if name is None else find_chip(name)
    for option, value in (("--ram", ram), ("--flash", flash)):
        if value is None and chip is None:
            raise ValueError(f"size needs {option}, or --chip, which has both")
    return Limits(
        ram=parse_bytes(ram) if ram is not None else chip.ram if chip else 0,
        flash=parse_bytes(flash) if flash is not None else chip.flash if chip else 0,
        operations=_operations(rate, chip, precision),
    )


def _operations(rate: float | None, chip: Chip | None, precision: str) -> float | None:
    """The multiply-accumulates a step may take; None without a rate."""
    if rate is None:
        return None
    if not 0 < rate < float("inf"):
        raise ValueError(f"--rate must be a number above 0, got {rate:g}")
    if chip is None:
        raise ValueError("--rate needs --chip: the time of a step depends on it")
    capacity = chip.capacity(precision)
    if capacity is None:
        raise ValueError(f"--rate: the speed of {chip.name} in {precision} is not known")
    return capacity / rate


def _says(limits: Limits) -> str:
    room = f"{limits.ram:,} B of RAM" + (f" and {limits.flash:,} B of flash" if limits.flash else " and no flash")
    steps = "" if limits.operations is None else f" and {limits.operations:,.0f} multiply-accumulates a step"
    return room + steps


def _shape(measured: Footprint) -> str:
    config = measured.config
    parts = [name for name in (config.conv, config.recurrence, config.mlp) if name != "none"]
    delays = {"delay": f", taps {config.taps}, max_delay {config.max_delay}", "dilated": f", taps {config.taps}"}
    return f"{' + '.join(parts)}, dim {config.dim}, depth {config.depth}" + delays.get(config.conv, "")


def _table(*columns: str, left: int = 1) -> Table:
    table = Table(box=None, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < left else "right", no_wrap=True)
    return table


def _components(measured: Footprint) -> Table:
    table = _table("component", "parameters", "bytes", "instantiated", "buffer", "bytes")
    figures = measured.to_dict(())

    def row(name: str, *values: int) -> None:
        table.add_row(name, *(f"{value:,}" if value else "" for value in values))

    for name, part in figures["components"].items():
        weights, kept = part["parameters"], part["buffer"]
        row(name, weights["count"], weights["bytes"], part["instantiated"]["count"], kept["count"], kept["bytes"])
    weights, kept = figures["parameters"], figures["buffer"]
    written = figures["instantiated"]["count"]
    row("all, by the paper's formulas", weights["count"], weights["bytes"], written, kept["count"], kept["bytes"])
    for name, extra in figures["left_out"].items():
        row(f"left out: {name}", extra["count"], extra["bytes"], extra["count"])
    truth = figures["exact"]
    row("the model itself, float32", truth["parameters"], truth["parameter_bytes"], 0, 0, truth["state_bytes"])
    return table


def _show_program(name: str, figures: dict[str, Any], chips: tuple[Chip, ...], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"name": name, **figures}, indent=1))
        return
    table = _table("operation", "times", "parameters", "bytes", "buffer", "bytes")
    every = {"operations": 0, "parameters": figures["parameters"], "buffer": figures["buffer"]}
    for kind, part in {**figures["components"], "all": every}.items():
        sizes = [part[what][unit] for what in ("parameters", "buffer") for unit in ("count", "bytes")]
        table.add_row(kind, *(f"{value:,}" if value else "" for value in (part["operations"], *sizes)))
    screen = console()
    screen.print(f"{name}: a program with {figures['precision']} activations")
    screen.print()
    screen.print(table)
    screen.print()
    screen.print(_chips(chips, lambda chip: figures["fits"][chip.name]))


def _chips(
    chips: tuple[Chip, ...], fits: Callable[[Chip], bool], instantiated: Callable[[Chip], bool] | None = None
) -> Table:
    verdicts = {"fits": fits, **({"instantiated": instantiated} if instantiated else {})}
    table = _table("chip", "core", "RAM", "flash", *verdicts, left=2)
    table.add_column("note", no_wrap=True)
    for chip in chips:
        flash = _size(chip.flash) if chip.flash else "-"
        words = ["yes" if verdict(chip) else "no" for verdict in verdicts.values()]
        table.add_row(chip.name, chip.core, _size(chip.ram), flash, *words, chip.note)
    return table


def _published(rows: list[dict[str, Any]]) -> Table:
    table = _table("published model", "parameters", "buffer", "by formula", "instantiated", "by formula")
    for row in rows:
        cells: list[str | None] = [row["parameters"]["printed"]]
        for figure in (row["buffer"], row["instantiated"]):
            cells += [figure["printed"], None if figure["formula_bytes"] is None else _size(figure["formula_bytes"])]
        table.add_row(row["model"], *(cell or "-" for cell in cells))
    return table


def _candidates(shown: list[Candidate], limits: Limits) -> Table:
    columns = ("dim", "depth", "taps", "max_delay", "parameters", "bytes", "buffer bytes", "operations")
    table = _table(*columns, *(() if limits.operations is None else ("load",)), left=0)
    for one in shown:
        load = [] if limits.operations is None else [f"{100 * one.operations / limits.operations:.0f} %"]
        table.add_row(*(f"{value:,}" for value in one.to_dict().values()), *load)
    return table


def _size(count: int) -> str:
    """Bytes as the paper prints them, 1024-based."""
    for unit, scale in (("G", 1024**3), ("M", 1024**2), ("K", 1024)):
        if count >= scale:
            return f"{count / scale:.2f}".rstrip("0").rstrip(".") + unit
    return str(count)
