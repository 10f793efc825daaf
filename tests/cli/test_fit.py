"""`mgrade fit`: one command from a CSV file to a program for a chip."""

import csv
import json
import shutil
import subprocess

import pytest

from mgrade.cli import main
from mgrade.deploy import chip, read_export

pytest.importorskip("sklearn", reason="scikit-learn is not installed")
from estimator.waves import waves
from mgrade import StreamClassifier


@pytest.fixture
def recordings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    series, labels = waves()
    with open("waves.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["wave", "kind", "left", "right"])
        for number, (one, label) in enumerate(zip(series, labels, strict=True)):
            table.writerows([number, label, *sample] for sample in one.T)
    return "waves.csv"


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(["fit", *arguments])
    captured = capsys.readouterr()
    return stop.value.code or 0, captured.out, captured.err


OPTIONS = ("--label", "kind", "--sequence", "wave", "--epochs", "30", "--budget", "8KB", "--out", "made")


def test_recordings_become_a_judged_program(capsys, recordings, tmp_path):
    status, out, _ = call(capsys, recordings, *OPTIONS, "--chip", "STM32F446", "--json")
    facts = json.loads(out)
    assert status == 0
    assert facts["channels"] == ["left", "right"]
    assert facts["trained_on"] + facts["held_out"] == 36
    assert facts["right"]["program"] > 0.7
    assert facts["fits"]
    description, program = read_export(tmp_path / "made" / "c")
    assert description["name"] == "made"
    assert program.parameter_bytes + program.state_bytes <= 8 * 1024
    told = json.loads((tmp_path / "made" / "c" / "about.json").read_text())
    assert told["labels"] == list(facts["confusion"]) == ["rising", "slow", "swift"]
    said = StreamClassifier.load(tmp_path / "made" / "model").predict(waves(seed=3)[0])
    assert (said == waves(seed=3)[1]).mean() > 0.7
    if shutil.which("cc"):
        subprocess.run(["cc", "-std=c99", "main.c", "made.c", "-o", "run"], cwd=tmp_path / "made" / "c", check=True)
        subprocess.run(["./run"], cwd=tmp_path / "made" / "c", check=True)


def test_what_is_printed_has_every_label_and_the_chip(capsys, recordings):
    if missing := chip.available("cortex-m4"):
        pytest.skip(missing)
    status, out, _ = call(capsys, recordings, *OPTIONS, "--chip", "nRF52840", "--verify")
    assert status == 0
    lines = {line.split("  ")[0].strip() or line.split()[0]: line for line in out.splitlines()}
    for label in ("rising", "slow", "swift"):
        assert " of 3" in lines[label]
    assert "of its RAM" in lines["on nRF52840"]
    assert "every output equal" in lines["on cortex-m4"]
    assert "steps a second" in lines["a step"]


def test_a_program_too_large_for_its_chip_says_so(capsys, recordings, monkeypatch):
    import mgrade.footprint.chips as chips

    tiny = chips.Chip("Tiny", "Cortex-M4", 1, 64, 64, "none")
    monkeypatch.setattr(chips, "CHIPS", (tiny,))
    status, out, err = call(capsys, recordings, *OPTIONS, "--epochs", "1", "--chip", "tiny")
    assert status == 1
    assert "DOES NOT FIT" in out
    assert err == "mgrade: the program does not fit Tiny: give a smaller --budget than 8192 bytes\n"


def test_a_chip_without_a_budget_leaves_half_of_its_memory():
    from mgrade.estimator.fitting import BUDGET, budget_for
    from mgrade.footprint import Chip, find_chip

    assert budget_for(None, None) == budget_for(find_chip("STM32F446"), None) == BUDGET
    assert budget_for(Chip("small", "", None, 10_000, 40_000, ""), None) == 5_000
    assert budget_for(Chip("one memory", "", None, 10_000, 0, ""), None) == 5_000
    assert budget_for(find_chip("STM32F446"), "4KB") == 4096


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("none.csv",), "none.csv: cannot be read"),
        (("waves.csv",), "waves.csv: has no column 'label'; its first line names wave, kind, left, right"),
        (("waves.csv", "--label", "kind", "--chip", "Z80"), "there is no chip 'Z80'"),
        (("waves.csv", "--label", "kind", "--verify"), "--verify needs --chip"),
        (("waves.csv", "--label", "kind", "--to", "cobol"), "to must be one of c, arduino, onnx, wasm, got 'cobol'"),
        (("waves.csv", "--label", "kind", "--chip", "RP2040", "--verify"), "cortex-m0+"),
        ((*("waves.csv", *OPTIONS), "--frame", "99"), "frame must be at most"),
        ((*("waves.csv", *OPTIONS), "--frame", "0"), "frame must be a whole number of at least 1, got 0"),
        ((*("waves.csv", *OPTIONS), "--test", "0"), "share must lie between 0 and 1, got 0"),
        ((*("waves.csv", *OPTIONS), "--budget", "9"), "budget must be at least"),
    ],
)
def test_a_mistake_is_one_line(capsys, recordings, arguments, message):
    status, out, err = call(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("mgrade: ")
    assert err.count("\n") == 1
    assert message in err


def test_a_step_can_take_several_samples(capsys, recordings, tmp_path):
    facts = json.loads(call(capsys, recordings, *OPTIONS, "--frame", "2", "--json")[1])
    assert read_export(tmp_path / "made" / "c")[1].inputs == 4
    assert facts["right"]["program"] > 0.7


def test_channels_can_be_chosen(capsys, recordings):
    arguments = (*OPTIONS, "--epochs", "1", "--channels", "right", "--json")
    assert json.loads(call(capsys, recordings, *arguments)[1])["channels"] == ["right"]
