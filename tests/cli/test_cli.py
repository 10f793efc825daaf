"""The command line: what it prints, and how it refuses."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import mgrade
from mgrade._files import lock
from mgrade.cli import _stop, main
from mgrade.cli.common import console, listing
from mgrade.train import Stopped
from small import SETTINGS


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    captured = capsys.readouterr()
    return stop.value.code or 0, captured.out, captured.err


def test_info_names_versions_devices_and_backends(capsys):
    status, out, _ = call(capsys, "info", "--json")
    facts = json.loads(out)
    assert status == 0
    assert facts["backends"][0] == "reference"
    assert facts["devices"][0].startswith("cpu")
    assert facts["torch"]
    assert "backends" in call(capsys, "info")[1]


def test_a_short_demo_goes_from_recordings_to_a_c_program(capsys, tmp_path):
    if importlib.util.find_spec("aeon") is None and "MGRADE_DATA" not in os.environ:
        pytest.skip("needs the recordings that the package aeon bundles")
    others = [tmp_path / name for name in ("runs/own/run", "results/own/seed0.json", "export/notes.txt")]
    for other in others:
        other.parent.mkdir(parents=True)
        other.write_text("kept")
    status, out, _ = call(capsys, "demo", "--epochs", "30", "--out", str(tmp_path))
    assert all(other.read_text() == "kept" for other in others)
    assert status == 0
    stages = [line for line in out.splitlines() if line.endswith(" B")]
    assert [stage[:10] for stage in stages] == [
        "trained, i", "as a progr", "taps snapp", "delay line", "int8 weigh", "compiled f"
    ]  # fmt: skip
    accuracy = [float(re.search(r"([0-9.]+) %", stage)[1]) for stage in stages]
    assert accuracy[0] == accuracy[1] > 85
    assert accuracy[4] == accuracy[5]
    assert abs(accuracy[4] - accuracy[0]) < 3
    assert (tmp_path / "export" / "vowels.c").is_file()
    assert (tmp_path / "export" / "about.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("demo", "--epochs", "0"), "epochs must be at least 1, got 0"),
        (("demo", "--epochs", "many"), "--epochs"),
        (("demo", "--epochs", "many"), "'many'"),
        (("train", "flipflop/mgrade", "--seed", "1.5"), "'1.5'"),
        (("train", "flipflop/mgrade", "--device", "gpu"), "'gpu' is not one of 'cpu', 'cuda'"),
        (("demo", "--seed", "-4"), "seed must be at least 0, got -4"),
        (("dmo",), "dmo"),
        (("demo", "--epchs", "3"), "--epchs"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_status_2(capsys, arguments, message):
    status, out, err = call(capsys, *arguments)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("mgrade: ")
    assert message in err


class LaunchedError(Exception):
    """A demo has come so far that it trains."""


@pytest.fixture
def untrained(monkeypatch):
    """A demo that ends where it would train."""

    def launch(*_, **__):
        raise LaunchedError

    monkeypatch.setattr("mgrade.tasks.series.Vowels.examples", lambda *given: ())
    monkeypatch.setattr("mgrade.demo.launch", launch)


def test_a_demo_leaves_alone_what_no_demo_has_made(capsys, untrained, tmp_path):
    for place in ("results/vowels/mgrade/seed0.json", "runs/vowels/mgrade/seed0/recipe.json"):
        path = tmp_path / place
        path.parent.mkdir(parents=True)
        path.write_text("mine")
        status, _, err = call(capsys, "demo", "--out", str(tmp_path))
        assert status == 2
        assert err.startswith(f"mgrade: {path if path.name == 'seed0.json' else path.parent} was not made by a demo")
        assert path.read_text() == "mine"


def test_a_demo_that_is_stopped_says_so_in_a_line(capsys, untrained, monkeypatch, tmp_path):
    def launch(*_, **__):
        raise Stopped("stopped by SIGINT at step 3 of 9", signal.SIGINT)

    monkeypatch.setattr("mgrade.demo.launch", launch)
    status, out, err = call(capsys, "demo", "--out", str(tmp_path))
    assert (status, out) == (128 + signal.SIGINT, "")
    assert err == "mgrade: stopped by SIGINT at step 3 of 9: the same command starts over\n"


def test_a_demo_replaces_an_earlier_one_that_has_ended(capsys, untrained, tmp_path):
    folder, result = tmp_path / "runs/vowels/mgrade/seed0", tmp_path / "results/vowels/mgrade/seed0.json"
    with pytest.raises(LaunchedError):
        call(capsys, "demo", "--out", str(tmp_path))
    result.parent.mkdir(parents=True)
    for path in (result, folder / "recipe.json"):
        path.write_text("an earlier demo's")
    training = lock(folder / "lock")
    status, _, err = call(capsys, "demo", "--out", str(tmp_path))
    assert (status, err) == (2, f"mgrade: {folder}: another process is training here\n")
    assert result.is_file()
    training.close()
    with pytest.raises(LaunchedError):
        call(capsys, "demo", "--out", str(tmp_path))
    assert [path.name for path in folder.iterdir()] == ["demo"]
    assert not result.exists()


def test_the_demo_ends_with_the_run_of_its_seed(capsys, monkeypatch):
    story = SimpleNamespace(stages=[], train_seconds=1.0, step_microseconds=None, fits=["a chip"], files="demo/export")
    monkeypatch.setattr("mgrade.demo.run", lambda out, epochs, seed: story)
    assert "try: mgrade export demo/runs/vowels/mgrade/seed1 " in call(capsys, "demo", "--seed", "1")[1]


def test_the_demo_prints_folders_as_they_are_called(capsys, monkeypatch):
    story = SimpleNamespace(stages=[], train_seconds=1.0, step_microseconds=None, fits=["a chip"], files="my[b]/export")
    monkeypatch.setattr("mgrade.demo.run", lambda out, epochs, seed: story)
    out = call(capsys, "demo", "--out", "my[b]")[1]
    assert "C files: my[b]/export    try: mgrade export my[b]/runs/" in out


@pytest.mark.parametrize("name", ["vowels.c", "main.c", "mgrade_integer.h", "about.json", "program.safetensors"])
def test_a_demo_that_could_not_be_written_is_refused_before_it_trains(capsys, monkeypatch, tmp_path, name):
    monkeypatch.setattr("mgrade.tasks.series.Archived.examples", lambda *_: None)
    monkeypatch.setattr("mgrade.demo.launch", None)
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / name).write_text("mine")
    status, out, err = call(capsys, "demo", "--out", str(tmp_path))
    assert (status, out) == (2, "")
    assert err == f"mgrade: {tmp_path}/export: already has a {name} and is not an export: choose another folder\n"


def test_without_a_command_there_is_help_and_nothing_else(capsys):
    status, out, err = call(capsys)
    assert (status, err) == (2, "")
    assert "Usage: " in out


def test_a_recipe_is_printed_as_its_file_or_as_it_is_read(capsys):
    status, out, _ = call(capsys, "recipes", "flipflop/mgrade")
    assert status == 0
    assert '[task]\nname = "flipflop"\n' in out
    assert json.loads(call(capsys, "recipes", "flipflop/mgrade", "--json")[1])["task"]["name"] == "flipflop"
    assert "did you mean 'flipflop/mgrade'?" in call(capsys, "recipes", "flipflop/mgrad")[2]


def test_what_others_wrote_reaches_no_terminal_as_it_is(capsys):
    """Of a server's or a file's words: a terminal would obey them."""
    with pytest.raises(SystemExit):
        _stop("404\n \x1b[2Jgone \x9b1m über", 2)
    assert capsys.readouterr().err == "mgrade: 404 \\x1b[2Jgone \\x9b1m über\n"
    table = listing()
    table.add_row("a label", "\x1b[2Jgone [b]ü[/b]")
    console().print(table)
    assert capsys.readouterr().out.split(maxsplit=2)[2].strip() == "\\x1b[2Jgone [b]ü[/b]"


def test_the_version_is_said(capsys):
    assert call(capsys, "--version") == (0, f"mgrade {mgrade.__version__}\n", "")


@pytest.mark.parametrize("module", ["typer", "torch"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_imports_ends_it_quietly(module, number):
    script = textwrap.dedent(
        f"""
        import os, runpy, signal, sys

        signal.signal(signal.SIGINT, signal.default_int_handler)  # which a script's background jobs ignore

        class Interrupting:
            def find_spec(name, path, target=None):
                if name == "{module}":
                    os.kill(os.getpid(), {int(number)})

        sys.meta_path.insert(0, Interrupting)
        runpy.run_module("mgrade", run_name="__main__", alter_sys=True)
        """
    )
    out = subprocess.run([sys.executable, "-c", script, "info"], capture_output=True, text=True, check=False)
    assert (out.returncode, out.stdout) == (128 + number, "")
    assert out.stderr == ("mgrade: interrupted\n" if number == signal.SIGINT else "")


@pytest.mark.parametrize(("given", "set_to"), [(None, "passive"), ("active", "active")])
def test_threads_that_wait_sleep_unless_asked_otherwise(given, set_to):
    script = textwrap.dedent(
        """
        import os, runpy, sys

        class Telling:
            def find_spec(name, path, target=None):
                if name == "torch":
                    print(os.environ["OMP_WAIT_POLICY"], flush=True)
                    os._exit(0)

        sys.meta_path.insert(0, Telling)
        runpy.run_module("mgrade", run_name="__main__", alter_sys=True)
        """
    )
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {} if given is None else {"OMP_WAIT_POLICY": given}
    command = [sys.executable, "-c", script, "info"]
    out = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (out.returncode, out.stdout, out.stderr) == (0, f"{set_to}\n", "")


def test_the_command_line_is_there_without_pytorch():
    script = "import runpy, sys; sys.modules['torch'] = None; runpy.run_module('mgrade', run_name='__main__')"
    out = subprocess.run([sys.executable, "-c", script, "--help"], capture_output=True, text=True, check=False)
    assert (out.returncode, out.stderr) == (0, "")


def failing(monkeypatch, failure):
    def facts():
        failure()

    monkeypatch.setattr("mgrade.cli.info._facts", facts)


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (lambda: os.listdir("nowhere/x"), "nowhere/x: No such file or directory"),
        (lambda: torch.empty(2**45), f"out of memory, {2**47} bytes more were needed: a smaller model"),
        (lambda: torch.empty(2**62), "out of memory: a smaller model, batch or task takes less"),
        (lambda: np.empty(2**45), "out of memory, 256. TiB more were needed: a smaller model"),
    ],
)
def test_a_file_or_memory_that_is_not_there_is_one_line(capsys, monkeypatch, failure, message):
    failing(monkeypatch, failure)
    status, out, err = call(capsys, "info")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"mgrade: {message}")


def test_another_failure_is_not_hidden(capsys, monkeypatch):
    failing(monkeypatch, lambda: torch.zeros(2) @ torch.zeros(3))
    with pytest.raises(RuntimeError, match="inconsistent tensor size"):
        main(["info"])


def test_of_several_processes_one_says_what_is_refused(capsys, monkeypatch):
    for rank, lines in (("0", 1), ("1", 0)):
        monkeypatch.setenv("LOCAL_RANK", rank)
        status, _, err = call(capsys, "train", "flipflop/mgrad")
        assert (status, err.count("\n")) == (2, lines)


def test_python_dash_m_is_the_command():
    done = subprocess.run([sys.executable, "-m", "mgrade", "--help"], capture_output=True, text=True, check=True)
    assert "info" in done.stdout


def test_importing_mgrade_is_quick_once_torch_is_there():
    code = "import torch, time; t = time.perf_counter(); import mgrade; print(time.perf_counter() - t)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 2


def test_recipes_are_listed(capsys):
    status, out, _ = call(capsys, "recipes", "--json")
    assert status == 0
    assert "flipflop/mgrade" in json.loads(out)
    assert "flipflop/lru-dcls" in call(capsys, "recipes")[1]


def test_a_recipe_is_trained_evaluated_and_shown(capsys, tmp_path):
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    train = ("train", "flipflop/mgrade", "--seed", "0", "--out", str(tmp_path), "--device", "cpu", *settings)
    status, out, err = call(capsys, *train)
    assert (status, err) == (0, "")
    assert "validation accuracy" in out
    result = json.loads((tmp_path / "results/flipflop/mgrade/seed0.json").read_text())
    run = str(tmp_path / "runs/flipflop/mgrade/seed0")
    status, out, _ = call(capsys, "evaluate", run, "--device", "cpu", "--json")
    assert json.loads(out)["test_accuracy"] == result["metrics"]["test_accuracy"]
    status, out, _ = call(capsys, "reproduce", "flipflop", "--show", "--out", str(tmp_path), "--json")
    assert json.loads(out)[1]["values"] == []  # the recipe was changed
    assert "not run" in call(capsys, "reproduce", "flipflop", "--show", "--out", str(tmp_path))[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "flipflop/mgrad"), "there is no recipe 'flipflop/mgrad'; did you mean 'flipflop/mgrade'?"),
        (("train", "flipflop/mgrade", "--set", "model.dimm=3"), "model has no field 'dimm'; did you mean 'dim'?"),
        (("train", "flipflop/mgrade", "--max-minutes", "0"), "max_minutes must be above 0, got 0.0"),
        (("train", "flipflop/mgrade", "--seed", "-1"), "seed must be at least 0, got -1"),
        (("train", "flipflop/mgrade", "--seed", "0", "--seed", "0"), "seeds must differ, got [0, 0]"),
        (("train", "flipflop/mgrade", "--out", __file__), f"--out must be a folder, got {__file__}"),
        (("train", "flipflop/mgrade", "--device", "tpu"), "Invalid value for '--device'"),
        (("train", "flipflop/mgrade", "--out", "/proc/nowhere"), "/proc/nowhere: cannot be written"),
        (("data", "generate", "listops", "--out", "/proc/nowhere"), "/proc/nowhere: cannot be created: No such file"),
        (("evaluate", "nowhere"), "nowhere/recipe.json: cannot be read: No such file or directory"),
        (("reproduce", "lorentz"), "there is no experiment 'lorentz'; did you mean 'lorenz'?"),
        (("reproduce", "lorenz", "--show", "--out", "nowhere"), "--out must be a folder with results, got nowhere"),
    ],
)
def test_mistakes_in_training_are_one_line(capsys, arguments, message):
    status, out, err = call(capsys, *arguments)
    assert status == 2
    assert err.startswith(f"mgrade: {message}")
    assert err.count("\n") == 1
    assert out == ""
