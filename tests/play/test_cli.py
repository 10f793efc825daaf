"""`mgrade play`, as it is called."""

import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest

from deploy.programs import program_of
from mgrade.cli import main
from mgrade.deploy import wasm, write_export
from mgrade.train import launch
from small import small

COMMAND = [sys.executable, "-c", "from mgrade.cli import main; main()", "play"]


@pytest.fixture(autouse=True)
def _compiler():
    if missing := wasm.available():
        pytest.skip(missing)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("run")
    launch(small(), seeds=[0], root=root, device="cpu")
    return root / "runs" / "flipflop" / "mgrade" / "seed0"


def play(*words):
    with pytest.raises(SystemExit) as stop:
        main(["play", *map(str, words)])
    return stop.value.code or 0


def described(folder):
    return json.loads((folder / "playground.json").read_text())


def test_a_run_brings_its_names_and_its_data_if_asked(tmp_path, run, capsys):
    assert play(run, "--build", tmp_path / "a") == 0
    assert f"written to {tmp_path / 'a'}" in capsys.readouterr().out
    assert described(tmp_path / "a")["about"]["labels"] == list("wri01")
    assert described(tmp_path / "a")["examples"] == []
    assert not (tmp_path / "a" / "examples.bin").exists()
    assert play(run, "--test", 3, "--build", tmp_path / "b") == 0
    assert [example["steps"] for example in described(tmp_path / "b")["examples"]] == [31, 31, 31]


def test_an_export_takes_names_from_options_or_its_run(tmp_path, run):
    with pytest.raises(SystemExit):
        main(["export", str(run), "--to", "wasm", "--out", str(tmp_path / "web")])
    assert play(tmp_path / "web", "--labels", "a, b,c,d,e", "--build", tmp_path / "a") == 0
    assert described(tmp_path / "a")["about"]["labels"] == list("abcde")
    assert play(tmp_path / "web", "--run", run, "--test", 2, "--build", tmp_path / "b") == 0
    assert described(tmp_path / "b")["about"]["symbols"] == list("wri01")
    assert len(described(tmp_path / "b")["examples"]) == 2


def test_a_run_of_another_model_is_refused(tmp_path, run, capsys):
    write_export(program_of(inputs=3), "small", "c", tmp_path / "c")
    assert play(tmp_path / "c", "--run", run, "--build", tmp_path / "a") == 2
    message = (
        f"--run must be the run that {tmp_path / 'c'} was made from: {run} has 5 inputs and 5 outputs, not 3 inputs"
    )
    assert message in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


def test_rate_makes_sound_of_the_input(tmp_path):
    write_export(program_of(inputs=1), "small", "c", tmp_path / "c")
    assert play(tmp_path / "c", "--rate", 16000, "--build", tmp_path / "a") == 0
    assert described(tmp_path / "a")["about"]["samples_per_second"] == 16000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere: is not an export (export.json), a finished run or a saved model"),
        (["export", "--test", "3"], "--test takes sequences of a run, and export is not a run: add --run RUN"),
        (["export", "--test", "-1"], "--test must be at least 0, got -1"),
        (["export", "--labels", "a,b"], "labels must be 4, one for each, got 2"),
        (["export", "--rate", "3"], "samples_per_second must be whole, 1000 to 384000, got 3"),
        (["export", "--port", "99999"], "port must be 0 to 65535, got 99999"),
        (["export", "--run", "nowhere"], "nowhere: there is no such folder"),
        (["export", "--build", "export/export.json"], "export/export.json: is not a folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_one_line(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    write_export(program_of(), "small", "c", tmp_path / "export")
    assert play(*words) == 2
    said = capsys.readouterr().err
    assert said.startswith("mgrade: ")
    assert message in said
    assert said.count("\n") == 1


def test_it_serves_until_it_is_interrupted(tmp_path):
    write_export(program_of(), "small", "wasm", tmp_path / "web")
    server = subprocess.Popen(
        [*COMMAND, str(tmp_path / "web"), "--no-browser"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # which tests in the background ignore
    )
    with server as process:
        try:
            address = process.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:")
            assert "Ctrl-C ends it" in process.stdout.readline()
            with urllib.request.urlopen(address + "model.wasm", timeout=10) as answer:
                assert answer.read() == (tmp_path / "web" / "small.wasm").read_bytes()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (process.returncode, err) == (0, "")
