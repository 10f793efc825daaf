"""`mgrade report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mgrade.cli.common import say


def report(
    results: Annotated[Path, typer.Option(help="Folder of result files.")] = Path("results"),
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    figures: Annotated[
        Path | None,
        typer.Option(help="Also write every figure to this folder, as SVG and PNG."),
    ] = None,
) -> None:
    """Write one page of all results: the paper's tables and figures beside ours."""
    from mgrade._files import make_folder, prepare_place, replace
    from mgrade.report.images import write_images
    from mgrade.report.page import MARK, build, read

    found = read(results)
    prepare_place(out, MARK)
    if figures is not None:
        make_folder(figures)
    page, drawn = build(found)
    try:
        replace(out, page.encode())
        lacking = None if figures is None else write_images(drawn, figures)
    except OSError as error:
        raise ValueError(f"{error.filename or out}: cannot be written: {error.strerror}") from None
    print(f"{out}: {len(page.encode()) / 1e6:.1f} MB, {len(drawn)} figure{'s' * (len(drawn) != 1)}")
    if not found.runs():
        print(f"{results} has no runs yet; the quickest is: mgrade train vowels/mgrade")
    if lacking is not None:
        say(lacking)
