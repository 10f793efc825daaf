"""`mgrade data list`, `fetch`, `generate`."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from mgrade.cli.training import check_seeds

data_app = typer.Typer(
    name="data",
    help="Data of the tasks: what is there, what is missing, and how to get it.",
    no_args_is_help=True,
)

Told = Callable[[int, "int | None"], None]
Number = Optional[int]  # noqa: UP045
Where = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--data", "--out", help="The data folder. Default: MGRADE_DATA, or the folder `data`."),
]

# What is generated: the file, what in the data folder is read in its place, all that must then be there, and a title.
GENERATED = {
    "listops": (
        "listops.npz",
        "listops/basic_*.tsv",
        [f"listops/basic_{part}.tsv" for part in ("train", "val", "test")],
        "ListOps (Long Range Arena), generated",
    ),
    "pathfinder": (
        "pathfinder32.npz",
        "pathfinder32",
        ["pathfinder32/curv_contour_length_14"],
        "Pathfinder, 32 x 32 (Long Range Arena), generated",
    ),
    "pathx": (
        "pathfinder128.npz",
        "pathfinder128",
        ["pathfinder128/curv_contour_length_14"],
        "Path-X, 128 x 128 (Long Range Arena), generated",
    ),
}


@data_app.command("list")
def show(
    data: Where = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON alone.")] = False,
) -> None:
    """Say what is in the data folder, what is missing, and the command that gets it."""
    folder = _folder(data)
    rows = [_fetched(name, folder, data) for name in _sources()]
    rows += [_generated(name, folder, data) for name in GENERATED]
    rows += [_packaged(name, folder) for name in _problems()]
    if as_json:
        print(json.dumps({"folder": str(folder), "sources": rows}, indent=1))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("name", "state", "what it is", "there", "to get it"):
        table.add_column(column, no_wrap=column in ("name", "state"))
    for row in rows:
        state = f"{row['state']}, for {row['only_for']}" if row.get("only_for") else row["state"]
        table.add_row(row["name"], state, row["title"], ", ".join(row["there"]), row["command"] or "")
    console = Console(width=None if sys.stdout.isatty() else 200, markup=False, emoji=False)  # names are names
    console.print(f"data folder: {folder}", highlight=False)
    console.print(table)


@data_app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="A name that `mgrade data list` shows.")],
    data: Where = None,
    address: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="A mirror: the file's address, or the folder's where a source has several files."),
    ] = None,
    sha256: Annotated[Optional[str], typer.Option(help="The digest that the file must have.")] = None,  # noqa: UP045
) -> None:
    """Download official data, compare its SHA-256 and unpack it; goes on with a download that broke off."""
    from mgrade.tasks import download, series
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
    seed: Annotated[int, typer.Option(help="Seed: the set is a function of it.")] = 0,
    train: Annotated[Number, typer.Option(help="listops: training examples.")] = None,
    validation: Annotated[Number, typer.Option(help="listops: validation examples.")] = None,
    test: Annotated[Number, typer.Option(help="listops: test examples.")] = None,
    count: Annotated[Number, typer.Option(help="pathfinder, pathx: images, all splits together.")] = None,
    contour_length: Annotated[Number, typer.Option(help="pathfinder, pathx: dashes of a curve, 6, 9 or 14.")] = None,
) -> None:
    """Generate data by the rules of the official generators; as many as the official sets have, if not said."""
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
    path, make = _made(name, contour_length)
    path = _folder(data) / path
    if path.exists():
        raise ValueError(f"{path} is there already; move it away to generate it anew")
    with _bar(name, MofNCompleteColumn()) as told:
        make(path, seed=seed, progress=told, **options)
    print(f"{name}: {path}")


def _made(name: str, contour_length: int | None) -> tuple[Path, Callable[..., None]]:
    """The file that a set is called, and what makes it."""
    if name == "listops":
        from mgrade.tasks import listops

        return Path(GENERATED[name][0]), listops.generate_set
    from mgrade.tasks import pathfinder

    size = 32 if name == "pathfinder" else 128
    file = pathfinder.file_name(size, 14 if contour_length is None else contour_length)
    return Path(file), functools.partial(pathfinder.generate_set, size=size)


def _folder(data: Path | None) -> Path:
    from mgrade.tasks.labelled import data_folder

    return data or data_folder()


def _sources() -> list[str]:
    from mgrade.tasks.sources import SOURCES

    return list(SOURCES)


def _problems() -> list[str]:
    from mgrade.tasks.series import PROBLEMS

    return list(PROBLEMS)


def _fetched(name: str, folder: Path, data: Path | None) -> dict[str, Any]:
    """A row of the list, of something to fetch."""
    from mgrade.tasks.sources import SOURCES

    source = SOURCES[name]
    missing = source.missing(folder)
    compact = [file for file in source.compact if (folder / file).is_file()]
    there = [place for place in source.places.values() if (folder / place).exists()] + compact
    whole = compact and len(compact) == len(source.compact)
    state = "there" if not missing else "compact" if whole else "incomplete" if there else "missing"
    return {
        "name": name,
        "state": state,
        "only_for": source.compact_for if state == "compact" else None,
        "title": source.title,
        "there": there,
        "missing": missing,
        "command": _command("fetch", name, data) if missing else None,
    }


def _generated(name: str, folder: Path, data: Path | None) -> dict[str, Any]:
    """A row of the list, of something to generate."""
    file, official, needs, title = GENERATED[name]
    first = any(folder.glob(official))
    needs = needs if first else [file]
    there = [official.split("/")[0]] * first + [file] * (folder / file).is_file()
    missing = [need for need in needs if not (folder / need).exists()]
    return {
        "name": name,
        "state": "there" if not missing else "incomplete" if there else "missing",
        "title": title,
        "there": there,
        "missing": missing,
        "command": None if there else _command("generate", name, data),
    }


def _packaged(name: str, folder: Path) -> dict[str, Any]:
    """A row of the list, of something that a package holds if the data folder does not."""
    from mgrade.tasks.series import GET, PROBLEMS

    task = PROBLEMS[name]
    source = task.source(folder)
    compact = source is not None and source.is_file()
    missing = [file for file in task.files if source is None or not (compact or (source / file).is_file())]
    return {
        "name": name,
        "state": "missing" if source is None else "compact" if compact else "incomplete" if missing else "there",
        "title": task.title,
        "there": [] if source is None else [str(source)],
        "missing": missing,
        "command": GET if source is None else None,
    }


def _command(verb: str, name: str, data: Path | None) -> str:
    from mgrade.tasks.labelled import option

    return f"mgrade data {verb} {name}" + (option("--data", data) if data else "")


@contextmanager
def _bar(name: str, amount: Any) -> Iterator[Told]:
    """Something to tell how far it is: a bar on a terminal, otherwise a line at every tenth."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(name)
        return
    with Progress(TextColumn(name), BarColumn(), amount, TimeRemainingColumn(), console=console) as bar:
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
