"""The tasks' data in a folder: what is there, what is missing, and the command that gets or generates it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mgrade.tasks import listops, pathfinder
from mgrade.tasks.folder import option
from mgrade.tasks.series import GET, PROBLEMS
from mgrade.tasks.sources import SOURCES


@dataclass(frozen=True)
class Generated:
    """Data to generate: its file, the official files that tasks read first, and those needed then."""

    title: str
    file: str
    official: str
    needs: tuple[str, ...]


GENERATED = {
    "listops": Generated(
        "ListOps (Long Range Arena), generated",
        "listops.npz",
        "listops/basic_*.tsv",
        tuple(f"listops/basic_{part}.tsv" for part in ("train", "val", "test")),
    ),
    "pathfinder": Generated(
        "Pathfinder, 32 x 32 (Long Range Arena), generated",
        pathfinder.file_name(32),
        "pathfinder32",
        ("pathfinder32/curv_contour_length_14",),
    ),
    "pathx": Generated(
        "Path-X, 128 x 128 (Long Range Arena), generated",
        pathfinder.file_name(128),
        "pathfinder128",
        ("pathfinder128/curv_contour_length_14",),
    ),
}


def inventory(folder: Path, given: Path | None = None) -> list[dict[str, Any]]:
    """A row for every data set; commands name the folder as `given`, if it was."""
    where = option("--data", given) if given else ""
    rows = [_fetched(name, folder, where) for name in SOURCES]
    rows += [_generated(name, folder, where) for name in GENERATED]
    return rows + [_packaged(name, folder) for name in PROBLEMS]


def maker(name: str, contour_length: int | None = None) -> tuple[str, Callable[..., None]]:
    """The file name of a generated set, and the function that generates it."""
    if name == "listops":
        return GENERATED[name].file, listops.generate_set
    size = 32 if name == "pathfinder" else 128
    file = pathfinder.file_name(size, 14 if contour_length is None else contour_length)
    return file, functools.partial(pathfinder.generate_set, size=size)


def _fetched(name: str, folder: Path, where: str) -> dict[str, Any]:
    source = SOURCES[name]
    missing = source.missing(folder)
    official = [place for place in source.places.values() if (folder / place).exists()]  # tasks read these first
    compact = [file for file in source.compact if (folder / file).is_file()]
    there = official + compact
    if not missing:
        state = "there"
    elif compact and len(compact) == len(source.compact) and not official:
        state = "compact"
    else:
        state = "incomplete" if there else "missing"
    return {
        "name": name,
        "state": state,
        "only_for": source.compact_for if state == "compact" else None,
        "title": source.title,
        "there": there,
        "missing": missing,
        "in_the_way": [str(place) for place in source.in_the_way(folder)],
        "command": f"mgrade data fetch {name}{where}" if missing else None,
    }


def _generated(name: str, folder: Path, where: str) -> dict[str, Any]:
    made = GENERATED[name]
    first = any(folder.glob(made.official))
    needs = made.needs if first else (made.file,)
    there = [made.official.split("/")[0]] * first + [made.file] * (folder / made.file).is_file()
    missing = [need for need in needs if not (folder / need).exists()]
    return {
        "name": name,
        "state": "there" if not missing else "incomplete" if there else "missing",
        "title": made.title,
        "there": there,
        "missing": missing,
        "command": None if there else f"mgrade data generate {name}{where}",
    }


def _packaged(name: str, folder: Path) -> dict[str, Any]:
    """The row of a data set that may also come with a package."""
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
