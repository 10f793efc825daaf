"""Fills the table of docs/quantisation.md from results/deploy: what every stage keeps, all runs side by side."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mgrade._files import replace

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "quantisation.md"
NAMES = {"fsdd": "Free Spoken Digits, raw sound", "speech10": "Speech Commands, raw sound", "vowels": "Japanese Vowels"}
_PLACE = re.compile(r"(<!-- quantisation -->\n).*?(<!-- end -->)", re.S)


def fill(text: str, results: Path) -> str:
    """The page with its table as the result files have it."""
    return _PLACE.sub(lambda place: place[1] + table(results) + place[2], text)


def table(results: Path) -> str:
    """A row for every stage, an accuracy and a number of bytes for every run."""
    files = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(results.glob("deploy/*.json"))}
    runs = {name: {stage["name"]: stage for stage in found["stages"]} for name, found in files.items()}
    head = ["stage", *(f"{NAMES.get(name, name)}{unit}" for name in runs for unit in ("", ": bytes"))]
    lines = [head, ["---"] * len(head)]
    for name in max(runs.values(), key=len, default={}):
        lines.append([name, *(cell for stages in runs.values() for cell in _cells(stages.get(name)))])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cells(stage: dict[str, Any] | None) -> tuple[str, str]:
    if stage is None:
        return "not run", ""
    return f"{stage['figures']['accuracy']:.2%}", f"{stage['parameter_bytes'] + stage['state_bytes']:,}"


if __name__ == "__main__":
    replace(PAGE, fill(PAGE.read_text("utf-8"), ROOT / "results").encode())
