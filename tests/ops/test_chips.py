"""Kernels compiled for chips that are not here: none needs more shared memory than there is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

# Bytes that a program may use on an RTX 40 and on an H100; an A100 has more than the one, and the same tiles.
CHIPS = {89: (101_376, "small"), 90: (232_448, "large")}


@pytest.mark.parametrize("capability", CHIPS)
def test_tiles_fit_into_shared_memory(capability):
    limit, size = CHIPS[capability]
    plain = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    script = Path(__file__).parent / "on_chip.py"
    done = subprocess.run(
        [sys.executable, script, str(capability), size], env=plain, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    needs = json.loads(done.stdout)
    assert set(needs) == {"_product", "_outer", "_feedforward", "_feedforward_backward", "_filter", "_correlate"}
    assert max(needs.values()) <= limit, needs
    assert size == "small" or max(needs.values()) > CHIPS[89][0]  # or nobody would need the small tiles
