"""The benchmark scripts run to their end, without the peers, and leave what they promise."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADER = {"date", "commit", "hardware", "versions", "mgrade_backends", "peers", "copy_bandwidth", "repeats"}
SAME_RESULTS = """
import torch
from benchmarks import contenders, peers

x, weight, position = torch.randn(2, 50, 6), torch.randn(6, 3), 15 * torch.rand(6, 3)
expected = contenders.mgrade_conv(x, weight, position, 16)
for conv in (peers.dense_conv, peers.fft_conv):
    torch.testing.assert_close(conv(x, weight, position, 16), expected)
"""

BOTH_LAYOUTS = """
import torch
from benchmarks.configurations import CONFIGURATIONS
from benchmarks.contenders import Workload, _scan_part, mgrade_scan

workload = Workload(CONFIGURATIONS["flipflop"].shrunk(), "cpu")
for one, other in zip(_scan_part(workload, mgrade_scan)(), _scan_part(workload, mgrade_scan, along_time=True)()):
    torch.testing.assert_close(one, other)
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def measured(entry: dict) -> bool:
    return all(result["median"] > 0 for name, result in entry["contenders"].items() if name.startswith("mgrade"))


def test_the_cpu_benchmark_measures_every_question(tmp_path):
    done = run("-m", "benchmarks.cpu", "--quick", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["cpu.json"]
    document = json.loads((tmp_path / "cpu.json").read_text())
    assert set(document) >= HEADER
    for question in ("training_step", "scan", "convolution", "recurrent_layer"):
        assert set(document[question]) == {"listops", "speech", "flipflop"}
        assert all(map(measured, document[question].values()))
    step = document["training_step"]["listops"]
    assert step["contenders"]["mgrade"]["floor_share"] > 0
    assert step["floor"] == step["configuration"]["step_bytes"] / document["copy_bandwidth"]
    assert document["cost_per_token"]["max_over_min_median"] >= 1
    assert document["streaming_memory"]["state_growth_bytes"] == 0
    assert measured(document["streaming_step"])

    # a peer that takes no part is named, with the reason
    assert set(document["peers"]) == {"minGRU-pytorch", "DCLS", "accelerated-scan", "flash-linear-attention"}
    assert document["peers"]["accelerated-scan"] == "unavailable: accelerated-scan runs on CUDA only"
    assert "accelerated-scan runs on CUDA only" in done.stdout
    peers = step["contenders"]["peers"]
    assert peers.get("median") or peers["unavailable"] == "minGRU-pytorch is not installed"


def test_the_gpu_benchmark_runs_dry(tmp_path):
    options = ("--device", "cpu", "--quick", "--only", "flipflop", "--precisions", "tf32,bfloat16")
    done = run("-m", "benchmarks.gpu", *options, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    steps, parts = (json.loads((tmp_path / f"gpu_{what}.json").read_text()) for what in ("steps", "parts"))
    assert set(steps) >= HEADER
    assert set(parts) >= HEADER
    assert set(steps["training_step"]["flipflop"]) == {"tf32", "bfloat16"}
    assert all(map(measured, steps["training_step"]["flipflop"].values()))
    assert measured(parts["scan"]["flipflop"])


def test_the_deployment_benchmark_leaves_nobody_out(tmp_path):
    done = run("-m", "benchmarks.deploy", "--quick", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["deploy.json"]
    document = json.loads((tmp_path / "deploy.json").read_text())
    assert set(document) >= HEADER | {"model", "streaming_step", "chips"}
    contenders = document["streaming_step"]["contenders"]
    assert len(contenders) == 16
    for name, result in contenders.items():
        assert result.get("unavailable") or result["tenth"] > 0, name
        if "tenth" in result and "tenth" in contenders["mgrade C, float32"]:
            assert result["over_mgrade_c"] > 0
    assert contenders["PyTorch, compiled, constants folded"] == {"unavailable": "only with --compile"}
    assert contenders["PyTorch, eager, Model.step"]["error"] < 1e-4
    assert contenders["PyTorch, eager, constants folded"]["error"] < 1e-4
    assert set(document["chips"]) == {"cortex-m55", "cortex-m7", "cortex-m4"}
    for runs in document["chips"].values():
        assert set(runs) == {"float32", "int8"}
        assert all(result.get("unavailable") or result["instructions"] > 0 for result in runs.values())


def test_an_unknown_configuration_is_refused(tmp_path):
    done = run("-m", "benchmarks.gpu", "--only", "imagenet", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "no configuration 'imagenet'" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_convolutions_compared_are_the_same_function():
    done = run("-c", SAME_RESULTS)
    assert done.returncode == 0, done.stderr


def test_the_scan_is_measured_on_the_same_numbers_in_both_layouts():
    done = run("-c", BOTH_LAYOUTS)
    assert done.returncode == 0, done.stderr
