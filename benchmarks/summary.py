"""Fills the tables of docs/performance.md and docs/estimator.md: `python -m benchmarks.summary`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.estimator import markdown_table

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("performance", "estimator")


def gpu_steps(document: dict[str, Any]) -> str:
    """One row per configuration: mgrade in bfloat16 and TF32, the fastest peers, memory, floor, products."""
    rows = [
        "| configuration (B, T, D, K, Gamma, L) | mgrade bf16, ms | mgrade TF32, ms | peers compiled, ms "
        "| faster, bf16 / TF32 | peak MB, mgrade bf16 / peers | byte floor, ms | products, GFLOP |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for entry in document["training_step"].values():
        c, half, tf32 = entry["tf32"]["configuration"], entry["bfloat16"], entry["tf32"]
        ours, wide = half["contenders"]["mgrade, captured"], tf32["contenders"]["mgrade, captured"]
        theirs = tf32["contenders"]["peers, compiled"]
        shape = ", ".join(str(c[key]) for key in ("batch", "time", "dim", "taps", "max_delay", "depth"))
        rows.append(
            f"| {c['title']} ({shape}) | {1e3 * ours['median']:.3g} | {1e3 * wide['median']:.3g} "
            f"| {1e3 * theirs['median']:.3g} | {theirs['median'] / ours['median']:.1f}x "
            f"/ {theirs['median'] / wide['median']:.1f}x "
            f"| {ours['peak_bytes'] / 1e6:.0f} / {theirs['peak_bytes'] / 1e6:.0f} "
            f"| {1e3 * half['floor']:.2g} | {c['matmul_flops'] / 1e9:.3g} |"
        )
    versions, hardware = document["versions"], document["hardware"]
    rows += [
        "",
        f"One run on one {hardware['gpu']}, torch {versions['torch']}, Triton {versions['triton']}, commit "
        f"`{document['commit'][:12]}`, copy bandwidth {document['copy_bandwidth'] / 1e12:.2f} TB/s; medians of "
        f"{document['repeats']} samples, in `results/bench/gpu_steps.json`.",
    ]
    return "\n".join(rows)


def gpu_parts(document: dict[str, Any]) -> str:
    """One row per configuration and part: mgrade, the fastest of the others, and the share of the copy bandwidth."""
    rows = ["| configuration | part | mgrade, ms | of copy bandwidth | next best | ms |", "|---|---|---|---|---|---|"]
    for part in ("scan", "convolution"):
        for entry in document[part].values():
            times = {name: c for name, c in entry["contenders"].items() if "median" in c}
            ours = next(name for name in times if name.startswith("mgrade"))
            others = {name: c["median"] for name, c in times.items() if "gated_scan" not in name and name != ours}
            best = min(others, key=lambda name: others[name])
            rows.append(
                f"| {entry['configuration']['title']} | {ours.split()[1]} | {1e3 * times[ours]['median']:.3g} "
                f"| {100 * times[ours]['floor_share']:.0f} % | {best} | {1e3 * others[best]:.3g} |"
            )
    rows += ["", f"Commit `{document['commit'][:12]}`, in `results/bench/gpu_parts.json`."]
    return "\n".join(rows)


def cpu(document: dict[str, Any]) -> str:
    """One row per configuration: how many times faster than the fastest peer, side by side on this many cores."""
    rows = [
        "| configuration (B, T, D, K, Gamma, L) | training step | scan alone | convolution alone |",
        "|---|---|---|---|",
    ]
    for name, entry in document["training_step"].items():
        c = entry["configuration"]
        shape = ", ".join(str(c[key]) for key in ("batch", "time", "dim", "taps", "max_delay", "depth"))
        step, scan, conv = (
            min(
                contender["over_mgrade"]
                for peer, contender in document[part][name]["contenders"].items()
                if "over_mgrade" in contender and not peer.startswith("mgrade")
            )
            for part in ("training_step", "scan", "convolution")
        )
        rows.append(f"| {c['title']} ({shape}) | {step:.1f}x | {scan:.0f}x | {conv:.1f}x |")
    versions, hardware = document["versions"], document["hardware"]
    rows += [
        "",
        f"One run on {hardware['threads']} cores, {hardware['cpu']}, torch {versions['torch']}, commit "
        f"`{document['commit'][:12]}`, in `results/bench/cpu.json`. Cost per token from the shortest to the longest "
        f"sequence there differs by a factor of {document['cost_per_token']['max_over_min_median']:.3f} at most.",
    ]
    return "\n".join(rows)


def deploy(document: dict[str, Any]) -> str:
    """One row per runtime, with the time per step, also relative to mgrade's C; then one per chip and precision."""
    rows = ["| runtime | step, us | median, us | over mgrade C | error |", "|---|---|---|---|---|"]
    for name, result in document["streaming_step"]["contenders"].items():
        if "tenth" not in result:
            reason = f"unavailable: {result['unavailable']}" if "unavailable" in result else "failed"
            rows.append(f"| {name} | {reason} | | | |")
            continue
        error = f"{result['error']:.0e}" if result["error"] else "none"
        if "error_to_float32" in result:
            error += f" ({result['error_to_float32']:.2g} from float32)"
        rows.append(
            f"| {name} | {1e6 * result['tenth']:.1f} | {1e6 * result['median']:.1f} "
            f"| {result['over_mgrade_c']:.1f}x | {error} |"
        )
    rows += [
        "",
        "| emulated chip | precision | instructions a step | flash, bytes | RAM, bytes |",
        "|---|---|---|---|---|",
    ]
    for chip, runs in document["chips"].items():
        for precision, run in runs.items():
            figures = [f"{run[key]:,}" if key in run else "unavailable" for key in ("instructions", "flash", "ram")]
            rows.append(f"| {chip} | {precision} | {' | '.join(figures)} |")
    versions, hardware, model = document["versions"], document["hardware"], document["model"]
    rows += [
        "",
        f"{model['parameters']:,} parameters: {model['depth']} layers of {model['dim']} channels, {model['taps']} "
        f"taps. One run on one core of {hardware['cpu']}, torch {versions['torch']}, onnxruntime "
        f"{versions.get('onnxruntime')}, LiteRT {versions['litert']}, {versions['c_compiler']}, commit "
        f"`{document['commit'][:12]}`; 10th percentiles and medians of {document['repeats']} samples, in "
        "`results/bench/deploy.json`.",
    ]
    return "\n".join(rows)


TABLES = {"gpu_steps": gpu_steps, "gpu_parts": gpu_parts, "cpu": cpu, "deploy": deploy, "estimator": markdown_table}


def source(name: str) -> Path:
    """The file from which a table is made."""
    return ROOT / "results" / ("compare" if name == "estimator" else "bench") / f"{name}.json"


def page(name: str) -> Path:
    """The path of a page with tables."""
    return ROOT / "docs" / f"{name}.md"


def filled(text: str) -> str:
    """`text` with every marked table rewritten from its file, if that exists."""
    for name, make in TABLES.items():
        begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
        if begin not in text or not source(name).exists():
            continue
        document = json.loads(source(name).read_text())
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{make(document).rstrip()}\n{end}{rest.split(end)[1]}"
    return text


if __name__ == "__main__":
    for name in PAGES:
        page(name).write_text(filled(page(name).read_text(encoding="utf-8")), encoding="utf-8")
