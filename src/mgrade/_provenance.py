"""Where a measurement comes from: commit, hardware, software."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import mgrade


def commit() -> str | None:
    """The commit of the source, from MGRADE_COMMIT or git; None if there is neither."""
    if given := os.environ.get("MGRADE_COMMIT"):
        if not re.fullmatch("[0-9a-f]{7,64}( with changes)?", given):
            raise ValueError(f"MGRADE_COMMIT must be 7 to 64 hexadecimal digits, got {given!r:.80}")
        return given
    here = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # fails unless the repository tracks this file
        changed = git("status", "--porcelain", "-uno", "--", ":/src", ":/benchmarks")
        return git("rev-parse", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def hardware(device: torch.device) -> dict[str, Any]:
    """The machine, and the GPU if `device` is one."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    found: dict[str, Any] = {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
    }
    if device.type == "cuda":
        gpu = torch.cuda.get_device_properties(device)
        memory, count = gpu.total_memory, gpu.multi_processor_count
        found |= {"gpu": gpu.name, "gpu_memory": memory, "multiprocessors": count}
    return found


def versions() -> dict[str, str | None]:
    """Versions of the software that figures depend on; None for what is not installed."""
    found = {"mgrade": mgrade.__version__, "python": platform.python_version(), "torch": torch.__version__}
    return {**found, "triton": _version("triton"), "numpy": _version("numpy"), "cuda": torch.version.cuda}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
