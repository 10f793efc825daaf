"""Sound on its way to the model: the resampler, and files."""

import json
import shutil
import struct
import subprocess
import wave
from pathlib import Path

import numpy as np
import pytest

import mgrade.play

PAGE = Path(mgrade.play.__file__).parent / "page"


def node(folder, script):
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    for name in ("resample.js", "wav.js"):
        shutil.copy(PAGE / name, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "run.js").write_text(script)
    done = subprocess.run(["node", "run.js"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def resampled(folder, x, start, to, block):
    (folder / "x.json").write_text(json.dumps(x.tolist()))
    return np.array(
        node(
            folder,
            f"""
        import {{ readFileSync }} from "node:fs";
        import {{ Resampler, resample }} from "./resample.js";
        const x = Float32Array.from(JSON.parse(readFileSync("x.json")));
        const resampler = new Resampler({start}, {to});
        const parts = [];
        for (let at = 0; at < x.length; at += {block}) parts.push(...resampler.push(x.subarray(at, at + {block})));
        parts.push(...resampler.end());
        const whole = Array.from(resample(x, {start}, {to}));
        if (JSON.stringify(whole) !== JSON.stringify(parts)) throw new Error("blocks matter");
        console.log(JSON.stringify(whole));
    """,
        )
    )


@pytest.mark.parametrize(("start", "to"), [(48000, 8000), (44100, 16000), (44100, 8000), (8000, 16000), (16000, 16000)])
def test_a_tone_within_the_band_keeps_its_wave(tmp_path, start, to):
    """Amplitude, frequency and place in time, at the new rate; blocks of any size give the same."""
    tone, seconds = 1000, 0.25
    x = np.sin(2 * np.pi * tone * np.arange(int(start * seconds)) / start).astype(np.float32)
    y = resampled(tmp_path, x, start, to, block=997)
    assert len(y) == round(to * seconds)
    expected = np.sin(2 * np.pi * tone * np.arange(len(y)) / to)
    middle = slice(len(y) // 5, -len(y) // 5)
    np.testing.assert_allclose(y[middle], expected[middle], atol=1e-3)


@pytest.mark.parametrize("tone", [4600, 7000, 12000, 20000])
def test_a_tone_beyond_the_band_is_gone(tmp_path, tone):
    """It would come back as another, lower one: 60 dB down is not heard."""
    x = np.sin(2 * np.pi * tone * np.arange(12000) / 48000).astype(np.float32)
    y = resampled(tmp_path, x, 48000, 8000, block=128)
    assert np.abs(y[len(y) // 5 : -len(y) // 5]).max() < 1e-3


def read(folder, data):
    (folder / "x.wav").write_bytes(data)
    return node(
        folder,
        """
        import { readFileSync } from "node:fs";
        import { readWav } from "./wav.js";
        const file = readFileSync("x.wav");
        try {
          const { rate, channels } = readWav(file.buffer.slice(file.byteOffset, file.byteOffset + file.length));
          console.log(JSON.stringify({ rate, channels: channels.map((one) => Array.from(one)) }));
        } catch (error) {
          console.log(JSON.stringify(error.message));
        }
    """,
    )


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_pcm_of_every_width_is_read(tmp_path, size):
    values = np.array([[0, -1], [1, -(1 << (8 * size - 1))], [(1 << (8 * size - 1)) - 1, 5]])
    stored = values + (128 if size == 1 else 0)
    path = tmp_path / "made.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(size)
        file.setframerate(11025)
        signed = size > 1
        file.writeframes(b"".join(int(v).to_bytes(size, "little", signed=signed) for v in stored.ravel()))
    found = read(tmp_path, path.read_bytes())
    assert found["rate"] == 11025
    np.testing.assert_array_equal(np.float32(found["channels"]).T, np.float32(values / 2.0 ** (8 * size - 1)))


def test_floats_and_other_chunks_are_read(tmp_path):
    samples = np.float32([0.25, -0.5, 1.5])
    form = struct.pack("<HHIIHH", 3, 1, 8000, 32000, 4, 32)
    chunks = b"LIST" + struct.pack("<I", 3) + b"abc\0" + b"fmt " + struct.pack("<I", 16) + form
    body = b"WAVE" + chunks + b"data" + struct.pack("<I", 12) + samples.tobytes()
    found = read(tmp_path, b"RIFF" + struct.pack("<I", len(body)) + body)
    assert found == {"rate": 8000, "channels": [samples.tolist()]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "this is not a WAV file"),
        (b"OggS" + b"\0" * 40, "this is not a WAV file"),
        (b"RIFF\0\0\0\0WAVE", "the WAV file has no samples"),
        (b"RIFF\0\0\0\0WAVEdata\4\0\0\0\0\0\0\0", "no format before its samples"),
        (
            b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<IHHIIHH", 16, 6, 1, 8000, 8000, 1, 8) + b"data\1\0\0\0\0",
            "must hold PCM of 8 to 32 bits, or 32-bit floats; its format is 6, 8 bits",
        ),
        (
            b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16000, 2, 16) + b"data\0\0\0\0",
            "the WAV file has no samples",
        ),
    ],
    ids=["empty", "ogg", "nothing", "no-format", "a-law", "no-samples"],
)
def test_what_is_no_wav_is_said(tmp_path, data, message):
    assert message in read(tmp_path, data)
