"""Options, headers, tables and result files of the benchmarks."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks import contenders, measure, peers
from benchmarks.configurations import CONFIGURATIONS, Configuration
from benchmarks.contenders import Workload
from mgrade import ops
from mgrade._provenance import commit, hardware, versions

ROOT = Path(__file__).resolve().parent.parent


def arguments(description: str, repeats: int, names: list[str]) -> argparse.ArgumentParser:
    """The options shared by the CPU and the GPU script. names: the configurations to choose from."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bench", help="folder for the JSON file")
    parser.add_argument("--peers", type=Path, metavar="DIR", help="folder with the peers' packages, if not installed")
    parser.add_argument("--skip-peers", action="store_true", help="measure only mgrade")
    parser.add_argument("--no-compile", action="store_true", help="skip torch.compile of the peers")
    parser.add_argument("--repeats", type=int, default=repeats, help="samples per contender (default: %(default)s)")
    parser.add_argument("--only", default=",".join(names), help="configurations, with commas (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a smoke run: small data, two samples, no torch.compile")
    parser.add_argument("--commit", help="commit to record if there is no git")
    return parser


def parse(parser: argparse.ArgumentParser, argv: list[str] | None) -> argparse.Namespace:
    """Parses options, chooses `configurations` and puts the peers' folder on the path."""
    options = parser.parse_args(argv)
    allowed = parser.get_default("only").split(",")
    names = [name.strip() for name in options.only.split(",")]
    for name in names:
        if name not in allowed:
            parser.error(f"--only: no configuration {name!r}; choose from {', '.join(allowed)}")
    if options.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {options.repeats}")
    if options.peers is not None:
        if not options.peers.is_dir():
            parser.error(f"--peers: no folder {options.peers}")
        sys.path.append(str(options.peers.resolve()))
    if options.quick:
        options.repeats, options.no_compile = min(options.repeats, 2), True
    options.configurations = [CONFIGURATIONS[name] for name in names]
    return options


def show_header(document: dict[str, Any]) -> None:
    """Prints a line on the machine and one on each peer."""
    machine = document["hardware"]
    where = machine.get("gpu") or f"{machine['cpu']}, {machine['threads']} threads"
    print(f"{where}, copy {document['copy_bandwidth'] / 1e9:,.1f} GB/s, torch {document['versions']['torch']}")
    for name, version in document["peers"].items():
        print(f"{name}: {version}")
    sys.stdout.flush()


def header(options: argparse.Namespace, device: str) -> dict[str, Any]:
    """Hardware, versions, commit, date, peers and the device's copy bandwidth."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": options.commit or commit(),
        "quick": options.quick,
        "repeats": options.repeats,
        "hardware": hardware(torch.device(device)),
        "versions": versions(),
        "mgrade_backends": list(ops.available()),
        "peers": {} if options.skip_peers else peers.availability(device),
        "copy_bandwidth": measure.copy_bandwidth(device, options.quick),
        "units": "seconds and bytes; floor_share: the byte floor's time over the measured one",
    }


def comparison(
    configuration: Configuration, results: dict[str, Any], bandwidth: float, floor_bytes: int | None = None
) -> dict[str, Any]:
    """The entry of one configuration: what was run, the floor, and the contenders relative to it."""
    floor = None if floor_bytes is None else floor_bytes / bandwidth
    return {
        "configuration": configuration.describe(),
        "floor": floor,
        "contenders": measure.relate(results, floor),
    }


# The parts that `parts` can measure, and the titles of their tables.
PARTS = {
    "scan": "Scan of one layer, forward and backward",
    "convolution": "Convolution of one layer, forward and backward",
    "recurrent_layer": "Recurrent layer with its matrix products, forward and backward",
}


def parts(
    workload: Workload, bandwidth: float, repeats: int, with_peers: bool, names: Iterable[str] = tuple(PARTS)
) -> dict[str, dict[str, Any]]:
    """Compares contenders on each part of one layer, forward and backward."""
    c = workload.configuration
    questions = {
        "scan": (contenders.scans, c.scan_bytes()),
        "convolution": (contenders.convolutions, c.conv_bytes()),
        "recurrent_layer": (contenders.recurrent_layers, None),
    }
    results = {}
    for name in names:
        build, floor = questions[name]
        measured = measure.compare(build(workload, with_peers), workload.device, repeats)
        results[name] = comparison(c, measured, bandwidth, floor)
    return results


def show_parts(parts: dict[str, dict[str, Any]]) -> None:
    """Prints the tables of all parts; parts: part -> configuration -> comparison."""
    for name, entries in parts.items():
        show(PARTS[name], entries)


def show(title: str, entries: dict[str, Any]) -> None:
    """Prints a table of comparisons, contender by contender, with times in milliseconds."""
    columns = ("", "contender", "ms", "over mgrade", "of the floor", "peak MB", "over mgrade")
    rows = [row for name, entry in entries.items() for row in _rows(name, entry)]
    table(title, columns, rows)


def _rows(name: str, entry: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for contender, result in entry["contenders"].items():
        if "median" not in result:
            yield name, contender, result.get("unavailable") or f"FAILED {result['failed']}", "", "", "", ""
            continue
        yield (
            name,
            contender,
            f"{result['median'] * 1e3:.3f}",
            f"{result['over_mgrade']:.2f}x" if "over_mgrade" in result else "",
            f"{result['floor_share']:.1%}" if "floor_share" in result else "",
            f"{result['peak_bytes'] / 1e6:.0f}" if "peak_bytes" in result else "",
            f"{result['peak_over_mgrade']:.2f}x" if "peak_over_mgrade" in result else "",
        )


def table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Prints a table, with rich if it is installed."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        widths = [max(len(row[i]) for row in (columns, *rows)) for i in range(len(columns))]
        print(f"\n{title}")
        for row in (columns, *rows):
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        sys.stdout.flush()
        return
    shown = Table(*columns, title=title, title_justify="left")
    for row in rows:
        shown.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 120).print(shown)


def write(document: dict[str, Any], folder: Path, name: str) -> Path:
    """Writes `folder/name` as JSON, atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    path, unfinished = folder / name, folder / f".{name}.{os.getpid()}"
    unfinished.write_text(json.dumps(document, indent=2) + "\n")
    unfinished.replace(path)
    return path


def finish(document: dict[str, Any], folder: Path, name: str) -> int:
    """Writes the file, prints its path and returns the exit status: 1 if a contender failed."""
    print(f"wrote {write(document, folder, name)}")
    broken = measure.failures(document)
    for line in broken:
        print(f"failed: {line}", file=sys.stderr)
    return 1 if broken else 0
