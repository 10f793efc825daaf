"""Tables inside a Markdown page, filled from result files: `python -m mgrade.report.markdown docs/results.md`.

Every table stands between a comment that names it and `<!-- end -->`; the rest of the page is left alone. The names:

<!-- table: EXPERIMENT -->            the paper's figures and ours
<!-- table: EXPERIMENT by OPTION -->  with a column for every value of that option of the task
<!-- summary -->                      what mGRADE has reached in every experiment
<!-- rows -->                         the learned delays of images
<!-- stages: RUN -->                  the stages of one run's export
<!-- quantisation -->                 the stages of all exports side by side
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mgrade._files import replace
from mgrade.report.figures.delays import at_whole_rows, with_delays
from mgrade.report.runs import all_runs, by_recipe
from mgrade.report.tables import HEAD, Row, rows
from mgrade.train import load_recipe, shipped

# What the table of all exports calls their tasks.
TITLES = {
    "fsdd": "Free Spoken Digits, raw sound",
    "speech10": "Speech Commands, raw sound",
    "vowels": "Japanese Vowels",
}


def fill(text: str, results: Path) -> str:
    """The page with all its tables as the result files have them."""
    tables: dict[str, Callable[..., str]] = {
        r"table: ([\w-]+)(?: by (\w+))?": lambda experiment, option: table(rows([experiment], results), option),
        r"summary": lambda: summary(results),
        r"rows": lambda: whole_rows(results),
        r"stages: ([\w-]+)": lambda run: stages(results / "deploy" / f"{run}.json"),
        r"quantisation": lambda: quantisation(results),
    }
    for name, made in tables.items():
        text = _filled(text, name, made)
    return text


def _filled(text: str, name: str, made: Callable[..., str]) -> str:
    """With all tables that match `name` replaced by what `made` returns for the groups in it."""
    place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.S)
    return place.sub(lambda found: found[1] + made(*found.groups()[1:-1]) + found.groups()[-1], text)


def table(found: list[Row], option: str | None = None) -> str:
    """Rows as a Markdown table. With an option of the task, rows that differ only in it share a line."""
    if option:
        head, body = _by(found, option)
    else:
        head, body = HEAD, [row.cells() for row in found]
    lines = [head, ("---",) * len(head), *((f"`{name}`", *rest) for name, *rest in body)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _by(found: list[Row], option: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The head and the lines of a table with a column for every value of an option.

    A line has the name of its recipes, without the value that variants have in theirs.
    """
    lines: dict[tuple[str, str], dict[float, tuple[str, ...]]] = {}
    for row in found:
        value = getattr(load_recipe(row.recipe).task, option)
        name = row.recipe.replace(f"@{value}-", "@…-").removesuffix(f"@{value}")
        lines.setdefault((name, row.figure), {})[value] = row.cells()
    values = sorted({value for line in lines.values() for value in line})
    head = ("recipe", "figure", "paper", *(f"ours, {option} {value}" for value in values), "seeds each", *HEAD[-2:])
    body = []
    for (name, figure), line in sorted(lines.items()):
        ours = (line[value][3] if value in line else "" for value in values)
        seeds = ", ".join(sorted({cells[4] for cells in line.values()}))
        _, _, paper, _, _, *sizes = next(iter(line.values()))
        body.append((name, figure, paper, *ours, seeds, *sizes))
    return head, body


def summary(results: Path) -> str:
    """A line for every experiment: its first mGRADE recipe if that has run, else only a name in the list below."""
    experiments = sorted({name.partition("/")[0] for name in shipped()})
    found = [rows([experiment], results) for experiment in experiments]
    firsts = [next(row for row in of_one if row.recipe.partition("/")[2].startswith("mgrade")) for of_one in found]
    lines = [f"| {' | '.join(HEAD)} |", "|" + " --- |" * len(HEAD)]
    lines += [f"| `{row.recipe}` | {' | '.join(row.cells()[1:])} |" for row in firsts if row.ours]
    if missing := [f"`{row.recipe}`" for row in firsts if not row.ours]:
        lines.append(f"\nNot run yet, each one command (`mgrade train NAME`): {', '.join(missing)}.")
    return "\n".join(lines) + "\n"


def whole_rows(results: Path) -> str:
    """A line for every mGRADE trained on images: the share of its delays that are whole rows of pixels."""
    lines = [
        "| recipe | pixels of a row | at whole rows, layer by layer | at the start | by chance |",
        "| --- | --- | --- | --- | --- |",
    ]
    for run in with_delays(by_recipe(all_runs(results))[0]):
        if found := at_whole_rows(run):
            shares = ", ".join(f"{share:.3f}" for share in found.layers)
            lines.append(f"| `{run.name}` | {found.row} | {shares} | {found.start:.3f} | {found.chance:.3f} |")
    return "\n".join(lines) + "\n"


def stages(path: Path) -> str:
    """The stages of an export as a Markdown table, and the results of emulated chips."""
    if not path.is_file():
        return f"Not run: `mgrade stages RUN --verify cortex-m55 --out results/deploy/{path.name}`\n"
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


def quantisation(results: Path) -> str:
    """A row for every stage; an accuracy and a number of bytes for every run."""
    files = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(results.glob("deploy/*.json"))}
    runs = {name: {stage["name"]: stage for stage in found["stages"]} for name, found in files.items()}
    head = ["stage", *(f"{TITLES.get(name, name)}{unit}" for name in runs for unit in ("", ": bytes"))]
    lines = [head, ["---"] * len(head)]
    for name in max(runs.values(), key=len, default={}):
        lines.append([name, *(cell for of_run in runs.values() for cell in _cells(of_run.get(name)))])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cells(stage: dict[str, Any] | None) -> tuple[str, str]:
    if stage is None:
        return "not run", ""
    return f"{stage['figures']['accuracy']:.2%}", f"{stage['parameter_bytes'] + stage['state_bytes']:,}"


def main(pages: list[str]) -> None:
    """Fills every page in place, from the folder `results` in its own folder or in the one above."""
    for page in map(Path, pages):
        text = page.read_text("utf-8")
        beside = page.absolute().parent
        results = next(folder / "results" for folder in (beside, beside.parent) if (folder / "results").is_dir())
        replace(page, fill(text, results).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
