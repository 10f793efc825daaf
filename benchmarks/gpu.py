"""The GPU benchmark: `python -m benchmarks.gpu`. Needs torch and triton; writes two files under results/bench/."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch

from benchmarks import contenders, measure, report
from benchmarks.configurations import CONFIGURATIONS, Configuration
from benchmarks.contenders import PRECISIONS, Workload

# Bytes per activation, for the floor.
ELEMENT = {"float32": 4, "tf32": 4, "bfloat16": 2}
# The precision of comparisons of parts: float32 tensors, TF32 matrix products.
PARTS_PRECISION = "tf32"


def main(argv: list[str] | None = None) -> int:
    """Runs the chosen benchmarks, prints tables, writes files after every configuration; returns the exit status."""
    options = _options(argv)
    header = report.header(options, options.device)
    report.show_header(header)
    status = 0
    for what in options.what:
        document, name = {**header}, f"gpu_{what}.json"
        for configuration in options.configurations:
            c = configuration.shrunk() if options.quick else configuration
            (_steps if what == "steps" else _parts)(document, c, options)
            report.write(document, options.out, name)
        status |= report.finish(document, options.out, name)
    return status


def _steps(document: dict[str, Any], c: Configuration, options: argparse.Namespace) -> None:
    steps = _training_steps(c, options, document["copy_bandwidth"])
    document.setdefault("training_step", {})[c.name] = steps
    title = f"{c.title}: training step, forward, backward, optimiser"
    report.show(title, {f"{c.name} {precision}": entry for precision, entry in steps.items()})


def _parts(document: dict[str, Any], c: Configuration, options: argparse.Namespace) -> None:
    document["parts_precision"] = PARTS_PRECISION
    workload = Workload(c, options.device, PARTS_PRECISION)
    workload.set_precision()
    bandwidth, with_peers = document["copy_bandwidth"], not options.skip_peers
    parts = report.parts(workload, bandwidth, options.repeats, with_peers, ("scan", "convolution"))
    for part, entry in parts.items():
        document.setdefault(part, {})[c.name] = entry
    report.show_parts({part: {c.name: entry} for part, entry in parts.items()})


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = report.arguments("mgrade and its peers on CUDA", repeats=20, names=list(CONFIGURATIONS))
    parser.add_argument("--precisions", default=",".join(PRECISIONS), help="with commas (default: %(default)s)")
    parser.add_argument(
        "--compile-in",
        default="tf32",
        help="precisions in which the peers are also compiled (default: %(default)s)",
    )
    parser.add_argument("--what", default="steps,parts", help="training steps; scan and convolution (default: both)")
    parser.add_argument("--compile-mode", default="default", help="mode of torch.compile (default: %(default)s)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a dry run of this script")
    options = report.parse(parser, argv)
    for option in ("precisions", "compile_in"):
        chosen = [name.strip() for name in getattr(options, option).split(",")]
        for name in chosen:
            if name not in PRECISIONS:
                parser.error(f"no precision {name!r}; choose from {', '.join(PRECISIONS)}")
        setattr(options, option, chosen)
    options.what = [name.strip() for name in options.what.split(",")]
    for name in options.what:
        if name not in ("steps", "parts"):
            parser.error(f"--what: no {name!r}; choose from steps, parts")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA device here")
    return options


def _training_steps(c: Configuration, options: argparse.Namespace, bandwidth: float) -> dict[str, Any]:
    """Compares mgrade and the composition of peers, per precision."""
    steps = {}
    for precision in options.precisions:
        workload = Workload(c, options.device, precision)
        workload.set_precision()
        builds = contenders.training_steps(
            workload,
            with_peers=not options.skip_peers,
            compiled=precision in options.compile_in and not options.no_compile,
            mode=options.compile_mode,
        )
        results = measure.compare(builds, options.device, options.repeats)
        steps[precision] = report.comparison(c, results, bandwidth, c.step_bytes(ELEMENT[precision]))
    return steps


if __name__ == "__main__":
    sys.exit(main())
