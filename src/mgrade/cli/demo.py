"""`mgrade demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from mgrade.cli.common import Data, check_seeds, console, use_data
from mgrade.cli.training import tell


def demo(
    out: Annotated[Path, typer.Option(help="Output folder; files of an earlier demo there are replaced.")] = Path(
        "demo"
    ),
    epochs: Annotated[int | None, typer.Option(help="Training epochs.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the weights.")] = 0,
    data: Data = None,
) -> None:
    """Train a small model on real recordings, shrink it step by step, export it to C, and stream the test set."""
    from mgrade.demo import run
    from mgrade.train import Stopped

    use_data(data)
    check_seeds([seed])
    try:
        story = run(out, epochs, seed)
    except Stopped as stopped:
        tell(stopped, "the same command starts over")
        return
    table = Table(box=None, pad_edge=False)
    for column in ("Japanese Vowels: who speaks?", "test accuracy", "weights", "state of a stream"):
        table.add_column(column, justify="left" if column.endswith("?") else "right", no_wrap=True)
    for stage in story.stages:
        accuracy = f"{100 * stage.figures['accuracy']:.2f} %"
        table.add_row(stage.name, accuracy, f"{stage.parameter_bytes:,} B", f"{stage.state_bytes:,} B")
    screen = console()
    screen.print(table)
    screen.print(f"\ntrained in {story.train_seconds:.0f} s", end="")
    if story.step_microseconds is not None:
        screen.print(f"; a compiled step takes {story.step_microseconds:.2g} us on one core of this machine", end="")
    screen.print(f"\nfits {len(story.fits)} chips, the smallest first: {', '.join(story.fits[:4])}, …")
    screen.print(
        f"C files: {story.files}    try: mgrade export {out}/runs/vowels/mgrade/seed{seed} --verify cortex-m55",
    )
