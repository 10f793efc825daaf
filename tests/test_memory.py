"""What a training process frees stays with it."""

import subprocess
import sys

import pytest

PROBE = """
import resource, torch
from mgrade._memory import keep_memory
print(int({keep} and keep_memory()))
def touch():
    for _ in range(4):
        torch.empty(64 << 20, dtype=torch.uint8).fill_(1)
touch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
touch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def probe(keep):
    run = subprocess.run(
        [sys.executable, "-c", PROBE.format(keep=keep)], capture_output=True, text=True, check=True, timeout=120
    )
    kept, faults = map(int, run.stdout.split())
    return kept, faults


def test_memory_that_was_freed_is_not_fetched_again():
    kept, faults = probe(True)
    if not kept:
        pytest.skip("mallopt: this C library has none")
    _, without = probe(False)
    assert faults < 100 < without
