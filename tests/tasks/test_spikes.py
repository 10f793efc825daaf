"""Spikes: the official HDF5 layout, bins and groups of fibres, and what is refused."""

import gzip
import importlib.util
import sys

import numpy as np
import pytest
import torch

from mgrade.nn import Model, ModelConfig
from mgrade.tasks.spikes import HeidelbergDigits

needs_h5py = pytest.mark.skipif(importlib.util.find_spec("h5py") is None, reason="needs the package h5py")
CPU = torch.device("cpu")


def digits(folder, count=20, packed=False):
    """Random recordings as the official files have them: 16-bit times, ragged rows."""
    import h5py

    (folder / "shd").mkdir()
    source = np.random.default_rng(0)
    for part in ("train", "test"):
        path = folder / "shd" / f"shd_{part}.h5"
        with h5py.File(path, "w") as file:
            spikes = file.create_group("spikes")
            times = spikes.create_dataset("times", (count,), dtype=h5py.special_dtype(vlen=np.float16))
            units = spikes.create_dataset("units", (count,), dtype=h5py.special_dtype(vlen=np.uint16))
            for row in range(count):
                size = int(source.integers(20, 60))
                times[row] = np.sort(source.random(size)).astype(np.float16)
                units[row] = source.integers(0, 700, size).astype(np.uint16)
            file.create_dataset("labels", data=np.arange(count, dtype=np.uint16) % 20)
        if packed:
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()


def test_spikes_are_counted_by_bin_and_group():
    task = HeidelbergDigits(bin_ms=5, group=5, max_steps=4)
    times = np.array([0.0, 0.0049, 0.0051, 0.012, 0.012, 0.03])
    counts, length = task.count(times, np.array([0, 4, 5, 699, 698, 3]))
    assert counts.shape == (4, 140)
    assert counts[0, 0] == 2
    assert counts[1, 1] == 1
    assert counts[2, 139] == 2
    assert counts.sum() == 5  # the last comes after max_steps
    assert length == 3


def test_silence_has_one_step_and_a_burst_stays_a_byte():
    task = HeidelbergDigits(max_steps=3)
    counts, length = task.count(np.array([]), np.array([], np.uint16))
    assert (counts.sum(), length) == (0, 1)
    counts, length = task.count(np.zeros(300), np.full(300, 7))
    assert (counts[0, 1], counts.sum(), length) == (255, 255, 1)


def test_the_task_fits_the_model():
    task = HeidelbergDigits()
    assert task.model_fields() == {"inputs": 140, "outputs": 20, "tokens": False, "readout": "sum"}
    assert task.max_steps * task.bin_ms >= 1400
    for options, message in (
        ({"group": 9}, "group must divide 700, got 9"),
        ({"bin_ms": 0}, "bin_ms must be a number above 0, got 0"),
        ({"max_steps": 0}, "max_steps must be a whole number of at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            HeidelbergDigits(**options)


def test_what_is_missing_is_said_in_one_line(tmp_path, monkeypatch):
    monkeypatch.delenv("MGRADE_DATA", raising=False)
    with pytest.raises(ValueError, match=r"shd_train\.h5\[\.gz\] is missing; `mgrade data fetch shd`"):
        HeidelbergDigits().read("train", tmp_path)
    (tmp_path / "shd").mkdir()
    (tmp_path / "shd" / "shd_train.h5").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ValueError, match="needs the package h5py"):
        HeidelbergDigits().read("train", tmp_path)


@needs_h5py
@pytest.mark.parametrize("packed", [False, True])
def test_the_official_layout_is_read_and_a_model_trains(tmp_path, monkeypatch, packed):
    digits(tmp_path, packed=packed)
    task = HeidelbergDigits(group=50, max_steps=250)
    found = task.read("test", tmp_path)
    assert found.values.shape == (20, 250, 14)
    assert found.values.dtype == np.uint8
    last = [np.flatnonzero(row.any(1))[-1] + 1 for row in found.values]
    assert found.lengths.tolist() == last
    monkeypatch.setenv("MGRADE_DATA", str(tmp_path))
    assert len(task.examples("validation", 0, CPU)[0]) == 2
    batch = tuple(tensor[:4] for tensor in task.examples("train", 0, CPU))
    assert len(batch) == 3
    model = Model(ModelConfig(dim=4, depth=1, taps=2, max_delay=4, **task.model_fields()))
    total, count = task.loss(model, *batch)
    (total / count).backward()
    assert torch.isfinite(total)
    with torch.no_grad():
        assert torch.isfinite(task.judge(model, *batch)["surprise"][0])


@needs_h5py
def test_damaged_files_are_refused_by_name(tmp_path):
    import h5py

    (tmp_path / "shd").mkdir()
    path = tmp_path / "shd" / "shd_test.h5"
    path.write_bytes(b"not HDF5")
    with pytest.raises(ValueError, match=r"shd_test\.h5 cannot be read as HDF5"):
        HeidelbergDigits().read("test", tmp_path)
    packed = path.rename(path.with_name("shd_test.h5.gz"))
    with pytest.raises(ValueError, match=r"shd_test\.h5\.gz cannot be unpacked: Not a gzipped file"):
        HeidelbergDigits().read("test", tmp_path)
    packed.unlink()
    with h5py.File(path, "w") as file:
        file.create_dataset("labels", data=[0])
    with pytest.raises(ValueError, match=r"shd_test\.h5 lacks a dataset"):
        HeidelbergDigits().read("test", tmp_path)
    with h5py.File(path, "w") as file:
        for name, kind in (("times", np.float16), ("units", np.uint16)):
            file.create_dataset(f"spikes/{name}", (1,), dtype=h5py.special_dtype(vlen=kind))
        file["spikes/times"][0], file["spikes/units"][0] = np.zeros(1), np.array([700])
        file.create_dataset("labels", data=[0])
    with pytest.raises(ValueError, match="recording 0: units must be from 0 to 699, got 700"):
        HeidelbergDigits().read("test", tmp_path)
    with h5py.File(path, "a") as file:
        file["labels"][0] = 20
    with pytest.raises(ValueError, match=r"shd_test\.h5: row 0: label must be from 0 to 19, got 20"):
        HeidelbergDigits().read("test", tmp_path)


@needs_h5py
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("labels", [0, np.nan], "row 1: label must be from 0 to 19, got nan"),
        ("labels", [0, -1], "row 1: label must be from 0 to 19, got -1"),
        ("labels", [b"a", b"b"], r"labels must be numbers on one axis, 1 or more, got object \(2,\)"),
        ("spikes/units", [[3], [-1]], "recording 1: units must be from 0 to 699, got -1"),
        ("spikes/times", [[0.1], [np.nan]], "recording 1: times must be finite, from 0 on, got nan"),
        ("spikes/times", [[0.1], [-0.2]], "recording 1: times must be finite, from 0 on, got -0.2"),
        ("spikes/times", [[1j], [1j]], "recording 0: times must be numbers, got complex128"),
        (
            "spikes/times",
            [[0.1], [0.1, 0.2]],
            r"recording 1 must be a row of times and a row of as many units, got shap",
        ),
        (
            "spikes/times",
            np.zeros(2),
            r"recording 0 must be a row of times and a row of as many units, got shapes \(\) a",
        ),
        ("spikes/times", np.float32(1), "lacks a dataset of the Heidelberg digits: spikes/times, with one axis"),
        ("labels", None, "lacks a dataset of the Heidelberg digits: labels, with one axis"),
    ],
)
def test_other_values_are_refused_by_file_and_row(tmp_path, name, value, message):
    import h5py

    (tmp_path / "shd").mkdir()
    with h5py.File(tmp_path / "shd" / "shd_test.h5", "w") as file:
        good = {"labels": [0, 1], "spikes/times": [[0.1], [0.2]], "spikes/units": [[3], [4]]}
        for key, rows in {**good, name: value}.items():
            if rows is None:
                file.create_group(key)
            elif isinstance(rows, list) and isinstance(rows[0], list):
                ragged = file.create_dataset(key, (2,), dtype=h5py.special_dtype(vlen=np.asarray(rows[0]).dtype))
                ragged[0], ragged[1] = rows
            else:
                file[key] = rows
    with pytest.raises(ValueError, match=rf"shd_test\.h5:? {message}"):
        HeidelbergDigits().read("test", tmp_path)
