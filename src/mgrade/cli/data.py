"""`mgrade data list`, `fetch`, `generate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from mgrade.cli.common import AsJson, check_seeds, console

data_app = typer.Typer(
    name="data",
    help="Data of the tasks: what is there, what is missing, and how to get it.",
    no_args_is_help=True,
)

Told = Callable[[int, "int | None"], None]
Where = Annotated[
    Path | None,
    typer.Option("--data", "--out", help="The data folder. Default: MGRADE_DATA, or the folder `data`."),
]


@data_app.command("list")
def show(
    data: Where = None,
    as_json: AsJson = False,
) -> None:
    """Show what is in the data folder, what is missing, and the command that gets it."""
    from mgrade.tasks.folder import making_way
    from mgrade.tasks.inventory import inventory

    folder = _folder(data)
    rows = inventory(folder, data)
    if as_json:
        print(json.dumps({"folder": str(folder), "sources": rows}, indent=1))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("name", "state", "what it is", "there", "to get it"):
        table.add_column(column, no_wrap=column in ("name", "state"))
    for row in rows:
        state = f"{row['state']}, for {row['only_for']}" if row.get("only_for") else row["state"]
        how = making_way(row.get("in_the_way", ())) + (row["command"] or "")
        table.add_row(row["name"], state, row["title"], ", ".join(row["there"]), how)
    screen = console()
    screen.print(f"data folder: {folder}{'' if folder.is_dir() else ', which does not exist'}")
    screen.print(table)


@data_app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="A name that `mgrade data list` shows.")],
    data: Where = None,
    address: Annotated[
        str | None,
        typer.Option(help="Address of a mirror: of the file, or of the folder if the source has several files."),
    ] = None,
    sha256: Annotated[str | None, typer.Option(help="The digest that the file must have.")] = None,
) -> None:
    """Download official data, compare its SHA-256 and unpack it; resumes an interrupted download."""
    from mgrade.tasks import download, series
    from mgrade.tasks.inventory import GENERATED
    from mgrade.tasks.sources import SOURCES

    folder = _folder(data)
    if name in GENERATED and name not in SOURCES:
        raise ValueError(f"name must be one of {', '.join(SOURCES)}; for {name}: mgrade data generate {name}")
    if name in series.PROBLEMS:
        raise ValueError(f"name must be one of {', '.join(SOURCES)}; for {name}: {series.GET}")
    with _bar(name, DownloadColumn()) as told:
        places = download.fetch(name, folder, address, sha256, told)
    print(f"{name}: {', '.join(map(str, places))}")


@data_app.command()
def generate(
    name: Annotated[str, typer.Argument(help="listops, pathfinder or pathx.")],
    data: Where = None,
    seed: Annotated[int, typer.Option(help="Seed; the same seed gives the same set.")] = 0,
    train: Annotated[int | None, typer.Option(help="listops: training examples.")] = None,
    validation: Annotated[int | None, typer.Option(help="listops: validation examples.")] = None,
    test: Annotated[int | None, typer.Option(help="listops: test examples.")] = None,
    count: Annotated[int | None, typer.Option(help="pathfinder, pathx: images, all splits together.")] = None,
    contour_length: Annotated[
        int | None, typer.Option(help="pathfinder, pathx: dashes of a curve, 6, 9 or 14.")
    ] = None,
) -> None:
    """Generate data by the rules of the official generators; by default, as many examples as the official sets have."""
    from mgrade.tasks.inventory import GENERATED, maker

    if name not in GENERATED:
        raise ValueError(f"name must be one of {', '.join(GENERATED)}, got {name!r}")
    check_seeds([seed])
    sizes = {"train": train, "validation": validation, "test": test}
    images = {"count": count, "contour_length": contour_length}
    wrong = images if name == "listops" else sizes
    for option, value in wrong.items():
        if value is not None:
            raise ValueError(f"--{option.replace('_', '-')} does not go with {name}, got {value}")
    options = {option: value for option, value in {**sizes, **images}.items() if value is not None}
    file, make = maker(name, contour_length)
    path = _folder(data) / file
    if path.exists():
        raise ValueError(f"{path} exists already; move it away to generate it again")
    with _bar(name, MofNCompleteColumn()) as told:
        make(path, seed=seed, progress=told, **options)
    print(f"{name}: {path}")


def _folder(data: Path | None) -> Path:
    from mgrade.tasks.folder import data_folder

    return data or data_folder()


@contextmanager
def _bar(name: str, amount: Any) -> Iterator[Told]:
    """Shows progress as a bar on a terminal, otherwise as a line at every tenth."""
    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield _Lines(name)
        return
    with Progress(TextColumn(name), BarColumn(), amount, TimeRemainingColumn(), console=screen) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _Lines:
    def __init__(self, name: str):
        self.name, self.tenth = name, 0

    def __call__(self, done: int, total: int | None) -> None:
        tenth = 10 * done // total if total else 0
        if tenth != self.tenth:
            self.tenth = tenth
            print(f"{self.name}: {done} of {total}", file=sys.stderr, flush=True)
