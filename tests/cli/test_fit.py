"""`mgrade fit`: one command from a CSV file to a program for a chip."""

import csv
import importlib.util
import io
import json
import shlex
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mgrade.cli import main
from mgrade.deploy import chip, read_export

pytest.importorskip("sklearn", reason="scikit-learn is not installed")
from estimator.waves import waves
from mgrade import StreamClassifier
from mgrade.cli.fit import _rate
from mgrade.estimator.checks import check_output
from mgrade.estimator.fitting import Fitted
from mgrade.estimator.fitting import fit as train
from mgrade.estimator.recordings import Recordings


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
    status, out, err = call(capsys, recordings, *OPTIONS, "--chip", "STM32F446", "--json")
    facts = json.loads(out)
    assert status == 0
    lengths = [one.shape[1] for one in waves()[0]]
    assert facts["recordings"] == {
        "count": 36,
        "shortest": min(lengths),
        "median": statistics.median(lengths),
        "longest": max(lengths),
    }
    assert err.startswith(f"mgrade: 36 recordings of {min(lengths)} to {max(lengths)} samples, median ")
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
    lines = {line.split("  ")[0].strip() or line.split()[0]: line.rstrip() for line in out.splitlines()}
    for label in ("rising", "slow", "swift"):
        assert " of 3" in lines[label]
        assert lines[label].endswith(", too few to judge by")
    assert "of its RAM" in lines["on nRF52840"]
    assert "every output equal" in lines["on cortex-m4"]
    assert lines["a step"].endswith("steps a second")


def test_a_program_too_large_for_its_chip_says_so(capsys, recordings, monkeypatch):
    import mgrade.footprint.chips as chips

    tiny = chips.Chip("Tiny", "Cortex-M4", 1, 64, 8192, "none")  # a stream does not fit its RAM
    monkeypatch.setattr(chips, "CHIPS", (tiny,))
    status, out, err = call(capsys, recordings, *OPTIONS, "--epochs", "1", "--chip", "tiny")
    assert status == 1
    assert "DOES NOT FIT" in out
    assert err.endswith("mgrade: the program does not fit Tiny: give a smaller --budget than 8192 bytes\n")


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
        (
            ("waves.csv", "--label", "kind", "--chip", "RP2040", "--verify"),
            "the core of RP2040 cannot be emulated",
        ),
        (("waves.csv", *OPTIONS, "--frame", "99"), "frame must be at most 18, the samples of the shortest recording, "),
        (("waves.csv", *OPTIONS, "--frame", "0"), "frame must be a whole number of at least 1, got 0"),
        (("waves.csv", *OPTIONS, "--window", "99"), "window must be at most "),
        (("waves.csv", *OPTIONS, "--window", "9", "--frame", "4"), "window must be a multiple of frame, 4, got 9"),
        (("waves.csv", *OPTIONS, "--test", "0"), "--test must be between 0 and 1, such as 0.25, got 0"),
        (("waves.csv", *OPTIONS, "--test", "25"), "--test must be between 0 and 1, such as 0.25, got 25"),
        (("waves.csv", *OPTIONS, "--seed", "-1"), "--seed must be at least 0 and below 2^32, got -1"),
        (("waves.csv", *OPTIONS, "--epochs", "0"), "epochs must be a whole number of at least 1, got 0"),
        (("waves.csv", *OPTIONS, "--budget", "none"), "budget must be a number of bytes"),
        (("waves.csv", *OPTIONS, "--to", "onnx"), "--to onnx needs --precision float32"),
        (("waves.csv", *OPTIONS, "--precision", "int4"), "precision must be one of float32, int8, got 'int4'"),
        (("waves.csv", *OPTIONS, "--out", "waves.csv"), "--out must be a folder that can be written, got "),
        (("waves.csv", *OPTIONS, "--out", "waves.csv/under"), "--out must be a folder that can be written, got "),
        (("waves.csv", *OPTIONS, "--out", "mine"), "mine/c: already has a mine.c and is not an export"),
        (("waves.csv", *OPTIONS, "--out", "other"), "other/model: has the file config.json, which is not a saved"),
        (("long.csv",), "labels must have at most 80 characters, got 81 in 'aaaaaaaaaaaaaaaaaaaa'"),
        (("one.csv",), "recordings must have at least 2 labels, got only 'up'"),
        (
            ("mixed.csv",),
            "recordings must have a median of at least 5 samples, got 40 recordings of 1 to 1, median 1: --sequence"
            " must name the column that tells them apart; it may be 'id'",
        ),
    ],
)
def test_a_mistake_is_one_line_before_any_training(capsys, recordings, monkeypatch, arguments, message):
    monkeypatch.setattr(StreamClassifier, "fit", None)
    Path("mine/c").mkdir(parents=True)
    Path("mine/c/mine.c").touch()
    Path("other/model").mkdir(parents=True)
    Path("other/model/config.json").write_text("{}")
    Path("long.csv").write_text("label,x\n" + "a" * 81 + ",1\nb,1\n")
    Path("one.csv").write_text("label,x\n" + "up,1\n" * 9)
    Path("mixed.csv").write_text("id,label,x\n" + "".join(f"{t % 2},{'ab'[t % 2]},{t}.5\n" for t in range(40)))
    status, out, err = call(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("mgrade: ")
    assert err.count("\n") == 1
    assert message in err


def test_a_missing_package_and_a_name_that_is_taken_are_refused(capsys, recordings, monkeypatch):
    monkeypatch.setattr(StreamClassifier, "fit", None)
    monkeypatch.setitem(sys.modules, "onnx", None)
    status, _, err = call(capsys, recordings, *OPTIONS, "--to", "onnx", "--precision", "float32")
    assert (status, err) == (2, "mgrade: --to onnx needs the package onnx: pip install 'mgrade[onnx]'\n")
    check_output(Path("fine"), "wasm")
    check_output(Path("export"), "c")
    for name in ("export", "about", "package"):
        with pytest.raises(ValueError, match=f"name must not be '{name}': {name}.json is another file"):
            check_output(Path(name), "wasm")


def test_a_budget_that_is_too_small_is_named(capsys, recordings):
    status, out, err = call(capsys, recordings, *OPTIONS, "--budget", "9")
    assert (status, out) == (2, "")
    assert err.startswith("mgrade: budget must be at least ")
    assert err.count("\n") == 1


def test_a_column_of_one_value_is_said_and_has_no_say(capsys, recordings):
    lines = Path(recordings).read_text().splitlines()
    Path("still.csv").write_text("\n".join(f"{line},{7 if i else 'still'}" for i, line in enumerate(lines)) + "\n")
    status, _, err = call(capsys, "still.csv", *OPTIONS, "--epochs", "1")
    assert status == 0
    assert "mgrade: column 'still' is constant: nothing is learned from it\n" in err
    classifier = StreamClassifier.load("made/model")
    series, _ = waves()
    said = [classifier.predict_proba([np.vstack([one, np.full(one.shape[1], at)]) for one in series]) for at in (7, 70)]
    assert np.array_equal(*said)
    status, out, err = call(capsys, "still.csv", *OPTIONS, "--channels", "still")
    assert (status, out) == (2, "")
    assert err == "mgrade: channels must vary, got only constant ones: 'still'\n"


@pytest.mark.parametrize("part", ["tempfile.TemporaryDirectory", "write_export"])
def test_what_cannot_be_written_replaces_nothing(capsys, recordings, monkeypatch, part):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    assert call(capsys, recordings, *OPTIONS, "--epochs", "1")[0] == 0
    before = {path: path.read_bytes() for path in Path("made").rglob("*") if path.is_file()}
    monkeypatch.setattr(f"mgrade.estimator.fitting.{part}", full)
    status, _, err = call(capsys, recordings, *OPTIONS, "--epochs", "1", "--seed", "5")
    assert (status, err.splitlines()[-1]) == (2, "mgrade: made: cannot be written: No space left on device")
    assert {path: path.read_bytes() for path in Path("made").rglob("*") if path.is_file()} == before


def test_what_looks_like_a_mistake_is_said(capsys, recordings):
    lines = Path(recordings).read_text().splitlines()
    stamped = [f"{line},{'time' if not i else i * 20}" for i, line in enumerate(lines)]
    Path("stamped.csv").write_text("\n".join(stamped).replace("0,rising", "0,Rising") + "\n")
    brief = (*OPTIONS, "--epochs", "1", "--json")
    _, _, err = call(capsys, recordings, *brief)
    assert "grows" not in err
    assert "case" not in err
    status, out, err = call(capsys, "stamped.csv", *brief)
    assert status == 0
    assert json.loads(out)["channels"] == ["left", "right", "time"]
    assert "mgrade: labels 'Rising' and 'rising' differ only in case: write them alike if they are one\n" in err
    assert [line for line in err.splitlines() if "--channels" in line] == [
        "mgrade: column 'time' only grows in every recording, like a time stamp: if it is not from the sensor,"
        " leave it out by naming the others with --channels"
    ]


@pytest.mark.filterwarnings("default::UserWarning")
def test_a_warning_is_one_line_that_names_the_column(capsys, recordings):
    first, *rest = Path(recordings).read_text().splitlines()
    far = [f"{line},{1e9 + number % 3}" for number, line in enumerate(rest)]
    Path("far.csv").write_text("\n".join([f"{first},pressure", *far]) + "\n")
    status, _, err = call(capsys, "far.csv", *OPTIONS, "--epochs", "1")
    assert status == 0
    assert all(line.startswith("mgrade: ") for line in err.splitlines()), err
    assert "mgrade: column 'pressure' must vary by at least 1e-06 of its mean" in err


def test_a_forgotten_sequence_is_asked_for(capsys, recordings):
    """A column that numbers the recordings tells their labels as well, and would pass for a perfect sensor."""
    _, _, err = call(capsys, recordings, "--label", OPTIONS[1], "--epochs", "1", "--json")
    assert [line for line in err.splitlines() if "--sequence" in line] == [
        f"mgrade: column {OPTIONS[3]!r} keeps a whole number for long stretches, like the number of a recording: name"
        " it with --sequence, or leave it out by naming the others with --channels"
    ]


def test_names_and_paths_are_shown_as_they_are(capsys, recordings):
    text = (
        Path(recordings)
        .read_text()
        .replace("kind,left,right", 'kind,"imu:x:raw, [b]",a:heart:b')
        .replace("slow", ":smile:")
    )
    Path("odd.csv").write_text(text)
    folder = Path("p" * 110) / ("q" * 110 + "\\")
    chosen = ("--channels", '"imu:x:raw, [b]", a:heart:b')
    status, out, err = call(capsys, "odd.csv", *OPTIONS[:4], *chosen, "--epochs", "1", "--out", str(folder))
    assert status == 0, err
    assert "imu:x:raw, [b], a:heart:b" in out
    assert "  :smile:" in out
    assert f"{folder / 'c'},{folder / 'model'}" in "".join(out.split())  # over several lines


def test_what_a_window_leaves_out_is_said(capsys, recordings):
    lengths = {label: [] for label in ("rising", "slow", "swift")}
    for one, label in zip(*waves(), strict=True):
        lengths[label].append(one.shape[1])
    window = min(sorted(found)[-2] for found in lengths.values())
    lost = sum(length < window for found in lengths.values() for length in found)
    status, _, err = call(capsys, recordings, *OPTIONS, "--epochs", "1", "--window", str(window))
    assert status == 0
    assert f"mgrade: {lost} of 36 recordings are left out: shorter than the window, {window}\n" in err
    least = min(lengths, key=lambda label: sorted(lengths[label])[-2])
    status, _, err = call(capsys, recordings, *OPTIONS, "--window", str(max(lengths[least])))
    assert status == 2
    assert f"window must leave at least 2 recordings of {least!r}" in err.splitlines()[-1]


def test_a_program_of_an_earlier_fit_is_named(capsys, recordings):
    assert call(capsys, recordings, *OPTIONS, "--epochs", "1")[0] == 0
    _, _, err = call(capsys, recordings, *OPTIONS, "--epochs", "1", "--to", "arduino")
    said, command, then = err.splitlines()[-1].split("`")
    assert (said, then) == ("mgrade: made/c is from an earlier fit: ", " renews it")
    assert shlex.split(command) == ["mgrade", "export", "made/model", "--to", "c", "--out", "made/c"]
    with pytest.raises(SystemExit):
        main(shlex.split(command)[1:])
    programs = [Path("made", to, "program.safetensors").read_bytes() for to in ("c", "arduino")]
    assert programs[0] == programs[1]


@pytest.mark.parametrize("names", ["", "right,", '"right', "left\nright"])
def test_channels_that_are_no_names_are_refused(capsys, recordings, names):
    status, _, err = call(capsys, recordings, *OPTIONS, "--channels", names)
    assert (status, err) == (2, f"mgrade: --channels must be names separated by commas, got {names!r}\n")


def test_a_fitted_model_is_exported_as_it_was_fitted(capsys, recordings):
    assert call(capsys, recordings, *OPTIONS, "--epochs", "1")[0] == 0
    for more, activations in (((), "int16"), (("--precision", "float32"), "float32"), (("--to", "onnx"), "float32")):
        if "onnx" in more and importlib.util.find_spec("onnx") is None:
            continue
        with pytest.raises(SystemExit):
            main(["export", "made/model", "--out", "-".join(("x", *more)), "--json", *more])
        assert json.loads(capsys.readouterr().out)["activations"] == activations
        if not more:
            assert Path("x/program.safetensors").read_bytes() == Path("made/c/program.safetensors").read_bytes()
    with pytest.raises(SystemExit):
        main(["export", "made/model", "--to", "onnx", "--precision", "int8"])
    assert capsys.readouterr().err == "mgrade: precision must be float32 for onnx, got 'int8'\n"
    with pytest.raises(SystemExit):
        main(["play", "made"])
    assert "or a saved model: made/c and made/model may be" in capsys.readouterr().err


def test_a_budget_beyond_the_chip_is_refused_before_training(capsys, recordings):
    chip = (*OPTIONS, "--chip", "STM32F446", "--out", "big")
    status, out, err = call(capsys, recordings, *chip, "--budget", "900KB")
    assert (status, out) == (2, "")
    assert err == "mgrade: --budget must be at most 524288 bytes, the flash of STM32F446, got '900KB'\n"
    assert not Path("big").exists()


def test_a_stream_gives_labels_window_by_window(capsys, recordings, monkeypatch):
    assert call(capsys, recordings, *OPTIONS, "--window", "6")[0] == 0
    lines = Path(recordings).read_text().splitlines(keepends=True)

    def streamed(*chosen):
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join([lines[0], *chosen])))
        with pytest.raises(SystemExit):
            main(["stream", "made/c", "--labels"])
        return capsys.readouterr().out.split()

    first, second = lines[1:7], lines[7:13]
    assert streamed(*first, *second) == streamed(*first) + streamed(*second)
    assert {*streamed(*lines[1:13])} <= {*json.loads(Path("made/c/about.json").read_text())["labels"]}


def test_pieces_are_called_pieces_and_judged_by_their_recordings(capsys, recordings):
    _, out, err = call(capsys, recordings, *OPTIONS, "--epochs", "1", "--window", "6")
    lines = [line.rstrip() for line in out.splitlines()]
    assert " pieces of 6 samples, " in next(line for line in lines if line.startswith("trained on"))
    assert next(line for line in lines if line.startswith("held-out")).endswith(" pieces of 6 samples")
    assert next(line for line in lines if "slow  " in line).endswith(", of 3 recordings, too few to judge by")
    assert "mgrade: 36 recordings of 18 to " in err


def test_a_program_worse_than_its_classifier_says_so():
    series, labels = waves(count=30)
    held = Recordings(series, labels, np.arange(30).astype(str), ("left", "right"))
    wrong = labels.copy()
    wrong[0] = "swift"
    classifier = StreamClassifier()
    assert Fitted(classifier, None, held, labels, wrong, 1.0).shortfall() == [
        "the int8 program is right on 96.7%, the classifier itself on 100.0%: try --precision float32,"
        " or a larger --budget"
    ]
    assert Fitted(classifier, None, held, wrong, wrong, 1.0).shortfall() == []
    assert Fitted(classifier, None, held, wrong, labels, 1.0).shortfall() == []


def test_a_rate_is_in_samples_as_well():
    assert _rate(1000.0, 1) == ", at most 1,000 steps a second"
    assert _rate(1000.0, 4) == ", at most 1,000 steps a second, 4,000 samples"
    assert _rate(None, 4) == ""


def test_every_epoch_is_told_and_none_printed(capsys):
    series, labels = waves(count=12)
    known = Recordings(series, labels, np.arange(12).astype(str), ("left", "right"))
    told = []
    found = train(known, known, 8192, 1, told.append, epochs=3, random_state=0)
    assert [line.partition(":")[0] for line in told] == [f"epoch {n} of 3" for n in (1, 2, 3)]
    assert capsys.readouterr().out == ""
    assert found.classifier.verbose == 0


def test_a_folder_of_an_earlier_fit_is_written_again(capsys, recordings):
    brief = (*OPTIONS, "--epochs", "1", "--json")
    assert call(capsys, recordings, *brief)[0] == 0
    for name in ("made/c/a.out", "made/notes.txt"):  # as a compiler leaves them there
        Path(name).write_text("kept")
    assert call(capsys, recordings, *brief)[0] == 0
    assert [Path(name).read_text() for name in ("made/c/a.out", "made/notes.txt")] == ["kept"] * 2


def test_a_step_can_take_several_samples(capsys, recordings, tmp_path):
    facts = json.loads(call(capsys, recordings, *OPTIONS, "--frame", "2", "--json")[1])
    assert read_export(tmp_path / "made" / "c")[1].inputs == 4
    assert facts["right"]["program"] > 0.7


def test_channels_can_be_chosen(capsys, recordings):
    arguments = (*OPTIONS, "--epochs", "1", "--channels", "right", "--json")
    assert json.loads(call(capsys, recordings, *arguments)[1])["channels"] == ["right"]
