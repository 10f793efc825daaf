"""The command line: a thin door. It parses, calls, prints; the work is done elsewhere."""

from __future__ import annotations

import json
import platform
import sys
from importlib import metadata
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from mgrade.cli import deploy, footprint, training
from mgrade.cli.data import data_app

app = typer.Typer(
    name="mgrade",
    help="Compact sequence models that train in parallel and run one sample at a time, in constant memory.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


for _command in (
    training.recipes,
    training.train,
    training.evaluate,
    training.reproduce,
    footprint.footprint,
    footprint.size,
    deploy.export,
    deploy.stream,
):
    app.command()(_command)
app.add_typer(data_app, name="data")


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line; a mistake of the user's is one line on stderr and exit status 2."""
    try:
        sys.exit(app(arguments, standalone_mode=False))
    except ValueError as error:
        _stop(str(error), 2)
    except KeyboardInterrupt:
        _stop("interrupted", 130)
    except Exception as error:
        if not hasattr(error, "format_message"):  # what the parser raises for a wrong command line
            raise
        _stop(error.format_message(), 2)


def _stop(message: str, status: int) -> None:
    print("mgrade:", " ".join(message.split()), file=sys.stderr)
    sys.exit(status)


@app.callback()
def _root() -> None:
    """Keeps `mgrade COMMAND` the form of every call."""


@app.command()
def info(as_json: Annotated[bool, typer.Option("--json", help="Print JSON alone.")] = False) -> None:
    """Say versions, devices and which backends are active."""
    facts = _facts()
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in facts.items():
        table.add_row(name, ", ".join(value) if isinstance(value, list) else str(value))
    Console().print(table)


def _facts() -> dict[str, str | list[str]]:
    import torch

    import mgrade
    from mgrade.ops import available

    try:
        triton = metadata.version("triton")
    except metadata.PackageNotFoundError:
        triton = "not installed"
    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "mgrade": mgrade.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton,
        "devices": [f"cpu ({torch.get_num_threads()} threads)", *cuda],
        "backends": list(available()),
        "default on cpu": "c" if "c" in available() else "reference (no C compiler was found at installation)",
        "default on cuda": "triton" if "triton" in available() else "not available",
    }


@app.command()
def demo(
    steps: Annotated[int, typer.Option(help="Training steps.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of weights and data.")] = 0,
) -> None:
    """Train a one-layer model on Flip-Flop strings, then stream the test strings through it."""
    from mgrade.demo import run

    console = Console()
    if console.is_terminal:
        columns = (
            TextColumn("training"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} steps, loss {task.fields[loss]:.4f},"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console) as bar:
            task = bar.add_task("training", total=steps, loss=float("nan"))
            result = run(
                steps=steps,
                seed=seed,
                progress=lambda step, loss: bar.update(task, completed=step, loss=loss),
            )
    else:
        every = max(1, steps // 10)

        def line(step: int, loss: float) -> None:
            if step % every == 0:
                print(f"training {step}/{steps} steps, loss {loss:.4f}", flush=True)

        result = run(steps=steps, seed=seed, progress=line)
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("task", "Flip-Flop: recall the last written bit through about 100 distracting symbols")
    table.add_row("recall, streamed symbol by symbol", f"{100 * result.recall:.2f} %")
    table.add_row("predictions equal to the parallel pass", "yes, all" if result.streamed_equal else "NO")
    table.add_row("parameters", f"{result.parameter_bytes:,} bytes")
    table.add_row("state of one stream", f"{result.state_bytes:,} bytes, whatever the length")
    table.add_row("training", f"{result.train_seconds:.1f} s")
    table.add_row("a step of 500 streams at once", f"{result.step_microseconds:.0f} us")
    console.print(table)
    if not result.streamed_equal:
        raise SystemExit(1)
