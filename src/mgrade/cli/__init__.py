"""The command line: a thin door. It parses, calls and prints; the work is done elsewhere."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

import mgrade
from mgrade.cli import demo, deploy, fit, footprint, info, play, report, training
from mgrade.cli.common import first_here, say
from mgrade.cli.data import data_app

app = typer.Typer(
    name="mgrade",
    help="Compact sequence models that train in parallel and run one sample at a time, in constant memory.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
# How PyTorch reports a lack of memory.
_NO_MEMORY = re.compile("allocate memory|out of memory|size calculation overflowed|multiplication overflow")
# What a process reports after another one has exited, which gave the reason.
_LEFT_ALONE = re.compile(r"gloo|NCCL|[Cc]onnection (closed|reset)")

for _command in (
    fit.fit,
    training.recipes,
    training.train,
    training.evaluate,
    training.reproduce,
    report.report,
    footprint.footprint,
    footprint.size,
    deploy.export,
    deploy.stream,
    deploy.stages,
    play.play,
    info.info,
    demo.demo,
):
    app.command()(_command)
app.add_typer(data_app, name="data")


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line; a user's mistake gives one line on stderr and exit status 2."""
    before = signal.signal(signal.SIGTERM, _leave) if threading.current_thread() is threading.main_thread() else None
    try:
        _run(arguments)
    except SystemExit as leaving:
        if "WORLD_SIZE" in os.environ:  # one of torchrun's processes
            from mgrade.train.processes import end

            end(leaving.code if isinstance(leaving.code, int) else 0)
        raise
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Exits as `kill` asks, but cleans up first."""
    sys.exit(128 + number)


def _run(arguments: list[str] | None) -> NoReturn:
    try:
        status = app(arguments, standalone_mode=False)
        if status == 130:  # what typer makes of Ctrl-C inside a command
            raise KeyboardInterrupt
        sys.exit(status)
    except ValueError as error:
        _stop(str(error), 2)
    except OSError as error:
        _stop(": ".join(str(part) for part in (error.filename, error.strerror or error) if part), 2, alike=False)
    except KeyboardInterrupt:
        _stop("interrupted", 130)
    except Exception as error:
        if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error))):
            asked = re.search(r"allocate ([\d.]+ \w+)", str(error))
            amount = f", {asked[1]} more were needed" if asked else ""
            _stop(f"out of memory{amount}: a smaller model, batch or task takes less", 2, alike=False)
        if isinstance(error, RuntimeError) and not first_here() and _LEFT_ALONE.search(str(error)):
            sys.exit(2)
        if not hasattr(error, "format_message"):  # not a usage error of the parser
            raise
        if type(error).__name__ == "NoArgsIsHelpError":  # the help has been printed
            sys.exit(2)
        _stop(_worded(error), 2)


def _worded(error: Any) -> str:
    """The parser's message about a wrong command line, with the value if the message lacks it."""
    message: str = error.format_message().replace("Value error, ", "").rstrip(".")
    details: list[Any] = getattr(error.__cause__, "errors", list)()  # of a failed validation
    given = f"{details[0]['input']!r:.40}" if details else ""
    return message if given in message else f"{message}, got {given}"


def _stop(message: str, status: int, *, alike: bool = True) -> NoReturn:
    """Prints the reason and exits; one that stops all of torchrun's processes `alike` is printed once per machine."""
    if not alike or first_here():
        say(" ".join(message.split()))
    sys.exit(status)


def _version(asked: bool) -> None:
    if asked:
        print("mgrade", mgrade.__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Holds the options that come before a command."""
