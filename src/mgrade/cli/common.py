"""Shared by the commands: options, consoles, and exits."""

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
    """A device to compute on."""

    cpu = "cpu"
    cuda = "cuda"


AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON.")]
On = Annotated[Device | None, typer.Option("--device", help="Default: cuda if available.")]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="Folder of the data sets. Default: MGRADE_DATA, or ./data."),
]


def use_data(folder: Path | None) -> None:
    """Makes tasks read their data from `folder`."""
    if folder is not None:
        if not folder.is_dir():
            raise ValueError(f"--data must be a folder, got {folder}")
        os.environ["MGRADE_DATA"] = str(folder.absolute())


def choose_device(device: Device | None) -> str:
    """The given device, or CUDA if available."""
    import torch

    return device.value if device else "cuda" if torch.cuda.is_available() else "cpu"


def check_seeds(seeds: list[int]) -> None:
    """Refuses a negative seed."""
    if min(seeds, default=0) < 0:
        raise ValueError(f"seed must be at least 0, got {min(seeds)}")


def console() -> Console:
    """Standard output: as wide as the terminal, or wide enough for every table if there is none.

    Text is printed literally: users' names and paths may look like markup or emoji.
    """
    return Console(width=None if sys.stdout.isatty() else 200, markup=False, emoji=False, highlight=False)


def visible(text: str) -> str:
    """Foreign text with its control characters escaped: a terminal shows them instead of obeying them."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


class Listing(Table):
    """A table that may hold foreign text."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        """As in `Table`, with control characters escaped."""
        super().add_row(*(visible(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def listing() -> Table:
    """A table of names and values, both shown in full."""
    table = Listing(show_header=False, box=None, pad_edge=False)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    return table


def say(line: str) -> None:
    """Prints one line to standard error."""
    print("mgrade:", visible(line), file=sys.stderr)


def fail(message: str) -> NoReturn:
    """Exits with status 1: the output is complete but failed its check."""
    say(message)
    raise SystemExit(1)


def first_here() -> bool:
    """Whether this process prints for all of torchrun's processes on this machine."""
    return os.environ.get("LOCAL_RANK", "0") == "0"
