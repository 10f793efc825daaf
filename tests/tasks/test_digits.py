"""Spoken digits: recordings in the official layout, frames of samples, shifted copies, what is refused."""

import re
import wave

import numpy as np
import pytest
import torch

from mgrade.nn import Model, ModelConfig
from mgrade.tasks.digits import LOUD, RATE, TESTED, SpokenDigits
from mgrade.tasks.folder import data_folder

CPU = torch.device("cpu")
SPEAKERS = ("george", "jackson")


def write(path, samples, rate=RATE):
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())


def recordings(folder, indices=(0, 4, 5, 49)):
    """Noise in the official layout: samples by (digit, speaker, index)."""
    source = np.random.default_rng(0)
    found = {}
    for digit in range(10):
        for speaker in SPEAKERS:
            for index in indices:
                sound = source.integers(-32768, 32768, int(source.integers(95, 260)), dtype=np.int16)
                found[digit, speaker, index] = sound
                write(folder / "fsdd" / "recordings" / f"{digit}_{speaker}_{index}.wav", sound)
    return found


def compact(found):
    """The arrays of the compact file."""
    sounds = list(found.values())
    return {
        "audio": np.concatenate(sounds),
        "offsets": np.cumsum([0, *map(len, sounds)]),
        "labels": np.array([digit for digit, _, _ in found], np.uint8),
        "split": np.array([2 if index < TESTED else 0 for _, _, index in found], np.uint8),
    }


@pytest.mark.parametrize("form", ["files", "compact"])
def test_the_first_five_of_each_speaker_are_tested_and_a_step_is_a_frame(tmp_path, form):
    found = recordings(tmp_path)
    folder = tmp_path
    if form == "compact":
        folder = tmp_path / "other"
        folder.mkdir()
        np.savez(folder / "fsdd_8k.npz", **compact(found))
    task = SpokenDigits(frame=40, max_samples=200)
    for split, indices in (("train", (5, 49)), ("test", (0, 4))):
        read = task.read(split, folder)
        rows = [(digit, sound) for (digit, _, index), sound in found.items() if index in indices]
        assert read.values.dtype == np.int16
        assert read.values.shape == (len(rows), 5, 40)
        assert read.labels.tolist() == [digit for digit, _ in rows]
        assert read.lengths.tolist() == [min(len(sound) // 40, 5) for _, sound in rows]
        for (_, sound), frames, length in zip(rows, read.values, read.lengths, strict=True):
            assert np.array_equal(frames[:length].ravel(), sound[: 40 * length])
            assert not frames[length:].any()


def test_a_recording_shorter_than_a_frame_is_one_frame(tmp_path):
    found = recordings(tmp_path)
    read = SpokenDigits(frame=400, max_samples=799).read("test", tmp_path)
    assert read.values.shape == (40, 1, 400)
    assert set(read.lengths.tolist()) == {1}
    assert np.array_equal(read.values[0, 0, :95], found[0, "george", 0][:95])


def test_copies_begin_later_in_the_wave_only_to_train_with(tmp_path, monkeypatch):
    recordings(tmp_path)
    monkeypatch.setenv("MGRADE_DATA", str(tmp_path))
    plain, task = SpokenDigits(frame=40, max_samples=200), SpokenDigits(frame=40, max_samples=200, shifts=4)
    for split in ("validation", "test"):
        for one, other in zip(plain.examples(split, 0, CPU), task.examples(split, 0, CPU), strict=True):
            assert torch.equal(one, other)
    values, labels, lengths = plain.examples("train", 0, CPU)
    again, labels_again, lengths_again = task.examples("train", 0, CPU)
    assert again.dtype == torch.int16
    assert len(again) == 4 * len(values) == 4 * 36
    for copy, rows in enumerate(again.split(len(values))):
        assert torch.equal(labels_again.split(len(values))[copy], labels)
        for row, whole, size, before in zip(
            rows, values, lengths_again.split(len(values))[copy].tolist(), lengths.tolist(), strict=True
        ):
            assert size == before - (copy > 0)
            assert torch.equal(row[:size].ravel(), whole.ravel()[10 * copy :][: 40 * size])


def test_a_tenth_is_held_out_and_a_model_trains(tmp_path, monkeypatch):
    recordings(tmp_path)
    monkeypatch.setenv("MGRADE_DATA", str(tmp_path))
    task = SpokenDigits(frame=20, max_samples=200)
    assert [len(task.examples(split, 0, CPU)[1]) for split in ("train", "validation", "test")] == [36, 4, 40]
    assert task.model_fields() == {"inputs": 20, "outputs": 10, "tokens": False, "readout": "mean"}
    batch = tuple(tensor[:4] for tensor in task.examples("train", 0, CPU))
    seen = task.prepare(batch[0])
    assert torch.equal(seen, batch[0].float() / LOUD)
    model = Model(ModelConfig(dim=4, depth=1, taps=2, max_delay=4, **task.model_fields()))
    total, count = task.loss(model, *batch)
    (total / count).backward()
    assert torch.isfinite(total)
    with torch.no_grad():
        assert torch.isfinite(task.judge(model, *batch)["surprise"][0])


def test_wrong_options_are_refused_by_name():
    for options, message in (
        ({"frame": 0}, "frame must be a whole number of at least 1, got 0"),
        ({"frame": 64, "max_samples": 63}, "max_samples must be at least frame = 64, got 63"),
        ({"frame": 40, "shifts": 3}, "shifts must divide frame = 40, got 3"),
        ({"held_out": 1.0}, "held_out must be above 0 and below 1, got 1.0"),
    ):
        with pytest.raises(ValueError, match=message):
            SpokenDigits(**options)


def test_what_is_missing_or_another_is_refused_by_name(tmp_path, monkeypatch):
    task = SpokenDigits()
    for folder, option in ((None, ""), ("data", ""), (tmp_path, f" --out {tmp_path}")):
        monkeypatch.delenv("MGRADE_DATA", raising=False)
        if folder is not None:
            monkeypatch.setenv("MGRADE_DATA", str(folder))
        hint = rf"has neither fsdd/recordings nor fsdd_8k\.npz; `mgrade data fetch fsdd{option}` gets it"
        with pytest.raises(ValueError, match=hint):
            task.read("train", tmp_path)
    here = tmp_path / "fsdd" / "recordings"
    here.mkdir(parents=True)
    with pytest.raises(ValueError, match="the test set has no recording, with an index below 5"):
        task.read("test", tmp_path)
    write(here / "3_theo_5.wav", np.zeros(100, np.int16), rate=16000)
    with pytest.raises(ValueError, match=r"3_theo_5\.wav: samples a second must be 8000, got 16000"):
        task.read("train", tmp_path)
    write(here / "3_theo_5.wav", np.zeros(0, np.int16))
    with pytest.raises(ValueError, match=r"3_theo_5\.wav has no samples"):
        task.read("train", tmp_path)
    write(here / "3_theo_05.wav", np.zeros(100, np.int16))
    with pytest.raises(ValueError, match=r"3_theo_0?5\.wav: 3_theo_0?5\.wav names the same recording"):
        task.read("train", tmp_path)
    (here / "3_theo_05.wav").unlink()
    for name in ("three_theo_5.wav", "3_theo.wav", "12_theo_5.wav", "3_theo_-1.wav"):
        write(here / name, np.zeros(100, np.int16))
        with pytest.raises(ValueError, match=rf"{re.escape(name)}: a recording must be named digit_speaker_index\.wav"):
            task.read("test", tmp_path)
        (here / name).unlink()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("audio", lambda audio: audio.astype(np.float32), "audio must be 16-bit samples .*, got float32"),
        ("audio", lambda audio: audio[1:], r"all offsets do not divide \d+ symbols into 40 rows"),
        ("labels", lambda labels: labels + 1, "all row 36: label must be from 0 to 9, got 10"),
        ("labels", lambda labels: labels[0], r"all labels must be numbers on one axis, 1 or more, got uint8 \(\)"),
        ("offsets", lambda offsets: np.array([0, 0, *offsets[2:]]), "all row 0 is empty"),
        ("offsets", lambda offsets: offsets / 1, "all offsets must be whole numbers on one axis"),
        ("split", lambda split: split.astype(str), "split must be numbers on one axis, 1 or more, got <U"),
        ("split", lambda split: split[1:], "split must be 0 or 2 for each of 40 recordings"),
        ("split", lambda split: split + 1, r"split must be 0 or 2 for each of 40 recordings, got \[1 3\]"),
        ("split", lambda split: 0 * split + 2, "the train set has no recording, with split 0"),
    ],
)
def test_compact_files_of_another_kind_are_refused_by_name(tmp_path, name, change, message):
    found = compact(recordings(tmp_path / "files", indices=(0, 5)))
    np.savez(tmp_path / "fsdd_8k.npz", **{**found, name: change(found[name])})
    with pytest.raises(ValueError, match=rf"fsdd_8k\.npz: {message}"):
        SpokenDigits().read("train", tmp_path)


@pytest.mark.skipif(not (data_folder() / "fsdd_8k.npz").is_file(), reason="needs fsdd_8k.npz in MGRADE_DATA")
def test_the_real_digits():
    task = SpokenDigits()
    train, test = task.read("train", data_folder()), task.read("test", data_folder())
    assert np.bincount(train.labels).tolist() == [270] * 10
    assert np.bincount(test.labels).tolist() == [30] * 10
    sound = task.prepare(torch.from_numpy(train.values))
    heard = sound[torch.arange(sound.shape[1]) < torch.from_numpy(train.lengths)[:, None]]
    assert abs(heard.mean()) < 0.05
    assert 0.5 < heard.std() < 2
