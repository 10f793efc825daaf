"""Two processes train the model that one would, and take over each other's runs."""

import json
import os
import subprocess
import sys

import pytest
import safetensors.torch
import torch

from mgrade._files import lock
from mgrade.train.processes import Processes
from small import SETTINGS


def run(root, processes, *more, recipe="flipflop/mgrade", status=0):
    command = [sys.executable]
    if processes > 1:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command += ["-m", "mgrade", "train", recipe, "--out", str(root), "--seed", "0", "--device", "cpu"]
    for setting in SETTINGS:
        command += ["--set", setting]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    out = subprocess.run([*command, *more], env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (out.returncode == 0) == (status == 0), out.stderr
    return out


def weights(root):
    (path,) = (root / "runs/flipflop/mgrade/seed0/model").glob("*.safetensors")
    return safetensors.torch.load(path.read_bytes())


def close(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert torch.allclose(ours[name], theirs[name], rtol=1e-3, atol=1e-4), name


# three rows of a batch cannot be shared equally, and the number of reads differs between the shares
@pytest.mark.parametrize("batch", [8, 3])
def test_two_processes_end_where_one_does(tmp_path, batch):
    more = ("--set", f"train.batch={batch}", "--set", "train.clip_norm=1.0")
    for processes in (1, 2):
        run(tmp_path / str(processes), processes, *more)
    close(weights(tmp_path / "1"), weights(tmp_path / "2"))
    one, two = (json.loads((tmp_path / n / "results/flipflop/mgrade/seed0.json").read_text()) for n in "12")
    assert one["curves"]["loss"] == pytest.approx(two["curves"]["loss"], rel=1e-4)
    assert one["metrics"]["test_accuracy"] == pytest.approx(two["metrics"]["test_accuracy"], abs=0.02)


def test_checkpoints_pass_between_one_process_and_two(tmp_path):
    run(tmp_path / "whole", 1)
    run(tmp_path / "mixed", 2, "--max-minutes", "0.0001")
    assert not (tmp_path / "mixed/results").exists()
    run(tmp_path / "mixed", 1, "--resume")
    close(weights(tmp_path / "whole"), weights(tmp_path / "mixed"))


def test_a_loss_that_is_not_finite_is_said_by_one_of_two_processes(tmp_path):
    more = ("--set", "train.rate=1e30", "--set", "train.steps=100000", "--set", "train.evaluations=1")
    out = run(tmp_path, 2, *more, status=2)
    said = [line for line in out.stderr.splitlines() if line.startswith("mgrade:")]
    assert len(said) == 1
    assert "not finite" in said[0]


def test_a_folder_that_another_process_holds_is_said_by_one_of_two_processes(tmp_path):
    folder = tmp_path / "runs/flipflop/mgrade/seed0"
    folder.mkdir(parents=True)
    with lock(folder / "lock"):
        out = run(tmp_path, 2, status=2)
    said = [line for line in out.stderr.splitlines() if line.startswith("mgrade:")]
    assert said == [f"mgrade: {folder}: another process is training here"]
    assert "gloo" not in out.stderr


def test_shares_cover_all_rows_once():
    for rows in (0, 1, 5, 64):
        for count in (1, 2, 3, 7):
            shares = [list(range(rows))[Processes(rank, count).share(rows)] for rank in range(count)]
            assert [row for share in shares for row in share] == list(range(rows))
