"""From a fitted estimator to programs and files."""

import copy
import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch

from estimator.waves import small, waves
from mgrade import StreamClassifier, StreamForecaster, load
from mgrade.cli import main
from mgrade.deploy import Interpreter, compile, dequantise_output, quantise_input, read_export
from mgrade.estimator import base, series

needs_compiler = pytest.mark.skipif(not shutil.which("gcc"), reason="no C compiler: gcc is not installed")


def streamed(program, X):
    """Probabilities (cases, classes) of the compiled program after raw series (channels, time)."""
    compiled = compile(program, flags=("-O1",))
    rows = []
    for one in X:
        compiled.reset()
        y = compiled.run(quantise_input(program, one.T.astype(np.float32)))
        rows.append(softmax(dequantise_output(program, y)[-1]))
    return np.stack(rows)


def softmax(y):
    powers = np.exp(y.astype(np.float64) - y.max())
    return powers / powers.sum()


@needs_compiler
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-3), ("int8", 0.1)])
def test_the_exported_program_compiled_predicts_the_same(fitted, tmp_path, precision, tolerance):
    description = fitted.export("c", tmp_path / "My waves", precision)
    assert description["name"] == "my_waves"
    assert description["deviation"] < tolerance
    assert (tmp_path / "My waves" / "my_waves.c").is_file()
    program = read_export(tmp_path / "My waves")[1]
    assert program.integer == (precision == "int8")
    X, _ = waves(9, seed=5)
    got = streamed(program, X)
    np.testing.assert_allclose(got, fitted.predict_proba(X), atol=tolerance)
    np.testing.assert_array_equal(fitted.classes_[got.argmax(1)], fitted.predict(X))


def test_int8_stands_channels_far_from_zero_and_of_unequal_width():
    X, y = waves(36)
    X = [one * np.array([[1.0], [5.0]]) + np.array([[40.0], [9000.0]]) for one in X]
    classifier = small().fit(X, y)
    program = classifier.program("int8")
    got = [
        dequantise_output(program, Interpreter(program).run(quantise_input(program, one.T[None])))[0, -1] for one in X
    ]
    agreement = np.mean(classifier.classes_[np.argmax(got, 1)] == classifier.predict(X))
    assert agreement >= 0.95


@pytest.mark.parametrize(
    ("scale", "offset"), [((1e-6, 1.0), (0.0, 300.0)), ((1e-20, 1e-20), (0.0, 0.0)), ((1e20, 1e-3), (0.0, 10.0))]
)
def test_units_may_be_as_unequal_as_they_are(tmp_path, scale, offset):
    X, y = waves(12)
    X = [one * np.array(scale)[:, None] + np.array(offset)[:, None] for one in X]
    classifier = small(epochs=20).fit(X, y)
    assert classifier.export("c", tmp_path / "int8", precision="int8")["deviation"] < 0.1
    forecaster = StreamForecaster(epochs=5, budget="8KB", random_state=0).fit(X)
    assert len(forecaster.program("int8").output_units) in (0, 2)
    assert forecaster.export("c", tmp_path / "ahead", precision="int8")["deviation"] < 0.1


def test_an_export_that_is_not_good_is_warned_about(tmp_path, monkeypatch):
    monkeypatch.setattr("mgrade.estimator.base.MOST_DEVIATION", 1e-4)
    classifier = small(epochs=2).fit(*waves(12))
    with pytest.warns(UserWarning, match="export float32"):
        classifier.export("c", tmp_path / "int8", precision="int8")


@pytest.mark.parametrize("precision", ["int8", "float32"])
@pytest.mark.parametrize("budget", ["4KB", "24KB"])
def test_a_budget_is_kept_and_used(budget, precision):
    limit = 1024 * int(budget[:-2])
    classifier = small(budget=budget, precision=precision, epochs=1).fit(*waves(12))
    footprint = classifier.footprint()
    assert footprint["precision"] == precision
    assert footprint["bytes"] == footprint["parameter_bytes"] + footprint["state_bytes"] <= limit
    assert footprint["bytes"] > limit / 3


def test_a_tight_budget_shortens_delays_before_layers():
    series = waves(6, least=64, most=64)
    roomy, tight = (small(budget=budget, depth=2, epochs=1).fit(*series).config_ for budget in (20_000, 1000))
    assert (roomy.max_delay, roomy.depth) == (32, 2)
    assert (tight.max_delay < 32, tight.depth) == (True, 2)


def test_save_and_load(fitted, tmp_path):
    folder = tmp_path / "saved"
    fitted.save(folder)
    again = StreamClassifier.load(folder)
    X, _ = waves(6, seed=6)
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    assert again.get_params() == fitted.get_params()
    assert again.footprint() == fitted.footprint()
    for one, kept in zip(again.sample_, fitted.sample_, strict=True):
        np.testing.assert_array_equal(one, kept)
    assert load(folder).config == fitted.config_
    with pytest.raises(ValueError, match="estimator must be StreamForecaster, got 'StreamClassifier'"):
        StreamForecaster.load(folder)


def test_what_cannot_be_saved_leaves_what_was(fitted, tmp_path):
    fitted.save(tmp_path)
    other = copy.deepcopy(fitted).set_params(verbose=[1])
    with pytest.raises(ValueError, match=r"verbose must be text or a number to be saved, got \[1\]"):
        other.save(tmp_path)
    assert StreamClassifier.load(tmp_path).verbose == fitted.verbose
    other.set_params(verbose=0, device=torch.device("cpu")).save(tmp_path)
    with pytest.raises(ValueError, match=r"estimator.json: must be a folder, is a file"):
        fitted.save(tmp_path / "estimator.json")
    assert StreamClassifier.load(tmp_path).device == "cpu"


@pytest.mark.parametrize("labels", [[3, 1, 2], [True, False, True], [0.0, 1.0, 2.0]])
def test_labels_of_any_kind_are_saved(tmp_path, labels):
    X, _ = waves(6)
    classifier = small(epochs=1).fit(X, labels * 2)
    classifier.save(tmp_path)
    classes = StreamClassifier.load(tmp_path).classes_
    assert classes.dtype == classifier.classes_.dtype
    np.testing.assert_array_equal(classes, classifier.classes_)


def test_what_is_damaged_is_refused(fitted, tmp_path):
    fitted.save(tmp_path)
    sample = tmp_path / "sample.safetensors"
    whole = sample.read_bytes()
    sample.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="sha256 does not match"):
        StreamClassifier.load(tmp_path)
    sample.write_bytes(whole)
    path = tmp_path / "estimator.json"
    description = json.loads(path.read_text())
    path.write_text(json.dumps({**description, "weights_sha256": "0"}))
    with pytest.raises(ValueError, match="weights_sha256 does not match"):
        StreamClassifier.load(tmp_path)
    path.write_text(json.dumps({**description, "fitted": {}}))
    with pytest.raises(ValueError, match="is damaged"):
        StreamClassifier.load(tmp_path)
    path.unlink()
    with pytest.raises(ValueError, match="cannot be read"):
        StreamClassifier.load(tmp_path)


def test_a_bad_target_is_named(fitted, tmp_path):
    with pytest.raises(ValueError, match="to must be one of"):
        fitted.export("rust", tmp_path / "x")
    with pytest.raises(ValueError, match="precision must be one of"):
        fitted.export("c", tmp_path / "x", precision="int4")
    assert not (tmp_path / "x").exists()


def test_onnx_is_float32_unless_told_otherwise(tmp_path):
    pytest.importorskip("onnx")
    X, y = [np.sin(np.arange(30.0) * (1 + i % 2))[None] for i in range(6)], ["a", "b"] * 3
    classifier = StreamClassifier(dim=4, depth=1, epochs=1).fit(X, y)
    assert classifier.export("onnx", tmp_path / "words")["precision"] == "float32"
    with pytest.raises(ValueError, match="ONNX export is float32"):
        classifier.export("onnx", tmp_path / "other", precision="int8")


def test_an_export_says_what_its_outputs_are_called(tmp_path):
    X, y = [np.sin(np.arange(30.0) * (1 + i % 2))[None] for i in range(6)], ["a" * 200, "b"] * 3
    StreamClassifier(dim=4, depth=1, epochs=1).fit(X, y).export("c", tmp_path / "words")
    about = json.loads((tmp_path / "words" / "about.json").read_text())
    assert about["labels"] == ["a" * 80, "b"]
    StreamForecaster(dim=4, depth=1, epochs=1).fit(X).export("c", tmp_path / "values")
    assert json.loads((tmp_path / "values" / "about.json").read_text())["classes"] is False


@pytest.mark.parametrize("frame", [1, 4])
def test_a_saved_estimator_is_exported_as_it_exports_itself(tmp_path, frame):
    X, y = waves(36)
    X = [one * np.array([[1.0], [8.0]]) + np.array([[0.0], [60.0]]) for one in X]
    classifier = small(frame=frame).fit(X, y)
    classifier.about_ = dataclasses.replace(classifier.about_, channels=("left", "right"), window=40)
    classifier.save(tmp_path / "waves" / "model")
    itself, loaded, command = (tmp_path / name for name in ("itself", "loaded", "command"))
    classifier.export("c", itself, name="waves")
    StreamClassifier.load(tmp_path / "waves" / "model").export("c", loaded, name="waves")
    with pytest.raises(SystemExit) as left:
        main(["export", str(tmp_path / "waves" / "model"), "--precision", "int8", "--out", str(command)])
    assert not left.value.code
    for file in ("waves.h", "waves.c", "about.json", "program.safetensors"):
        assert (itself / file).read_bytes() == (loaded / file).read_bytes()
    about = json.loads((command / "about.json").read_text())
    assert about == json.loads((itself / "about.json").read_text())
    assert (about["channels"], about["frame"], about["window"]) == (["left", "right"], frame, 40)
    _, program = read_export(command)
    assert base.deviation(program, classifier.model_, classifier._sample_steps()) < 0.25
    steps = [one[None].astype(np.float32) for one in series.framed([one.T for one in X], frame)]
    outputs = [dequantise_output(program, Interpreter(program).run(quantise_input(program, one))) for one in steps]
    said = classifier.classes_[[int(y[0, -1].argmax()) for y in outputs]]
    assert np.mean(said == classifier.predict(X)) >= 0.95


@needs_compiler
def test_a_saved_estimator_is_exported_with_its_own_sample(tmp_path, capsys):
    X = [np.random.default_rng(i).standard_normal((2, 40)) + 3 * (i % 2) for i in range(8)]
    classifier = StreamClassifier(dim=6, depth=1, epochs=1, frame=4).fit(X, [0, 1] * 4)
    classifier.save(tmp_path / "saved")
    with pytest.raises(SystemExit) as left:
        main(["export", str(tmp_path / "saved"), "--precision", "int8", "--out", str(tmp_path / "c")])
    assert not left.value.code
    _, program = read_export(tmp_path / "c")
    assert (program.integer, program.inputs) == (True, 8)
    step = np.concatenate([X[0][:, t] for t in range(4)])[None].astype(np.float32)
    exact = Interpreter(classifier.program("float32")).run(step[None])[0]
    near = dequantise_output(program, Interpreter(program).run(quantise_input(program, step)[None])[0])
    assert np.abs(near - exact).max() < 0.1 * np.abs(exact).max()
    whole = (tmp_path / "saved" / "estimator.json").read_text()
    other = whole.replace('"weights_sha256": "', '"weights_sha256": "0')
    (tmp_path / "saved" / "estimator.json").write_text(other)
    with pytest.raises(SystemExit):
        main(["export", str(tmp_path / "saved"), "--precision", "int8", "--out", str(tmp_path / "d")])
    assert "weights_sha256 does not match: a save was interrupted" in capsys.readouterr().err
    (tmp_path / "saved" / "estimator.json").write_text(whole)
    (tmp_path / "saved" / "sample.safetensors").write_bytes(b"?")
    with pytest.raises(SystemExit) as left:
        main(["export", str(tmp_path / "saved"), "--precision", "int8", "--out", str(tmp_path / "d")])
    assert left.value.code == 2
    assert "sample.safetensors: sha256 does not match estimator.json" in capsys.readouterr().err
