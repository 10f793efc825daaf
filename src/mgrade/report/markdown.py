"""Tables inside a Markdown page, filled from result files: `python -m mgrade.report.markdown docs/results.md`.

A table stands between `<!-- table: EXPERIMENT -->` and `<!-- end -->`; all else on the page is left as it is.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from mgrade._files import replace
from mgrade.report.tables import Row, rows

_PLACE = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.S)
_HEAD = ("recipe", "figure", "paper", "ours", "seeds", "parameters", "state bytes")


def fill(text: str, results: Path) -> str:
    """The page with all its tables as the result files have them."""
    return _PLACE.sub(lambda place: place[1] + table(rows([place[2]], results)) + place[3], text)


def table(found: list[Row]) -> str:
    """Rows as a Markdown table."""
    lines = [_HEAD, ("---",) * len(_HEAD), *((f"`{name}`", *rest) for name, *rest in (row.cells() for row in found))]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(pages: list[str]) -> None:
    """Fills every page in place, from the folder `results` beside its own folder."""
    for page in map(Path, pages):
        text = page.read_text("utf-8")
        replace(page, fill(text, page.absolute().parent.parent / "results").encode())


if __name__ == "__main__":
    main(sys.argv[1:])
