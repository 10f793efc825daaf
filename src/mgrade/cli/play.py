"""`mgrade play`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from mgrade.cli.common import Data, use_data


def play(
    source: Annotated[Path, typer.Argument(metavar="EXPORT", help="Folder of an export, a run or a saved model.")],
    build: Annotated[
        Path | None, typer.Option("--build", metavar="DIR", help="Write the page to host instead.")
    ] = None,
    test: Annotated[int, typer.Option("--test", metavar="N", help="Include N test sequences of the run.")] = 0,
    run: Annotated[
        Path | None, typer.Option("--run", help="The run EXPORT was made from: names, rates, --test.")
    ] = None,
    labels: Annotated[str | None, typer.Option(help="Names of the outputs, separated by commas.")] = None,
    rate: Annotated[
        int | None,
        typer.Option(metavar="HZ", help="Inputs are successive samples of sound, at this rate."),
    ] = None,
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address; open no browser.")] = False,
    data: Data = None,
) -> None:
    """Run an exported model in the browser, on microphone, file, drawn signal or test data, and watch its state."""
    from mgrade.play import open_exhibit, site, write_site

    use_data(data)
    names = tuple(name.strip() for name in labels.split(",")) if labels else ()
    files = site(open_exhibit(source, run=run, test=test, labels=names, rate=rate))
    if build is None:
        _serve(files, port, not no_browser)
        return
    write_site(files, build)
    print(
        f"written to {build}: {len(files)} files, {sum(map(len, files.values())):,} bytes; any static host serves them"
    )


def _serve(files: dict[str, bytes], port: int, browser: bool) -> None:
    """Serves the page until Ctrl-C."""
    from mgrade.play import Server

    with Server(files, port) as server:
        print(f"{server.address}\nonly for this machine; Ctrl-C ends it", flush=True)
        if browser and _display():
            import webbrowser

            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


def _display() -> bool:
    """Whether there is a display to open a browser on."""
    return sys.platform in ("win32", "darwin") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
