"""The data folder: where it is, and how to get data that it lacks."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from mgrade.tasks.sources import SOURCES


def data_folder() -> Path:
    """The data folder: MGRADE_DATA, or `data`."""
    return Path(os.environ.get("MGRADE_DATA") or "data")


def reading_folder() -> Path:
    """The data folder, which must exist if MGRADE_DATA names it."""
    folder = data_folder()
    if os.environ.get("MGRADE_DATA") and not folder.is_dir():
        raise ValueError(f"MGRADE_DATA must be a folder, got {folder}")
    return folder


def fetching(name: str) -> str:
    """The command that fetches missing data, after what must be moved out of its way."""
    folder, source = data_folder(), SOURCES[name]
    there = "" if folder == Path("data") else option("--out", folder)
    # a source that `fetch` takes for complete must lack something inside, so all its places must go
    complete = [] if source.missing(folder) else [folder / place for place in source.places.values()]
    return f"{making_way(complete or source.in_the_way(folder))}`mgrade data fetch {name}{there}` gets it"


def making_way(places: Sequence[str | Path]) -> str:
    """The words before a command that say which places to move away first."""
    return f"move {' and '.join(map(str, places))} away, then " if places else ""


def option(name: str, folder: Path) -> str:
    """An option of a command to show, quoted for a shell where necessary."""
    return f" {name} {shlex.quote(str(folder))}"
