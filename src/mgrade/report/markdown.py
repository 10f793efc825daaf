"""Tables inside a Markdown page, filled from result files: `python -m mgrade.report.markdown docs/results.md`.

A table stands between `<!-- table: EXPERIMENT -->` and `<!-- end -->`, or `<!-- stages: RUN -->` for the stages of an
export; all else on the page is left as it is.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from mgrade._files import replace
from mgrade.report.tables import Row, rows

_PLACE = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.S)
_STAGES = re.compile(r"(<!-- stages: ([\w-]+) -->\n).*?(<!-- end -->)", re.S)
_HEAD = ("recipe", "figure", "paper", "ours", "seeds", "parameters", "state bytes")


def fill(text: str, results: Path) -> str:
    """The page with all its tables as the result files have them."""
    text = _PLACE.sub(lambda place: place[1] + table(rows([place[2]], results)) + place[3], text)
    return _STAGES.sub(lambda place: place[1] + stages(results / "deploy" / f"{place[2]}.json") + place[3], text)


def table(found: list[Row]) -> str:
    """Rows as a Markdown table."""
    lines = [_HEAD, ("---",) * len(_HEAD), *((f"`{name}`", *rest) for name, *rest in (row.cells() for row in found))]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def stages(path: Path) -> str:
    """The stages of an export as a Markdown table, and what emulated chips said."""
    if not path.is_file():
        return f"Not run: `mgrade stages RUN --chip cortex-m55 --out results/deploy/{path.name}`\n"
    found = json.loads(path.read_text("utf-8"))
    lines = ["| stage | accuracy | weights, bytes | state, bytes |", "| --- | --- | --- | --- |"]
    for stage in found["stages"]:
        accuracy = f"{100 * stage['figures']['accuracy']:.2f} %"
        lines.append(f"| {stage['name']} | {accuracy} | {stage['parameter_bytes']:,} | {stage['state_bytes']:,} |")
    for entry in found.get("chips", []):
        lines.append(
            f"\n{entry['precision']} on an emulated {entry['chip']}: {entry['flash_bytes']:,} bytes of flash, "
            f"{entry['ram_bytes']:,} of RAM, {entry['instructions']:,} instructions a step."
        )
    if dear := found.get("tensors"):
        one = dear[0]
        shape = " x ".join(map(str, one["shape"]))
        lines.append(f"\nWhat int8 costs most: the {shape} {one['array']} of operation {one['op']}, {one['kind']}.")
    return "\n".join(lines) + "\n"


def main(pages: list[str]) -> None:
    """Fills every page in place, from the folder `results` beside its own folder."""
    for page in map(Path, pages):
        text = page.read_text("utf-8")
        replace(page, fill(text, page.absolute().parent.parent / "results").encode())


if __name__ == "__main__":
    main(sys.argv[1:])
