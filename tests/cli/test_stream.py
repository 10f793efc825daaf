"""`mgrade stream`: what it writes and prints, and how it refuses."""

import io
import json
import subprocess
import sys
import wave

import numpy as np
import pytest

from cli.exports import WHOLE, call, export, refused
from mgrade.deploy import Interpreter, dequantise_output, quantise_input, read_export


def stream(capsys, monkeypatch, folder, text, *more):
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    return call(capsys, "stream", folder, *more)


def numbers(out):
    return np.array([[float(field) for field in line.split(",")] for line in out.splitlines()])


def interpreted(folder, x):
    _, program = read_export(folder)
    return dequantise_output(program, Interpreter(program).run(quantise_input(program, x)[None])[0])


@pytest.mark.parametrize("options", [(), (*WHOLE, "--calibrate", "samples.csv")])
def test_lines_of_a_stream_are_what_the_interpreter_gives(capsys, monkeypatch, model, tmp_path, options):
    monkeypatch.chdir(tmp_path)
    export(capsys, model, *options, "--out", "x")
    text = (tmp_path / "samples.csv").read_text()
    status, out, err = stream(capsys, monkeypatch, tmp_path / "x", "\n" + text.replace("\n", "\n\n"))
    assert (status, err) == (0, "")
    expected = interpreted(tmp_path / "x", np.loadtxt("samples.csv", np.float32, delimiter=",", skiprows=1))
    np.testing.assert_allclose(numbers(out), expected, rtol=2e-5, atol=2e-5)


def test_a_label_is_one_line_and_an_input_that_is_closed_is_said(capsys, monkeypatch, model, tmp_path):
    export(capsys, model, "--out", tmp_path / "x")
    _, program = read_export(tmp_path / "x")
    names = [f"two\nlines\x1b[2J {i}" for i in range(program.outputs)]
    (tmp_path / "x" / "about.json").write_text(
        json.dumps({"format": "mgrade-about", "version": 1, "classes": True, "labels": names})
    )
    sample = ",".join(["0"] * program.inputs)
    _, out, _ = stream(capsys, monkeypatch, tmp_path / "x", f"{sample}\n{sample}\n", "--labels")
    assert [line.startswith("two lines\\x1b[2J ") for line in out.splitlines()] == [True, True]
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input is closed" in refused(capsys, "stream", tmp_path / "x")


def test_tokens_are_streamed(capsys, monkeypatch, run, tmp_path):
    export(capsys, run, *WHOLE, "--out", tmp_path / "x")
    status, out, _ = stream(capsys, monkeypatch, tmp_path / "x", "token\n0\n 2 \n1.0\n")
    assert status == 0
    expected = interpreted(tmp_path / "x", np.array([0, 2, 1]))
    np.testing.assert_array_equal(np.float32(numbers(out)), np.float32(expected))  # to the last digit
    for bad in ("-1", "99", "0.5", "inf"):
        status, out, err = stream(capsys, monkeypatch, tmp_path / "x", f"0\n{bad}\n")
        assert status == 2
        assert len(out.splitlines()) == 1
        assert err.startswith("mgrade: standard input, line 2: must be ")


def test_sound_is_streamed_frame_by_frame(capsys, model, tmp_path):
    export(capsys, model, "--out", tmp_path / "x")
    sound = np.random.default_rng(0).integers(-9000, 9000, 3 * 20 + 2)
    write_wav(tmp_path / "a.wav", sound)
    status, out, _ = call(capsys, "stream", tmp_path / "x", tmp_path / "a.wav")
    assert status == 0
    frames = (sound[:60].reshape(20, 3) / 32768).astype(np.float32)
    np.testing.assert_allclose(numbers(out), interpreted(tmp_path / "x", frames), rtol=2e-5, atol=2e-5)


def write_wav(path, sound, channels=1, width=2):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(8000)
        file.writeframes(sound.astype(f"<i{width}").tobytes())


def test_mistakes_of_a_stream_are_one_line(capsys, monkeypatch, model, run, tmp_path):
    export(capsys, model, "--out", tmp_path / "x")
    export(capsys, run, "--out", tmp_path / "tokens")
    sound = np.zeros(12)
    write_wav(tmp_path / "stereo.wav", sound, channels=2)
    write_wav(tmp_path / "wide.wav", sound, width=4)
    (tmp_path / "none.wav").write_bytes(b"no sound")
    (tmp_path / "empty.wav").write_bytes(b"")
    for name, message in (
        ("stereo", "stereo.wav: channels must be 1, got 2"),
        ("wide", "wide.wav: bytes per sample must be 2, got 4"),
        ("none", "none.wav is not a WAV file of PCM samples: "),
        ("empty", "empty.wav is not a WAV file of PCM samples: "),
        ("missing", "missing.wav cannot be read: No such file or directory"),
    ):
        assert message in refused(capsys, "stream", tmp_path / "x", tmp_path / f"{name}.wav")
    assert "a.csv: CSV goes to standard input" in refused(capsys, "stream", tmp_path / "x", tmp_path / "a.csv")
    assert "reads token ids, not sound" in refused(capsys, "stream", tmp_path / "tokens", tmp_path / "stereo.wav")
    assert f"is {model} an export?" in refused(capsys, "stream", model)
    assert "--labels: " in refused(capsys, "stream", tmp_path / "x", "--labels")
    (tmp_path / "x" / "program.safetensors").write_bytes(b"damaged")
    assert "is not a safetensors file" in refused(capsys, "stream", tmp_path / "x")
    (tmp_path / "x" / "export.json").write_text("{")
    assert "is not JSON" in refused(capsys, "stream", tmp_path / "x")
    (tmp_path / "x" / "export.json").write_text('{"format": "mgrade-export", "version": 9}')
    assert "version must be 1, got 9" in refused(capsys, "stream", tmp_path / "x")
    assert "must have 3 values, got 1" in refused_stream(capsys, monkeypatch, model, tmp_path)


def refused_stream(capsys, monkeypatch, model, tmp_path):
    export(capsys, model, "--out", tmp_path / "again")
    status, out, err = stream(capsys, monkeypatch, tmp_path / "again", "1\n")
    assert (status, out, err.count("\n")) == (2, "", 1)
    return err


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_lines_end_as_they_may_in_files(capsys, model, tmp_path, end):
    export(capsys, model, "--out", tmp_path / "x")
    command = [sys.executable, "-m", "mgrade", "stream", str(tmp_path / "x")]
    text = end.join(["a,b,c", "1,2,3", "4,5,6", ""])
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    np.testing.assert_allclose(numbers(done.stdout.decode()), interpreted(tmp_path / "x", x), rtol=2e-5, atol=2e-5)


def test_outputs_arrive_before_the_next_sample_is_sent(capsys, model, tmp_path):
    export(capsys, model, "--out", tmp_path / "x")
    command = [sys.executable, "-m", "mgrade", "stream", str(tmp_path / "x")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        lines = []
        for sample in ("1,2,3", "4,5,6"):
            process.stdin.write(sample + "\n")
            process.stdin.flush()
            lines.append(process.stdout.readline())
        process.stdout.close()  # whoever reads has enough
        process.stdin.write("7,8,9\n")
        process.stdin.close()
        assert (process.wait(30), process.stderr.read()) == (0, "")
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    np.testing.assert_allclose(numbers("".join(lines)), interpreted(tmp_path / "x", x), rtol=2e-5, atol=2e-5)
