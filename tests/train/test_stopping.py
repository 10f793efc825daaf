"""A run stops when it is asked to, and where there is nothing to keep, at once."""

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from mgrade import Model
from mgrade.tasks import FlipFlop
from mgrade.train import Stopped, launch, run_missing, seeds
from mgrade.train.evaluate import evaluate
from mgrade.train.run import Run
from small import SETTINGS, small


def test_a_time_limit_stops_cleanly(tmp_path):
    with pytest.raises(Stopped, match=r"stopped by --max-minutes 0\.0001 at step \d+ of 40$") as stop:
        launch(small(), seeds=[0], root=tmp_path, max_minutes=1e-4)
    assert stop.value.signal is None
    (path,) = launch(small(), seeds=[0], root=tmp_path, resume=True)
    assert path.exists()


def test_output_that_nobody_reads_any_more_stops_it_with_a_line(tmp_path):
    command = [sys.executable, "-m", "mgrade", "train", "flipflop/mgrade", "--out", str(tmp_path), "--seed", "0"]
    for setting in SETTINGS:
        command += ["--set", setting]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    assert process.stderr.read() == "mgrade: standard output was closed by its reader\n"
    assert process.wait() == 2
    process.stderr.close()
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


def kill(number=signal.SIGTERM):
    os.kill(os.getpid(), number)


def found(root, seed=0):
    """What a run that is done has left, but for what time and place have put into it."""
    result = json.loads((root / f"results/flipflop/mgrade/seed{seed}.json").read_text())
    weights = next((root / f"runs/flipflop/mgrade/seed{seed}/model").glob("model-*")).name
    return weights, {key: result[key] for key in ("metrics", "curves", "chosen_step", "examined", "delays")}


@pytest.fixture
def whole(tmp_path):
    launch(small(), seeds=[0], root=tmp_path / "whole")
    return found(tmp_path / "whole")


def test_a_signal_while_a_result_is_written_is_obeyed_before_the_next_seed(tmp_path, monkeypatch):
    save = Model.save
    monkeypatch.setattr(Model, "save", lambda *given: (kill(), save(*given)))
    with pytest.raises(Stopped, match="stopped by SIGTERM before seed 1 of flipflop/mgrade") as stop:
        launch(small(), seeds=[0, 1], root=tmp_path)
    assert stop.value.signal == signal.SIGTERM
    assert [path.name for path in (tmp_path / "results/flipflop/mgrade").iterdir()] == ["seed0.json"]


def test_it_is_obeyed_before_the_next_recipe_too(tmp_path, monkeypatch):
    save = Model.save
    monkeypatch.setattr(Model, "save", lambda *given: (kill(), save(*given)))
    monkeypatch.setattr(seeds, "of_experiments", lambda names: ["flipflop/mgrade", "flipflop/tcn"])
    monkeypatch.setattr(seeds, "load_recipe", lambda name: dataclasses.replace(small(name), seeds=(0,)))
    with pytest.raises(Stopped, match="stopped by SIGTERM before seed 0 of flipflop/tcn"):
        run_missing(["flipflop"], root=tmp_path)
    assert [path.name for path in (tmp_path / "results/flipflop").iterdir()] == ["mgrade"]


@pytest.mark.parametrize("judging", ["judge", "examine"])
def test_a_signal_while_the_test_set_is_judged_stops_it_and_it_is_judged_anew(tmp_path, monkeypatch, whole, judging):
    real, finish = getattr(FlipFlop, judging), Run.finish
    killed = []

    def interrupted(*given):
        if not killed:
            killed.append(kill(signal.SIGINT))
        return real(*given)

    def begun(*given):
        monkeypatch.setattr(FlipFlop, judging, interrupted)
        return finish(*given)

    monkeypatch.setattr(Run, "finish", begun)
    with pytest.raises(Stopped, match=r"^stopped by SIGINT while the test set was judged$") as stop:
        launch(small(), seeds=[0, 1], root=tmp_path)
    assert stop.value.signal == signal.SIGINT
    assert not (tmp_path / "results").exists()
    assert not (tmp_path / "runs/flipflop/mgrade/seed0/model").exists()
    launch(small(), seeds=[0], root=tmp_path, resume=True)
    assert found(tmp_path) == whole


def test_a_time_limit_stops_the_judging_of_the_test_set_unless_that_is_all_there_is_left(tmp_path, monkeypatch, whole):
    finish = Run.finish

    def late(*given):
        monkeypatch.setattr(seeds, "time", SimpleNamespace(monotonic=lambda: math.inf))
        return finish(*given)

    monkeypatch.setattr(Run, "finish", late)
    with pytest.raises(Stopped, match=r"^stopped by --max-minutes 60 while the test set was judged$"):
        launch(small(), seeds=[0], root=tmp_path, max_minutes=60)
    assert not (tmp_path / "results").exists()
    monkeypatch.setattr(seeds, "time", time)
    launch(small(), seeds=[0], root=tmp_path, resume=True, max_minutes=60)
    assert found(tmp_path) == whole


@pytest.mark.parametrize("look", [1, 4])
def test_a_signal_during_a_look_of_validation_stops_it_and_it_is_made_anew(tmp_path, monkeypatch, whole, look):
    calls = []

    def interrupted(*given):
        calls.append(1)
        if len(calls) == look:
            kill()
        return evaluate(*given)

    monkeypatch.setattr("mgrade.train.run.evaluate", interrupted)
    with pytest.raises(Stopped, match=f"^stopped by SIGTERM at step {10 * look} of 40$"):
        launch(small(), seeds=[0], root=tmp_path)
    launch(small(), seeds=[0], root=tmp_path, resume=True)
    assert found(tmp_path) == whole


def test_data_that_cannot_be_read_are_named_as_such(tmp_path, monkeypatch):
    def unreadable(*given, **options):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(seeds, "Run", unreadable)
    monkeypatch.setenv("MGRADE_DATA", "elsewhere")
    with pytest.raises(ValueError, match=r"^elsewhere: cannot be read: Input/output error$"):
        launch(small(), seeds=[0], root=tmp_path)
