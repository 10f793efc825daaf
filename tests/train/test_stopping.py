"""A run stops when it is asked to, and where there is nothing to keep, at once."""

import os
import signal
import subprocess
import sys
import time

import pytest

from mgrade.train import Stopped, launch, seeds
from mgrade.train.run import Run
from small import SETTINGS, small


def test_a_time_limit_stops_cleanly(tmp_path):
    with pytest.raises(Stopped, match=r"stopped by --max-minutes 0\.0001 at step \d+ of 40: --resume goes on") as stop:
        launch(small(), seeds=[0], root=tmp_path, max_minutes=1e-4)
    assert stop.value.signal is None
    (path,) = launch(small(), seeds=[0], root=tmp_path, resume=True)
    assert path.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_run_that_goes_on(tmp_path, number):
    command = [sys.executable, "-m", "mgrade", "train", "flipflop/mgrade", "--out", str(tmp_path), "--seed", "0"]
    for setting in (*SETTINGS, "train.steps=1000000", "train.evaluations=1"):
        command += ["--set", setting]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    checkpoints = tmp_path / "runs/flipflop/mgrade/seed0/checkpoints"
    limit = time.monotonic() + 60
    while not list(checkpoints.glob("step-*")) and time.monotonic() < limit:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"mgrade: stopped by {signal.Signals(number).name} at step" in err
    assert "Traceback" not in err
    step = int(err.split("at step ")[1].split()[0])
    assert max(checkpoints.iterdir()).name.startswith(f"step-{step:010d}")


def test_a_signal_while_data_are_read_ends_it_at_once(tmp_path):
    command = [sys.executable, "-m", "mgrade", "train", "lorenz/mgrade", "--out", str(tmp_path), "--device", "cpu"]
    command += ["--set", "task.burn_in=2000000000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(5)
    assert process.poll() is None
    process.terminate()
    process.communicate(timeout=10)
    assert process.returncode == 128 + signal.SIGTERM


def test_a_signal_during_the_test_is_obeyed_before_the_next_seed(tmp_path, monkeypatch):
    finish = Run.finish

    def interrupted(run):
        os.kill(os.getpid(), signal.SIGTERM)
        return finish(run)

    monkeypatch.setattr(Run, "finish", interrupted)
    with pytest.raises(Stopped, match="stopped by SIGTERM before seed 1") as stop:
        launch(small(), seeds=[0, 1], root=tmp_path)
    assert stop.value.signal == signal.SIGTERM
    assert [path.name for path in (tmp_path / "results/flipflop/mgrade").iterdir()] == ["seed0.json"]


def test_data_that_cannot_be_read_are_named_as_such(tmp_path, monkeypatch):
    def unreadable(*given, **options):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(seeds, "Run", unreadable)
    monkeypatch.setenv("MGRADE_DATA", "elsewhere")
    with pytest.raises(ValueError, match=r"^elsewhere: cannot be read: Input/output error$"):
        launch(small(), seeds=[0], root=tmp_path)
