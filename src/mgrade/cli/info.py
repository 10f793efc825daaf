"""`mgrade info`."""

from __future__ import annotations

import json
import platform
from importlib import metadata

import mgrade
from mgrade.cli.common import AsJson, console, listing


def info(as_json: AsJson = False) -> None:
    """Show versions, devices and active backends."""
    facts = _facts()
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    table = listing()
    for name, value in facts.items():
        table.add_row(name, ", ".join(value) if isinstance(value, list) else str(value))
    console().print(table)


def _facts() -> dict[str, str | list[str]]:
    import torch

    from mgrade.ops import available

    try:
        triton = metadata.version("triton")
    except metadata.PackageNotFoundError:
        triton = "not installed"
    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "mgrade": mgrade.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton,
        "devices": [f"cpu ({torch.get_num_threads()} threads)", *cuda],
        "backends": list(available()),
        "default on cpu": "c" if "c" in available() else "reference (no C compiler was found at installation)",
        "default on cuda": "triton" if "triton" in available() else "not available",
    }
