"""The CPU benchmark: `python -m benchmarks.cpu`, or `make bench`. Writes results/bench/cpu.json."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks import contenders, measure, report, streaming
from benchmarks.configurations import CONFIGURATIONS
from benchmarks.contenders import Workload

DEVICE = "cpu"
NAMES = [name for name, configuration in CONFIGURATIONS.items() if configuration.cpu_batch is not None]


def main(argv: list[str] | None = None) -> int:
    """Runs everything, prints tables, writes the file; returns the exit status."""
    options = report.parse(report.arguments("mgrade and its peers on the CPU", repeats=10, names=NAMES), argv)
    document = report.header(options, DEVICE)
    report.show_header(document)
    bandwidth, with_peers = document["copy_bandwidth"], not options.skip_peers

    steps: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    for configuration in options.configurations:
        c = configuration.on_cpu().shrunk() if options.quick else configuration.on_cpu()
        workload = Workload(c, DEVICE)
        workload.set_precision()
        builds = contenders.training_steps(workload, with_peers=with_peers, compiled=not options.no_compile)
        results = measure.compare(builds, DEVICE, options.repeats)
        if not options.quick:
            _add_peak_memory(results, builds)
        steps[c.name] = report.comparison(c, results, bandwidth, c.step_bytes())
        for part, entry in report.parts(workload, bandwidth, options.repeats, with_peers).items():
            parts.setdefault(part, {})[c.name] = entry
    document |= {"training_step": steps, **parts}
    report.show("Training step: forward, backward, optimiser", steps)
    report.show_parts(parts)

    lengths = streaming.LENGTHS[:2] if options.quick else streaming.LENGTHS
    document["cost_per_token"] = streaming.cost_per_token(lengths)
    document["streaming_memory"] = measure.in_fresh_process(streaming.memory_by_length, lengths)
    document["streaming_step"] = streaming.step_latency(options.repeats, with_peers)
    _show_streaming(document)
    return report.finish(document, options.out, "cpu.json")


def _add_peak_memory(results: dict[str, dict[str, Any]], builds: dict[str, measure.Build]) -> None:
    """Adds the peak resident set of each step in a fresh process; for compiled ones it would be the compiler's."""
    for name, result in results.items():
        if "median" in result and "compiled" not in name:
            result["peak_bytes"] = measure.in_fresh_process(measure.resident_growth, builds[name])


def _show_streaming(document: dict[str, Any]) -> None:
    cost, memory = document["cost_per_token"], document["streaming_memory"]
    rows = [
        (
            f"{int(length):,}",
            f"{result['median'] * 1e6:.3f}",
            f"{memory['after_steps'][length]['resident_bytes'] / 1e6:.1f}",
            f"{memory['after_steps'][length]['state_bytes'] / 1e3:.1f}",
        )
        for length, result in cost["seconds_per_token"].items()
    ]
    title = (
        f"Against length, in chunks of {cost['chunk']:,}: time per token max / min {cost['max_over_min_median']:.3f}"
    )
    report.table(title, ("steps", "us per token", "resident MB", "state kB"), rows)
    report.show("One streaming step, one thread", {"speech": document["streaming_step"]})


if __name__ == "__main__":
    sys.exit(main())
