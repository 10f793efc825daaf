"""The files of a playground: the page, the export's module, the twin that shows its gates, and their description."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mgrade._files import read_description, replace
from mgrade.deploy import wasm
from mgrade.play.exhibit import Exhibit
from mgrade.play.layout import layout
from mgrade.play.watch import watched

PAGE = Path(__file__).parent / "page"
INDEX = "playground.json"
FORMAT, VERSION = "mgrade-playground", 1
# The most bytes of test data: a page is not an archive.
MOST_BYTES = 64 << 20


def site(exhibit: Exhibit) -> dict[str, bytes]:
    """All files of a playground, by name; without a compiler for the twin, gates are left out."""
    program, where = exhibit.program, layout(exhibit.program)
    files = {path.name: path.read_bytes() for path in sorted(PAGE.iterdir()) if path.is_file()}
    files["model.js"] = (Path(wasm.__file__).parent / "model.js").read_bytes()
    files["model.wasm"] = exhibit.module
    copies = [] if wasm.available() else where.copies
    if copies:
        files["gates.wasm"] = wasm.to_wasm(watched(program)[0])
    if exhibit.examples:
        files["examples.bin"] = _packed(exhibit)
    described = {**_described(exhibit), "state_end": where.end, "layers": where.layers, "twin": copies}
    files[INDEX] = (json.dumps(described, separators=(",", ":")) + "\n").encode()
    return files


def _described(exhibit: Exhibit) -> dict[str, Any]:
    program = exhibit.program
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": exhibit.name,
        "about": exhibit.about.to_dict(),
        "pooled": program.pooled,
        "precision": program.precision,
        "weight_bytes": program.parameter_bytes,
        "module_bytes": len(exhibit.module),
        "code_bytes": wasm.code_bytes(exhibit.module),
        "examples": [{"steps": len(x), "label": label} for x, label in exhibit.examples],
    }


def _packed(exhibit: Exhibit) -> bytes:
    """The sequences one after another, little-endian: token ids as uint16, or numbers as float32."""
    kind = "<u2" if exhibit.program.tokens else "<f4"
    data = b"".join(np.ascontiguousarray(x, kind).tobytes() for x, _ in exhibit.examples)
    if len(data) > MOST_BYTES:
        raise ValueError(f"test sequences must be at most {MOST_BYTES:,} bytes, got {len(data):,}: include fewer")
    return data


def write_site(files: Mapping[str, bytes], folder: Path) -> None:
    """Writes a playground to a folder that is new, empty or holds an earlier playground; the index is written last."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: is not a folder")
    if folder.is_dir() and any(folder.iterdir()):
        read_description(
            folder / INDEX, FORMAT, VERSION, f": {folder} has files and is not a playground: choose another"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stale in ("gates.wasm", "examples.bin"):  # of an earlier playground, perhaps private data
            if stale not in files:
                (folder / stale).unlink(missing_ok=True)
        for name in sorted(files, key=lambda name: name == INDEX):
            replace(folder / name, files[name])
    except OSError as error:
        raise ValueError(f"{folder}: cannot be written: {error.strerror}") from None
