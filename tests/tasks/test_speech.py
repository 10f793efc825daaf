"""Spoken words: clips in the official layout, the official lists, and what a WAV file must be."""

import struct
import wave

import numpy as np
import pytest
import torch

from mgrade.nn import Model, ModelConfig
from mgrade.tasks.folder import data_folder
from mgrade.tasks.speech import COMMANDS, RATE, WORDS, Speech, expand, halve, read_wav

CPU = torch.device("cpu")


def write(path, samples, *, channels=1, width=2, rate=RATE):
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())


def clips(folder, words=COMMANDS):
    """Four short clips of every word: two to train with, one in each list. Returns samples by name."""
    here = folder / "speech_commands"
    source = np.random.default_rng(0)
    found = {}
    lists = {"validation_list.txt": [], "testing_list.txt": []}
    for word in words:
        for number, length in enumerate((300, RATE, RATE, 200)):
            name = f"{word}/{number:08x}_nohash_0.wav"
            found[name] = source.integers(-32768, 32768, length, dtype=np.int16)
            write(here / name, found[name])
        lists["validation_list.txt"].append(f"{word}/00000001_nohash_0.wav")
        lists["testing_list.txt"].append(f"{word}/00000003_nohash_0.wav")
    for name, lines in lists.items():
        (here / name).write_text("\n".join(lines) + "\n")
    write(here / "_background_noise_" / "hum.wav", np.zeros(5, np.int16))
    return found


@pytest.fixture(scope="module")
def ten(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ten")
    return folder, clips(folder)


def test_a_number_of_words_may_be_a_number():
    assert Speech(words=10) == Speech(words="10")


def test_the_words_are_35_and_the_commands_among_them():
    assert len(set(WORDS)) == 35
    assert list(WORDS) == sorted(WORDS)
    assert set(COMMANDS) < set(WORDS)
    assert {"backward", "forward", "follow", "learn", "visual"} < set(WORDS)  # what v0.02 added
    assert Speech().classes == 35
    assert Speech(words="10").model_fields() == {"inputs": 1, "outputs": 10, "tokens": False, "readout": "mean"}


def test_the_lists_say_which_clip_is_where_and_silence_fills_a_second(ten):
    folder, found = ten
    task = Speech(words="10")
    for split, numbers in (("train", (0, 2)), ("validation", (1,)), ("test", (3,))):
        read = task.read(split, folder)
        assert read.values.dtype == np.int16
        assert read.values.shape == (10 * len(numbers), RATE)
        rows = [(label, number) for label in range(10) for number in numbers]
        for (label, number), row, seen in zip(rows, read.values, read.labels, strict=True):
            clip = found[f"{COMMANDS[label]}/{number:08x}_nohash_0.wav"]
            assert seen == label
            assert np.array_equal(row[: len(clip)], clip)
            assert not row[len(clip) :].any()


def test_all_35_words_are_classes_in_alphabetical_order(tmp_path):
    clips(tmp_path, WORDS)
    read = Speech(words="35", rate=8000).read("test", tmp_path)
    assert read.values.shape == (35, 8000)
    assert read.labels.tolist() == list(range(35))


def test_clips_of_another_length_are_left_out_if_asked(ten):
    folder, _ = ten
    task = Speech(words="10", exact_length_only=True)
    assert task.read("train", folder).values.shape == (10, RATE)
    with pytest.raises(ValueError, match="the test set has no clip of exactly a second"):
        task.read("test", folder)


def test_random_parts_are_70_15_15_and_share_nothing(ten):
    folder, found = ten
    task = Speech(words="10", parts="random")
    sets = [task.read(split, folder) for split in ("train", "validation", "test")]
    assert [len(part.labels) for part in sets] == [28, 6, 6]
    rows = {row.tobytes() for part in sets for row in part.values}
    assert len(rows) == len(found)
    exact = Speech(words="10", parts="random", exact_length_only=True)
    assert [len(exact.read(split, folder).labels) for split in ("train", "validation", "test")] == [14, 3, 3]


def test_half_the_rate_averages_neighbours():
    clip = np.array([4, 8, 12, 0, -4], np.int16)
    assert halve(clip).tolist() == [4, 8, -2]
    tone = np.tile(np.array([1000, -1000], np.int16), 100)  # the highest that 16 kHz holds
    assert np.abs(halve(tone)[1:]).max() == 0
    slow = (10000 * np.sin(2 * np.pi * 200 * np.arange(RATE) / RATE)).astype(np.int16)
    assert np.abs(halve(slow)[1:].astype(int) - slow[2::2]).max() < 20


def test_samples_and_codes_become_sound():
    task = Speech()
    assert task.prepare(torch.tensor([[-32768, 0, 16384]], dtype=torch.int16)).tolist() == [[[-1.0], [0.0], [0.5]]]
    codes = np.arange(256)
    m = codes / 255 * 2 - 1
    expected = np.sign(m) * (256 ** np.abs(m) - 1) / 255
    torch.testing.assert_close(
        expand(torch.from_numpy(codes)).double(), torch.from_numpy(expected), rtol=1e-5, atol=1e-8
    )
    heard = task.prepare(torch.from_numpy(codes.astype(np.uint8)).view(2, 128))
    assert heard.shape == (2, 128, 1)
    torch.testing.assert_close(heard.double().flatten(), torch.from_numpy(expected), rtol=1e-5, atol=1e-8)


def compact(folder):
    source = np.random.default_rng(2)
    kept = {}
    for name, parts in (("speech10_train", [0] * 10), ("speech10_val_test", [1, 2] * 5)):
        codes = source.integers(0, 256, (10, 8000), dtype=np.uint8)
        kept[name] = codes
        np.savez(
            folder / f"{name}.npz",
            codes=codes,
            labels=np.arange(10, dtype=np.uint8),
            split=np.array(parts, np.uint8),
            length=np.array([8000, 7000] * 5, np.int32),
            words=np.array(COMMANDS),
        )
    return kept


def test_the_compact_files_hold_codes_and_their_split(tmp_path, monkeypatch):
    monkeypatch.delenv("MGRADE_DATA", raising=False)
    kept = compact(tmp_path)
    task = Speech(words="10", rate=8000)
    assert np.array_equal(task.read("train", tmp_path).values, kept["speech10_train"])
    assert np.array_equal(task.read("validation", tmp_path).values, kept["speech10_val_test"][::2])
    assert task.read("test", tmp_path).labels.tolist() == [1, 3, 5, 7, 9]
    exact = Speech(words="10", rate=8000, exact_length_only=True)
    assert len(exact.read("train", tmp_path).labels) == 5
    with pytest.raises(ValueError, match=r"val_test\.npz: the test set has no clip of exactly a second"):
        exact.read("test", tmp_path)
    with pytest.raises(ValueError, match=r"speech_commands is missing; `mgrade data fetch speech_commands`"):
        Speech(words="10").read("train", tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("labels", [*range(9), 77], "row 9: label must be from 0 to 9, got 77"),
        ("labels", [-1, *range(9)], "row 0: label must be from 0 to 9, got -1"),
        ("labels", [0, np.nan, *range(8)], "row 1: label must be from 0 to 9, got nan"),
        ("labels", np.zeros((10, 1), int), r"labels must be numbers on one axis, 1 or more, got int64 \(10, 1\)"),
        ("split", [0] * 9, r"split must be one for each of 10 labels, got \(9,\)"),
        ("split", [0] * 9 + [3], "row 9: split must be from 0 to 2, got 3"),
        ("length", [8000] * 11, r"length must be one for each of 10 labels, got \(11,\)"),
        ("length", ["long"] * 10, "length must be numbers on one axis, 1 or more, got <U4"),
        ("words", np.arange(3), "words must be yes no .*, got 0 1 2$"),
        ("words", np.array("yes"), "words must be yes no .*, got yes$"),
    ],
)
def test_compact_files_of_another_kind_are_refused_by_name(tmp_path, name, value, message):
    compact(tmp_path)
    path = tmp_path / "speech10_train.npz"
    with np.load(path) as file:
        good = dict(file)
    np.savez(path, **{**good, name: value})
    with pytest.raises(ValueError, match=rf"speech10_train\.npz: {message}"):
        Speech(words="10", rate=8000).read("train", tmp_path)


@pytest.mark.parametrize("source", ["clips", "codes"])
def test_a_model_trains(tmp_path, monkeypatch, ten, source):
    compact(tmp_path)
    monkeypatch.setenv("MGRADE_DATA", str(ten[0] if source == "clips" else tmp_path))
    task = Speech(words="10", rate=8000)
    model = Model(ModelConfig(dim=4, depth=1, taps=2, max_delay=4, **task.model_fields()))
    values, labels = task.examples("validation", 0, CPU)
    assert values.dtype == (torch.int16 if source == "clips" else torch.uint8)
    batch = values[:3, :500], labels[:3]
    total, count = task.loss(model, *batch)
    (total / count).backward()
    assert torch.isfinite(total)
    with torch.no_grad():
        assert torch.isfinite(task.judge(model, *batch)["surprise"][0])


def test_wrong_options_are_refused_by_name():
    for options, message in (
        ({"words": "12"}, "words must be one of 35, 10, got '12'"),
        ({"rate": 44100}, "rate must be one of 16000, 8000, got 44100"),
        ({"rate": 8000.0}, r"rate must be one of 16000, 8000, got 8000\.0"),
        ({"parts": "some"}, "parts must be one of lists, random, got 'some'"),
        ({"exact_length_only": 1}, "exact_length_only must be true or false, got 1"),
    ):
        with pytest.raises(ValueError, match=message):
            Speech(**options)


def test_what_is_missing_is_said(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"has neither speech_commands nor speech10_train\.npz"):
        Speech(words="10", rate=8000).read("train", tmp_path)
    clips(tmp_path)
    with pytest.raises(ValueError, match=r"backward has no clips \(all 35 words are in v0.02 only\)"):
        Speech().read("train", tmp_path)
    monkeypatch.setenv("MGRADE_DATA", str(tmp_path))
    for word in ("backward", "zero"):
        (tmp_path / "speech_commands" / word).mkdir(exist_ok=True)
    with pytest.raises(
        ValueError, match=r"; move .*speech_commands away, then `mgrade data fetch speech_commands --out"
    ):
        Speech().read("train", tmp_path)
    (tmp_path / "speech_commands" / "testing_list.txt").unlink()
    with pytest.raises(ValueError, match=r"testing_list\.txt is missing"):
        Speech(words="10").read("train", tmp_path)


def test_a_list_that_names_a_clip_that_is_not_there_is_refused_by_line(tmp_path):
    clips(tmp_path)
    task, here = Speech(words="10"), tmp_path / "speech_commands"
    path = here / "testing_list.txt"
    whole = path.read_text()
    path.write_text(whole + "\nbed/00000003_nohash_0.wav\n")  # of the 35 words, but not of the ten
    assert len(task.read("test", tmp_path).labels) == 10
    for name in ("go/00000009_nohash_0.wav", "goo/00000003_nohash_0.wav"):
        path.write_text(whole + f"\n{name}\n")
        for split in ("train", "test"):
            with pytest.raises(ValueError, match=rf"testing_list\.txt: line 12: .*commands/{name} is missing; `mgrade"):
                task.read(split, tmp_path)
    path.write_text(whole + "\n" + (here / "validation_list.txt").read_text().split()[0])
    with pytest.raises(ValueError, match=r"testing_list\.txt: .*_nohash_\d\.wav is also in validation_list\.txt"):
        task.read("test", tmp_path)
    path.write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=r"testing_list\.txt must be lines of text"):
        task.read("test", tmp_path)


def test_other_sound_files_are_refused_by_file_field_and_value(tmp_path):
    path = tmp_path / "a.wav"
    for options, message in (
        ({"channels": 2}, "channels must be 1, got 2"),
        ({"width": 1}, "bytes per sample must be 2, got 1"),
        ({"rate": 44100}, "samples a second must be 16000, got 44100"),
    ):
        write(path, np.zeros(8, np.int16), **options)
        with pytest.raises(ValueError, match=rf"a\.wav: {message}"):
            read_wav(path)
    write(path, np.zeros(8, np.int16))
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])
    with pytest.raises(ValueError, match="header says 16 bytes of sound, got 12"):
        read_wav(path)
    path.write_bytes(whole[:20] + struct.pack("<H", 3) + whole[22:])  # floating-point samples
    with pytest.raises(ValueError, match=r"a\.wav is not a WAV file of PCM samples: unknown format: 3"):
        read_wav(path)
    outside = whole[:17] + bytes([219]) + whole[18:]  # the format is longer than the file
    for content in (b"", b"RIFF", b"OggS" + whole[4:], whole[:30], outside):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.wav is not a WAV file of PCM samples: \S"):
            read_wav(path)
    write(path, np.zeros(0, np.int16))
    with pytest.raises(ValueError, match=r"a\.wav has no samples$"):
        read_wav(path)
    with pytest.raises(ValueError, match=r"cannot be read: Is a directory"):
        read_wav(tmp_path)


@pytest.mark.skipif(
    not (data_folder() / "speech10_val_test.npz").is_file(),
    reason="needs speech10_val_test.npz in MGRADE_DATA",
)
def test_the_real_commands():
    task = Speech(words="10", rate=8000)
    found = task.read("test", data_folder())
    assert found.values.shape == (2567, 8000)
    assert set(found.labels.tolist()) == set(range(10))
    sound = task.prepare(torch.from_numpy(found.values[:50]))
    assert sound.abs().max() <= 1
    assert abs(sound.mean()) < 0.01
