"""Checkpoints are whole or not there, and damage shows."""

import errno

import pytest
import torch

from mgrade.train import checkpoint
from mgrade.train.checkpoint import KEEP, Checkpoint


def made(step):
    return Checkpoint(step, {"w": torch.full((3,), float(step))}, {"points": [{"step": step}], "seconds": 0.5})


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_was_written_is_read(tmp_path):
    checkpoint.write(tmp_path, made(7))
    found, problems = checkpoint.newest(tmp_path)
    assert found.step == 7
    assert torch.equal(found.tensors["w"], torch.full((3,), 7.0))
    assert found.facts == {"points": [{"step": 7}], "seconds": 0.5}
    assert problems == []


def test_only_the_newest_few_are_kept(tmp_path):
    for step in (5, 20, 100, 3000):
        checkpoint.write(tmp_path, made(step))
    assert len(files(tmp_path)) == KEEP
    assert checkpoint.newest(tmp_path)[0].step == 3000


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "swap"])
def test_a_damaged_newest_one_is_named_and_the_one_before_serves(tmp_path, damage):
    older = checkpoint.write(tmp_path, made(1))
    newest = checkpoint.write(tmp_path, made(2))
    data = bytearray(newest.read_bytes())
    if damage == "flip":
        data[-2] ^= 1
    newest.write_bytes({"flip": bytes(data), "cut": bytes(data[:-4]), "empty": b"", "swap": older.read_bytes()}[damage])
    found, problems = checkpoint.newest(tmp_path)
    assert found.step == 1
    assert len(problems) == 1
    assert str(newest) in problems[0]
    assert "damaged" in problems[0]


def test_a_file_with_the_right_hash_that_is_no_checkpoint_is_named(tmp_path):
    import hashlib

    data = b"not safetensors at all"
    name = f"step-0000000009-{hashlib.sha256(data).hexdigest()[:16]}.safetensors"
    (tmp_path / name).write_bytes(data)
    found, problems = checkpoint.newest(tmp_path)
    assert found is None
    assert "is not a checkpoint" in problems[0]


def test_a_full_disk_leaves_the_one_before(tmp_path, monkeypatch):
    checkpoint.write(tmp_path, made(1))
    before = files(tmp_path)

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.write(tmp_path, made(2))
    assert files(tmp_path) == before
    assert checkpoint.newest(tmp_path)[0].step == 1


def test_leftovers_of_a_killed_process_are_removed(tmp_path):
    (tmp_path / ".step-0000000002-abc.safetensors.123.tmp").write_bytes(b"half")
    checkpoint.clean(tmp_path)
    assert files(tmp_path) == []
