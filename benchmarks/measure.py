"""Timing and memory: contenders run in rotation in one process, so that drift affects all equally."""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

Run = Callable[[], object]
Build = Callable[[], Run]
# One sample repeats a quick run until it lasts about this long, in seconds.
SAMPLE_SECONDS = {"cpu": 0.05, "cuda": 0.005}


class UnavailableError(Exception):
    """A contender cannot run here; the message says why."""


def synchronise(device: str) -> None:
    """Waits for the device to finish."""
    if device == "cuda":
        torch.cuda.synchronize()


def seconds(run: Run, device: str, times: int = 1) -> float:
    """Time of one run, as the mean over `times` in a row: by CUDA events on CUDA, else by the clock."""
    if device == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for _ in range(times):
            run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / times
    begin = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - begin) / times


def interleave(runs: Mapping[str, Run], device: str, repeats: int) -> dict[str, list[float]]:
    """`repeats` samples of every run, in rounds that each start with a different run."""
    times = {name: _times(seconds(run, device), device) for name, run in runs.items()}
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for name in in_turns(runs, repeats):
        samples[name].append(seconds(runs[name], device, times[name]))
    return samples


def in_turns(names: Iterable[str], repeats: int) -> Iterator[str]:
    """Yields every name in each of `repeats` rounds, which start with different names; suspends garbage collection."""
    order = list(names)
    gc.collect()
    gc.disable()
    try:
        for turn in range(repeats):
            first = turn % max(len(order), 1)
            yield from order[first:] + order[:first]
    finally:
        gc.enable()


def _times(estimate: float, device: str) -> int:
    return max(1, min(1000, round(SAMPLE_SECONDS[device] / max(estimate, 1e-9))))


def summary(samples: list[float]) -> dict[str, Any]:
    """Median, extremes and number of samples, in seconds."""
    return {
        "median": statistics.median(samples),
        "fastest": min(samples),
        "slowest": max(samples),
        "samples": len(samples),
    }


def compare(builds: Mapping[str, Build], device: str, repeats: int, warmup: int = 3) -> dict[str, dict[str, Any]]:
    """Builds every contender, warms it up, and times all of them in rotation.

    Per contender: `summary` and on CUDA `peak_bytes`; or the reason under `unavailable` (it cannot run here) or
    `failed` (it broke).
    """
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
    results: dict[str, dict[str, Any]] = {}
    runs: dict[str, Run] = {}
    for name, build in builds.items():
        try:
            results[name], runs[name] = _prepare(build, device, warmup)
        except UnavailableError as reason:
            results[name] = {"unavailable": str(reason)}
        except Exception as error:
            first_line = (str(error).strip().splitlines() or [""])[0]
            results[name] = {"failed": f"{type(error).__name__}: {first_line[:200]}"}
    for name, samples in interleave(runs, device, repeats).items():
        results[name] |= summary(samples)
    return results


def _prepare(build: Build, device: str, warmup: int) -> tuple[dict[str, Any], Run]:
    """Builds and warms up a run; on CUDA, also measures the most memory it needs, counted from before it was built.

    A replayed CUDA graph allocates nothing; its `peak_allocated` was measured during capture.
    """
    before = torch.cuda.memory_allocated() if device == "cuda" else 0
    run = build()
    for _ in range(max(warmup, 1)):
        run()
    synchronise(device)
    if device != "cuda":
        return {}, run
    torch.cuda.reset_peak_memory_stats()
    run()
    synchronise(device)
    peak = max(torch.cuda.max_memory_allocated(), getattr(run, "peak_allocated", 0))
    return {"peak_bytes": peak - before}, run


def relate(results: dict[str, dict[str, Any]], floor: float | None = None) -> dict[str, dict[str, Any]]:
    """Adds to each measured contender: time and peak memory over mgrade's best, and share of the floor.

    mgrade's contenders are those whose name begins with `mgrade`. floor: the least time possible, in seconds.
    """
    measured = {name: result for name, result in results.items() if "median" in result}
    ours = [result for name, result in measured.items() if name.startswith("mgrade")]
    best = min(ours, key=lambda result: result["median"], default=None)
    for result in measured.values():
        if floor is not None:
            result["floor_share"] = floor / result["median"]
        if best is not None:
            result["over_mgrade"] = result["median"] / best["median"]
        if best is not None and best.get("peak_bytes") and "peak_bytes" in result:
            result["peak_over_mgrade"] = result["peak_bytes"] / best["peak_bytes"]
    return results


def failures(results: Any) -> list[str]:
    """Every `failed` contender in nested results, as `path: reason`."""
    if not isinstance(results, dict):
        return []
    if "failed" in results:
        return [str(results["failed"])]
    return [f"{key}: {line}" for key, value in results.items() for line in failures(value)]


def copy_bandwidth(device: str, quick: bool = False) -> float:
    """Bytes read plus bytes written per second by a large copy: the ceiling of memory-bound work."""
    elements = 2**22 if quick else 2**28 if device == "cuda" else 2**25
    source = torch.randn(elements, device=device)
    target = torch.empty_like(source)
    samples = [seconds(lambda: target.copy_(source), device, 3) for _ in range(3 if quick else 12)]
    return 2 * source.nbytes / statistics.median(samples[1:])


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls `function(*arguments)` in a new Python process, whose memory is separate."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


def resident_growth(build: Build, runs: int = 2) -> int:
    """The bytes by which building and running a contender raises this process's peak resident set."""
    before = _peak_resident()
    run = build()
    for _ in range(runs):
        run()
    return _peak_resident() - before


def _peak_resident() -> int:
    """The peak resident set in bytes, from /proc on Linux.

    Elsewhere from getrusage, whose figure may include that of the parent process.
    """
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else []:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def resident_bytes() -> int:
    """The current resident set; if the system does not report it, the peak."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return _peak_resident()
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
