"""`mgrade recipes`, `train`, `evaluate`, `reproduce`."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from mgrade.cli.common import AsJson, Data, On, check_seeds, choose_device, console, first_here, say, use_data

if TYPE_CHECKING:
    from mgrade.train import Stopped

Out = Annotated[Path, typer.Option("--out", help="Folder of runs/ and results/.")]
Minutes = Annotated[
    float | None,
    typer.Option("--max-minutes", help="Stop after this many minutes; the run can be resumed."),
]


def recipes(
    name: Annotated[str | None, typer.Argument(help="Print this recipe, as a start for your own.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the recipes that ship with the package, or print one of them."""
    from mgrade.train import load_recipe, shipped
    from mgrade.train.recipe import heading, source

    if name is not None:
        print(json.dumps(load_recipe(name).to_dict(), indent=1) if as_json else source(name).rstrip())
        return
    names = shipped()
    if as_json:
        print(json.dumps({name: heading(name) for name in names}, indent=1))
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("recipe", no_wrap=True)
    table.add_column("what it reproduces")
    for name in names:
        if "@" not in name:
            variants = [other.partition("@")[2] for other in names if other.startswith(f"{name}@")]
            also = f" Variants: {', '.join('@' + variant for variant in variants)}." if variants else ""
            table.add_row(name, heading(name) + also)
    console().print(table)


def train(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe (see `mgrade recipes`) or a TOML file.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a value of the recipe, such as model.dim=64."),
    ] = None,
    seeds: Annotated[
        list[int] | None,
        typer.Option("--seed", help="Seed; repeat for several runs. Default: the recipe's."),
    ] = None,
    out: Out = Path(),
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run found under OUT, if any.")] = False,
    max_minutes: Minutes = None,
    device: On = None,
    data: Data = None,
    checkpoint_seconds: Annotated[float, typer.Option(help="Seconds between checkpoints.")] = 60.0,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also log for TensorBoard.")] = False,
) -> None:
    """Train a recipe: checkpoints and model under OUT/runs, a result file per seed under OUT/results."""
    from mgrade.train import Stopped, launch, load_recipe

    use_data(data)
    check_seeds(seeds or [])
    try:
        launch(
            load_recipe(recipe, settings or []),
            seeds=seeds or (),
            root=out,
            device=choose_device(device),
            resume=resume,
            max_minutes=max_minutes,
            checkpoint_seconds=checkpoint_seconds,
            tensorboard=tensorboard,
        )
    except Stopped as stopped:
        tell(stopped, "--resume continues from there")


def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run, such as runs/flipflop/mgrade/seed0.")],
    device: On = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate the model of a finished run on its test set again."""
    from mgrade.train import judge_run

    use_data(data)
    figures = judge_run(run, choose_device(device), say)
    if as_json:
        print(json.dumps(figures, indent=1))
        return
    for name, value in figures.items():
        print(f"{name} {value:.6f}")


def reproduce(
    experiments: Annotated[
        list[str], typer.Argument(help="Experiments, such as lorenz, or the groups theory, lra, ablation.")
    ],
    out: Out = Path(),
    max_minutes: Minutes = None,
    device: On = None,
    data: Data = None,
    show: Annotated[bool, typer.Option("--show", help="Only print existing results; run nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run the paper's experiments that have no result yet, and print the paper's figures and ours side by side."""
    from mgrade.report import rows
    from mgrade.report.tables import HEAD
    from mgrade.train import Stopped, run_missing

    use_data(data)
    if show and not out.is_dir():
        raise ValueError(f"--out must be a folder with results, got {out}")
    if not show:
        try:
            with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
                run_missing(experiments, root=out, device=choose_device(device), max_minutes=max_minutes)
        except Stopped as stopped:
            tell(stopped, "the same command continues from there")
    if not first_here():
        return
    found = rows(experiments, out / "results")
    if as_json:
        print(json.dumps([row.to_dict() for row in found], indent=1))
        return
    table = Table(box=None, pad_edge=False)
    for column in HEAD:
        table.add_column(column, justify="left" if column in ("recipe", "figure") else "right", no_wrap=True)
    for row in found:
        table.add_row(*row.cells())
    console().print(table)


def tell(stopped: Stopped, then: str) -> None:
    """Prints, once per machine, why training ended early and what to do `then`; after a signal, exits."""
    if first_here():
        say(f"{stopped}: {then}")
    if stopped.signal:
        raise SystemExit(128 + stopped.signal) from None
