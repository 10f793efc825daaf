"""Broken files are refused in one line."""

import numpy as np
import pytest

from mgrade.tasks.files import arrays, check_table, padded, spans


def test_arrays_are_read_by_name(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(3), y=np.ones(2))
    x, y = arrays(tmp_path / "a.npz", "x", "y")
    assert x.tolist() == [0, 1, 2]
    assert y.tolist() == [1, 1]
    with pytest.raises(ValueError, match=r"a\.npz has no array 'z'"):
        arrays(tmp_path / "a.npz", "x", "z")


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 broken", b"nonsense"])
def test_what_is_no_npz_is_refused(tmp_path, data):
    (tmp_path / "b.npz").write_bytes(data)
    with pytest.raises(ValueError, match=r"b\.npz cannot be read"):
        arrays(tmp_path / "b.npz", "x")


def test_pickled_objects_are_never_loaded(tmp_path):
    np.savez(tmp_path / "c.npz", x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match=r"c\.npz cannot be read"):
        arrays(tmp_path / "c.npz", "x")


def test_a_truncated_file_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "d.npz", x=np.random.default_rng(0).random(5000))
    whole = (tmp_path / "d.npz").read_bytes()
    (tmp_path / "d.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"d\.npz cannot be read"):
        arrays(tmp_path / "d.npz", "x")


def test_rows_are_padded_cut_and_ended():
    values, lengths = padded([np.array([5, 6]), np.arange(1, 9)], 2, 4, 9, np.uint8)
    assert values.tolist() == [[5, 6, 9, 0], [1, 2, 3, 9]]
    assert lengths.tolist() == [3, 4]
    assert list(spans(np.array([0, 2, 5]))) == [(0, 2), (2, 5)]


def test_tables_that_do_not_fit_are_refused(tmp_path):
    data, labels = np.arange(5), np.array([0, 3])
    with pytest.raises(ValueError, match="train offsets do not divide 5 symbols into 2 rows"):
        check_table(tmp_path, "train", data, np.array([0, 2, 4]), labels, 4)
    with pytest.raises(ValueError, match="train row 1: label must be from 0 to 2, got 3"):
        check_table(tmp_path, "train", data, np.array([0, 2, 5]), labels, 3)
