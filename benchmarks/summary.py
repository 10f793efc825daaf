"""Puts the measured tables into docs/performance.md: `python -m benchmarks.summary`. No number there is typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"


def gpu_steps(document: dict[str, Any]) -> str:
    """One row per configuration: mgrade in bfloat16 and TF32, the fastest peers, memory, floor, products."""
    rows = [
        "| configuration (B, T, D, K, Gamma, L) | mgrade bf16, ms | mgrade TF32, ms | peers compiled, ms | faster "
        "| peak MB, mgrade bf16 / peers | byte floor, ms | products, GFLOP |",
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
    """One row per configuration: how many times faster than the peers, side by side on this many cores."""
    rows = [
        "| configuration (B, T, D, K, Gamma, L) | training step | scan alone | convolution alone |",
        "|---|---|---|---|",
    ]
    for name, entry in document["training_step"].items():
        c = entry["configuration"]
        shape = ", ".join(str(c[key]) for key in ("batch", "time", "dim", "taps", "max_delay", "depth"))
        step, scan, conv = (
            document[part][name]["contenders"][peer]["over_mgrade"]
            for part, peer in (
                ("training_step", "peers"),
                ("scan", "log-space (minGRU-pytorch)"),
                ("convolution", "dense F.conv1d"),
            )
        )
        rows.append(f"| {c['title']} ({shape}) | {step:.1f}x | {scan:.0f}x | {conv:.1f}x |")
    versions, hardware = document["versions"], document["hardware"]
    rows += [
        "",
        f"One run on {hardware['threads']} cores of a {hardware['cpu']}, torch {versions['torch']}, commit "
        f"`{document['commit'][:12]}`, in `results/bench/cpu.json`. Cost per token from the shortest to the longest "
        f"sequence there differs by a factor of {document['cost_per_token']['max_over_min_median']:.3f} at most.",
    ]
    return "\n".join(rows)


TABLES = {"gpu_steps": gpu_steps, "gpu_parts": gpu_parts, "cpu": cpu}


def filled(text: str) -> str:
    """`text` with every marked table written anew from its file under results/bench."""
    for name, make in TABLES.items():
        document = json.loads((ROOT / "results" / "bench" / f"{name}.json").read_text())
        begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{make(document)}\n{end}{rest.split(end)[1]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
