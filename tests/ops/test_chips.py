"""Kernels compiled for chips that are not here: none needs more shared memory than there is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

# Bytes that a program may use on a T4, an RTX 40 and an H100; an A100 has the tiles of an RTX, and more room.
CHIPS = {75: 65_536, 89: 101_376, 90: 232_448}


@pytest.mark.parametrize("capability", CHIPS)
def test_tiles_fit_into_shared_memory(capability):
    room = CHIPS[capability]
    plain = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    script = Path(__file__).parent / "on_chip.py"
    done = subprocess.run(
        [sys.executable, script, str(capability), str(room)], env=plain, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    needs = json.loads(done.stdout)
    assert set(needs) == {"_product", "_outer", "_feedforward", "_feedforward_backward", "_filter", "_correlate"}
    assert max(needs.values()) <= room, needs
    smaller = [other for other in CHIPS.values() if other < room]
    assert all(max(needs.values()) > other for other in smaller)  # or nobody would need the smaller chips' tiles
