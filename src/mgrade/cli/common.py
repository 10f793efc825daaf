"""What several commands share: options, consoles, and how they end."""

from __future__ import annotations

import os
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table


class Device(str, Enum):
    """Where to compute."""

    cpu = "cpu"
    cuda = "cuda"


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON alone.")]
On = Annotated[Device | None, typer.Option("--device", help="Default: cuda where there is one.")]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="Folder of the data sets. Default: MGRADE_DATA, or ./data."),
]


def use_data(folder: Path | None) -> None:
    """Makes `folder` the one that tasks read."""
    if folder is not None:
        if not folder.is_dir():
            raise ValueError(f"--data must be a folder, got {folder}")
        os.environ["MGRADE_DATA"] = str(folder.absolute())


def choose_device(device: Device | None) -> str:
    """The device asked for, or CUDA where there is one."""
    import torch

    return device.value if device else "cuda" if torch.cuda.is_available() else "cpu"


def check_seeds(seeds: list[int]) -> None:
    """Refuses a negative seed."""
    if min(seeds, default=0) < 0:
        raise ValueError(f"seed must be at least 0, got {min(seeds)}")


def console() -> Console:
    """Standard output: as wide as the terminal, or wide enough for every table where it goes elsewhere.

    Text is shown as it is: names and paths of users may look like markup or emoji.
    """
    return Console(width=None if sys.stdout.isatty() else 200, markup=False, emoji=False, highlight=False)


def visible(text: str) -> str:
    """Text that others wrote, so that a terminal shows it and does not obey it."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


class Listing(Table):
    """A table whose texts may be of others."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        """As a table has it, with what a terminal would obey made visible."""
        super().add_row(*(visible(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def listing() -> Table:
    """A table of names and values, both shown in full."""
    table = Listing(show_header=False, box=None, pad_edge=False)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    return table


def say(line: str) -> None:
    """One line on standard error."""
    print("mgrade:", visible(line), file=sys.stderr)


def fail(message: str) -> NoReturn:
    """What was written is whole, but does not do what it should."""
    say(message)
    raise SystemExit(1)


def first_here() -> bool:
    """Whether this is the only one of torchrun's processes on a machine that speaks for all."""
    return os.environ.get("LOCAL_RANK", "0") == "0"
