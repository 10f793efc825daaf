"""One streaming step, deployed: `python -m benchmarks.deploy`. Writes results/bench/deploy.json."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks import report
from benchmarks.browser import browser
from benchmarks.measure import in_turns
from benchmarks.runtimes import BROWSERS, OURS, SAMPLE_SECONDS, Contender, Workers, contenders
from benchmarks.subject import PRECISIONS, Subject, checked, noted, timing
from mgrade.deploy import (
    chip,
    dequantise_output,
    print_c,
)


def compare(subject: Subject, builds: Mapping[str, Callable[[], Contender]], repeats: int) -> dict[str, dict[str, Any]]:
    """Builds all contenders, checks their outputs, and takes samples in rotation."""
    results: dict[str, dict[str, Any]] = {}
    ready: dict[str, tuple[Contender, int]] = {}
    for name, build in builds.items():
        with noted(results, name):
            contender = build()
            results[name] = checked(subject, contender.outputs(), contender.precision)
            contender.seconds(contender.least)
            estimate = min(contender.seconds(max(10, contender.least)) for _ in range(2))
            whole = max(1, round(SAMPLE_SECONDS / estimate / contender.least))
            ready[name] = contender, whole * contender.least
            results[name]["steps_per_sample"] = whole * contender.least
    samples: dict[str, list[float]] = {name: [] for name in ready}
    for name in in_turns(ready, repeats):
        contender, count = ready[name]
        contender.seconds(max(contender.least, count // 10))  # brings its weights back into the cache
        samples[name].append(contender.seconds(count))
    for name, times in samples.items():
        results[name] |= timing(times)
    return results


def relate(results: Mapping[str, dict[str, Any]], ours: Mapping[str, Any]) -> None:
    """Adds the time of every contender relative to mgrade's C."""
    for result in results.values():
        if "tenth" in result and "tenth" in ours:
            result["over_mgrade_c"] = result["tenth"] / ours["tenth"]
            result["over_mgrade_c_median"] = result["median"] / ours["median"]


# On chips -------------------------------------------------------------------------------------------------------------


def chips(subject: Subject) -> dict[str, dict[str, dict[str, Any]]]:
    """Chip -> precision -> instructions per step, bytes of flash and RAM; emulated, so the same on every run."""
    return {name: {precision: _on_chip(subject, name, precision) for precision in PRECISIONS} for name in chip.CORES}


def _on_chip(subject: Subject, name: str, precision: str) -> dict[str, Any]:
    if missing := chip.available(name):
        return {"unavailable": missing}
    results: dict[str, dict[str, Any]] = {}
    with noted(results, precision), tempfile.TemporaryDirectory(prefix="mgrade-bench-") as folder:
        program = subject.programs[precision]
        for file, text in print_c(program, "model").items():
            (Path(folder) / file).write_text(text, encoding="utf-8")
        run = chip.run(folder, "model", subject.inputs[precision].astype(program.precision), chip=name)
        results[precision] = {
            **checked(subject, dequantise_output(program, run.outputs), precision),
            "instructions": run.instructions,
            "instructions_min": run.instructions_min,
            "flash": run.flash,
            "ram": run.ram,
            "stack": run.stack_bytes,
            "compiler": run.compiler,
        }
    return results[precision]


# The run --------------------------------------------------------------------------------------------------------------


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Parses the options."""
    parser = argparse.ArgumentParser(description="One streaming step, deployed: mgrade and other runtimes, one core")
    parser.add_argument("--out", type=Path, default=report.ROOT / "results" / "bench", help="folder for the JSON file")
    parser.add_argument("--repeats", type=int, default=300, help="samples per contender (default: %(default)s)")
    parser.add_argument("--compile", action="store_true", help="also PyTorch through torch.compile")
    parser.add_argument("--web", action="store_true", help="also onnxruntime-web, which npm installs for this run")
    parser.add_argument("--litert", metavar="PYTHON", help="a Python that has litert-torch, if this one does not")
    parser.add_argument("--quick", action="store_true", help="a smoke run: a small model, two samples, no browser")
    parser.add_argument("--commit", help="commit to record if there is no git")
    options = parser.parse_args(argv)
    if options.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {options.repeats}")
    if options.quick:
        options.repeats = min(options.repeats, 2)
    options.skip_peers = True  # the peers of training
    return options


def versions(python: str | None) -> dict[str, str | None]:
    """Versions of further programs and packages of this benchmark; None for those that are missing."""
    found: dict[str, str | None] = {}
    for package in ("onnx", "onnxruntime"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    said_by = "print(v('ai-edge-litert'), 'with litert-torch', v('litert-torch'))"
    ask = f"from importlib.metadata import version as v; {said_by}"
    commands: dict[str, Iterable[str]] = {
        "c_compiler": (shutil.which("gcc") or shutil.which("cc") or "clang", "--version"),
        "node": ("node", "--version"),
        "chromium": (next(filter(None, map(shutil.which, BROWSERS)), BROWSERS[0]), "--version"),
        "litert": (python or sys.executable, "-c", ask),
        "qemu": ("qemu-system-arm", "--version"),
    }
    for name, words in commands.items():
        try:
            said = subprocess.run([*words], capture_output=True, text=True, check=True).stdout
            found[name] = said.strip().splitlines()[0]
        except (OSError, subprocess.CalledProcessError):
            found[name] = None
    return found


def main(argv: list[str] | None = None) -> int:
    """Runs everything, prints tables, writes the file; returns the exit status."""
    options = parse(argv)
    torch.set_num_threads(1)
    document = report.header(options, "cpu")
    document["versions"] |= versions(options.litert)
    document["units"] = "seconds and bytes; errors over the largest output; over_mgrade_c: against " + OURS
    report.show_header(document)

    subject = Subject(options.quick)
    document["model"] = subject.describe()
    with contextlib.ExitStack() as stack:
        workers = Workers(subject, options.litert, stack)
        steps = compare(subject, contenders(subject, workers, options.compile), options.repeats)
    if options.quick:
        names = (*(f"mgrade WebAssembly in Chromium, {each}" for each in PRECISIONS), "onnxruntime-web in Chromium")
        steps |= {name: {"unavailable": "not in a smoke run"} for name in names}
    else:
        steps |= browser(subject, min(options.repeats, 100), options.web)
    relate(steps, steps[OURS])
    document["streaming_step"] = {"threads": 1, "contenders": steps}
    document["chips"] = chips(subject)
    show(document)
    return report.finish(document, options.out, "deploy.json")


def show(document: dict[str, Any]) -> None:
    """Prints the two tables."""
    rows = [_row(name, result) for name, result in document["streaming_step"]["contenders"].items()]
    columns = ("contender", "us, 10th percentile", "us, median", "over mgrade C", "error")
    report.table("One streaming step, one core", columns, rows)
    rows = []
    for name, runs in document["chips"].items():
        for precision, run in runs.items():
            figures = [f"{run[key]:,}" if key in run else "" for key in ("instructions", "flash", "ram")]
            missing = run.get("unavailable") or run.get("failed")
            rows.append((name, precision, *([missing, "", ""] if missing else figures)))
    report.table("One streaming step, emulated", ("chip", "precision", "instructions", "flash, B", "RAM, B"), rows)


def _row(name: str, result: dict[str, Any]) -> tuple[str, ...]:
    if "tenth" not in result:
        missing = f"unavailable: {result['unavailable']}" if "unavailable" in result else f"FAILED {result['failed']}"
        return name, missing, "", "", ""
    return (
        name,
        f"{result['tenth'] * 1e6:.2f}",
        f"{result['median'] * 1e6:.2f}",
        f"{result['over_mgrade_c']:.2f}x" if "over_mgrade_c" in result else "",
        f"{result['error']:.1e}" if result["error"] else "none",
    )


if __name__ == "__main__":
    sys.exit(main())
