"""`mgrade export` and `mgrade stages`: what they write and print, and how they refuse."""

import json

import pytest

from cli.exports import WHOLE, call, export, refused
from mgrade import Model, ModelConfig
from mgrade.deploy import chip, read_export, wasm


def needs(missing):
    if missing:
        pytest.skip(missing)


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("to", ["c", "arduino", "onnx", "wasm"])
def test_a_run_is_exported_to_every_target(capsys, run, tmp_path, to, precision):
    if to == "wasm":
        needs(wasm.available())
    if to == "onnx":
        pytest.importorskip("onnx")
    if (to, precision) == ("onnx", "int8"):
        assert "precision must be float32 for onnx, got 'int8'" in refused(
            capsys, "export", run, "--to", to, *WHOLE, "--out", tmp_path / "x" / "y"
        )
        assert not (tmp_path / "x").exists()
        return
    out = tmp_path / "x" / "y"
    facts = export(capsys, run, "--to", to, "--precision", precision, "--out", out)
    assert (facts["name"], facts["to"], facts["tokens"]) == ("flipflop", to, True)
    assert facts["precision"] == precision
    assert facts["activations"] == {"float32": "float32", "int8": "int16"}[precision]
    assert json.loads((out / "export.json").read_text()) == facts
    files = {
        "c": {"flipflop.h", "flipflop.c", "main.c", "flipflop_test.h"},
        "arduino": {"library.properties", "library.json", "src", "examples"},
        "onnx": {"flipflop.onnx"},
        "wasm": {"flipflop.wasm", "flipflop.json", "model.js", "package.json"},
    }[to]
    if (to, precision) == ("wasm", "float32"):
        files.add("flipflop.relaxed.wasm")
    headers = {"mgrade_float.h"} if precision == "float32" else {"mgrade_integer.h", "mgrade_lanes.h", "mgrade_dots.h"}
    runtime = headers if to == "c" else set()
    always = {"program.safetensors", "export.json", "about.json"}
    assert {path.name for path in out.iterdir()} == files | runtime | always
    _, program = read_export(out)
    assert program.state_bytes == facts["state_bytes"]
    assert program.parameter_bytes == facts["parameter_bytes"]


def test_judged_exports_score_as_the_model_does(capsys, run, tmp_path):
    out = call(capsys, "evaluate", run, "--device", "cpu", "--json")[1]
    expected = json.loads(out)["test_accuracy"]
    facts = export(capsys, run, "--judge", "--out", tmp_path / "float")
    assert facts["test"] == {"accuracy": pytest.approx(expected)}
    facts = export(capsys, run, "--judge", "--snap", *WHOLE, "--state-bits", 16, "--out", tmp_path / "whole")
    assert 0 <= facts["test"]["accuracy"] <= 1
    facts = export(capsys, run, "--judge", *WHOLE, "--activations", "int8", "--out", tmp_path / "small")
    assert (facts["precision"], facts["activations"]) == ("int8", "int8")
    assert 0 <= facts["test"]["accuracy"] <= 1


def test_snapping_leaves_fewer_bytes(capsys, model, tmp_path):
    whole = export(capsys, model, "--out", tmp_path / "whole")
    snapped = export(capsys, model, "--snap", "--out", tmp_path / "snapped")
    assert snapped["parameter_bytes"] < whole["parameter_bytes"]


@pytest.mark.parametrize("name", tuple(chip.CORES))
def test_an_export_is_verified_on_every_chip(capsys, run, model, tmp_path, name):
    needs(chip.available(name))
    for at, (source, options) in enumerate(((run, WHOLE), (model, ()))):
        found = export(capsys, source, *options, "--verify", name, "--out", tmp_path / str(at))["verify"]
        assert found["equal"]
        assert (found["chip"], found["steps"]) == (name, 200)
        assert found["error"] == 0 if options else found["error"] < 1e-5
        assert found["flash_bytes"] > 0 < found["instructions_least"] <= found["instructions"]


def test_what_was_found_is_shown_as_a_table(capsys, run, tmp_path):
    out = tmp_path / "[a] folder"
    arguments = ("export", run, *WHOLE, "--judge", "--out", out)
    if not chip.available("cortex-m4"):
        arguments += ("--verify", "cortex-m4")
    status, shown, err = call(capsys, *arguments)
    assert (status, err) == (0, "")
    for words in ("[a] folder", "activations", "int16", "bytes", "test accuracy"):
        assert words in shown
    if "--verify" in arguments:
        assert "every output equal" in shown
        assert "instructions a step" in shown


def test_the_stages_of_an_export_are_printed_and_written(capsys, run, tmp_path):
    file = tmp_path / "new" / "stages.json"
    status, shown, err = call(capsys, "stages", run, "--examples", 8, "--out", file, "--json")
    assert (status, err) == (0, "")
    assert json.loads(shown) == json.loads(file.read_text())
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    assert all(stage["figures"]["accuracy"] >= 0 for stage in json.loads(shown)["stages"])
    assert refused(capsys, "stages", run, "--out", tmp_path) == f"{tmp_path}: must be a file, is a folder"
    before, theirs = (run / "recipe.json").read_bytes(), run / "recipe.json"
    said = refused(capsys, "stages", run, "--out", theirs)
    assert said == f"{theirs}: was not written by this command: choose another path, or move it away"
    assert theirs.read_bytes() == before
    assert call(capsys, "stages", run, "--examples", 8, "--out", file)[0] == 0


def test_a_name_is_given_or_made_of_the_folder(capsys, model, tmp_path):
    out = tmp_path / "x"
    assert export(capsys, model, "--out", out)["name"] == "my_model"
    assert export(capsys, model, "--name", "other", "--out", out)["name"] == "other"  # an export goes over an export
    assert (out / "other.c").is_file()
    model.rename(tmp_path / "main")
    assert export(capsys, tmp_path / "main", "--out", out)["name"] == "model_main"
    for bad in ("Big", "1st", "a-b", "mg_x", "string", "math", "x" * 41):
        assert "name must" in refused(capsys, "export", tmp_path / "main", "--name", bad, "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--to", "rust"), "to must be one of c, arduino, onnx, wasm, got 'rust'"),
        (("--precision", "int4"), "precision must be one of float32, int8, got 'int4'"),
        ((*WHOLE, "--activations", "float32"), "activations must be one of int16, int8, got 'float32'"),
        ((*WHOLE, "--state-bits", 8), "state_bits must be 16 or 32, got 8"),
        (("--state-bits", 8), "state_bits must be 16 or 32, got 8"),
        (("--activations", "float32"), "activations must be one of int16, int8, got 'float32'"),
        (("--activations", "int8"), "activations and state_bits require precision int8, got precision float32"),
        (("--calibrate", "x.csv"), "calibration samples require precision int8, got precision float32"),
        ((*WHOLE,), "a saved model has no data of its own: give --calibrate FILE.csv, or the folder of a run"),
        ((*WHOLE, "--calibrate", "none.csv"), "none.csv: cannot be read: No such file or directory"),
        (("--judge",), "a saved model has no test set of its own: give the folder of a run"),
        (("--verify", "z80"), "chip must be one of cortex-m55, cortex-m7, cortex-m4, got 'z80'"),
        (("--to", "arduino", "--verify", "cortex-m4"), "only an export to c runs on a chip, this one is to arduino"),
        (("--data", "nowhere"), "--data must be a folder, got nowhere"),
    ],
)
def test_a_wrong_choice_is_one_line_and_nothing_is_written(capsys, model, tmp_path, arguments, message):
    before = sorted(tmp_path.rglob("*"))
    assert refused(capsys, "export", model, "--out", tmp_path / "x", *arguments) == message
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": has no samples"),
        ("a,b,c\n\n", ": has no samples"),
        ("1,2,3\n1,2\n", ", line 2: must have 3 values, got 2"),
        ("1,2,3\n\n1,x,3\n", ", line 3: must be finite numbers, got '1,x,3'"),
        ("1,b,3\n", ", line 1: must be finite numbers, got '1,b,3'"),
        ("1,nan,3\n", ", line 1: must be finite numbers, got '1,nan,3'"),
        ("1,1e39,3\n", ", line 1: must be finite numbers, got '1,1e39,3'"),
        ("1;2;3\n4,5,6\n", ", line 2: must be finite numbers, got '4,5,6'"),
        ("1;2\n", ", line 1: must have 3 values, got 2"),
        (b"\xff\xfe1", ": must be UTF-8 text"),
    ],
)
def test_a_bad_line_of_samples_is_named(capsys, model, tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    arguments = ("export", model, *WHOLE, "--calibrate", path, "--out", tmp_path / "x")
    assert refused(capsys, *arguments) == f"{path}{message}"
    assert not (tmp_path / "x").exists()


def test_a_model_is_not_mixed_with_its_export(capsys, model):
    before = sorted(model.iterdir())
    assert (
        refused(capsys, "export", model, "--out", model) == f"{model}: is the folder of a saved model: choose another"
    )
    assert sorted(model.iterdir()) == before


def test_what_is_no_model_is_refused(capsys, model, run, tmp_path):
    out = ("--out", tmp_path / "x")
    assert refused(capsys, "export", tmp_path / "none", *out) == f"{tmp_path / 'none'}: there is no such folder"
    (tmp_path / "none").mkdir()
    assert "is neither a finished run" in refused(capsys, "export", tmp_path / "none", *out)
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "recipe.json").write_bytes((run / "recipe.json").read_bytes())
    assert "the run is not finished" in refused(capsys, "export", begun, *out)
    Model(ModelConfig(inputs=3, outputs=2, dim=6, pair=True, readout="mean")).save(tmp_path / "pair")
    assert "pair=True" in refused(capsys, "export", tmp_path / "pair", *out)
    next(model.glob("*.safetensors")).write_bytes(b"")
    assert "sha256 does not match" in refused(capsys, "export", model, *out)
    assert not (tmp_path / "x").exists()


def test_no_file_of_anyone_elses_is_written_over(capsys, model, tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    assert refused(capsys, "export", model, "--out", file) == f"{file}: is not a folder"
    assert "cannot be written" in refused(capsys, "export", model, "--out", file / "below")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "main.c").write_text("mine")
    message = f"{mine}: already has a main.c and is not an export: choose another folder"
    assert refused(capsys, "export", model, "--out", mine) == message
    assert [path.name for path in mine.iterdir()] == ["main.c"]
    assert (mine / "main.c").read_text() == "mine"


def test_what_goes_wrong_on_the_chip_is_one_line(capsys, model, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise chip.ChipError("cortex-m4: region FLASH overflowed")

    monkeypatch.setattr(chip, "run", fail)
    monkeypatch.setattr(chip, "available", lambda name: None)
    status, out, err = call(capsys, "export", model, "--out", tmp_path / "x", "--verify", "cortex-m4", "--json")
    assert (status, out, err) == (1, "", "mgrade: cortex-m4: region FLASH overflowed\n")
    read_export(tmp_path / "x")


def test_outputs_that_differ_on_the_chip_are_said_with_status_1(capsys, model, tmp_path, monkeypatch):
    found = {"chip": "cortex-m4", "equal": False, "error": 0.25, "flash_bytes": 1, "ram_bytes": 1, "stack_bytes": 1}
    monkeypatch.setattr(
        "mgrade.deploy.verify", lambda folder, name: {**found, "instructions": 9, "instructions_least": 8}
    )
    monkeypatch.setattr(chip, "available", lambda name: None)
    status, out, err = call(capsys, "export", model, "--out", tmp_path / "x", "--verify", "cortex-m4")
    assert (status, err) == (1, "mgrade: cortex-m4 and the interpreter differ by 0.25\n")
    assert "OUTPUTS DIFFER" in out
    assert "at most 9, at least 8" in out
