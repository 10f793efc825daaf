"""Broken files are refused in one line."""

import re
import struct
import zipfile

import numpy as np
import pytest

from mgrade.tasks.files import arrays, check_table, contents, padded, spans


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
    with pytest.raises(ValueError, match=r"b\.npz cannot be read: it is not an npz archive, or incomplete$"):
        arrays(tmp_path / "b.npz", "x")


def test_one_array_alone_is_no_archive(tmp_path):
    with open(tmp_path / "e.npz", "wb") as file:
        np.save(file, np.arange(3))
    with pytest.raises(ValueError, match=r"e\.npz cannot be read: it is not an npz archive"):
        arrays(tmp_path / "e.npz", "x")


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [(8, 1, "encrypted"), (8, 32, "compressed patched data"), (10, 99, "compression method is not supported")],
)
def test_a_changed_byte_in_the_archives_header_is_refused(tmp_path, at, value, message):
    np.savez(tmp_path / "f.npz", x=np.arange(3))
    data = bytearray((tmp_path / "f.npz").read_bytes())
    data[data.index(b"PK\x01\x02") + at] = value  # flags and method, in the list at the end
    (tmp_path / "f.npz").write_bytes(data)
    with pytest.raises(ValueError, match=rf"f\.npz cannot be read: [^\n]*{message}[^\n]*$"):
        arrays(tmp_path / "f.npz", "x")


def test_any_changed_byte_gives_arrays_or_one_line(tmp_path):
    np.savez_compressed(tmp_path / "g.npz", x=np.arange(3))
    whole = (tmp_path / "g.npz").read_bytes()
    for at in range(len(whole)):
        (tmp_path / "g.npz").write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
        try:
            arrays(tmp_path / "g.npz", "x")
        except ValueError as error:
            assert re.fullmatch(r".*g\.npz (cannot be read: .+|has no array 'x')", str(error))  # noqa: PT017


def test_what_lies_in_a_damaged_archive_is_not_shown_in_full(tmp_path):
    np.savez(tmp_path / "l.npz", x=np.zeros(9999, np.uint8))
    data = bytearray((tmp_path / "l.npz").read_bytes())
    data[26:28] = b"\xff\x0f"  # how long the name of the array is
    (tmp_path / "l.npz").write_bytes(data)
    with pytest.raises(
        ValueError, match=r"l\.npz cannot be read: File name in directory 'x\.npy' [^\n]+ …$"
    ) as refusal:
        arrays(tmp_path / "l.npz", "x")
    assert len(str(refusal.value)) < 200 + len(str(tmp_path))


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<i8', 'fortran_order': False, 'shape': (3,",
        "((((",
        "{[]: 1}",
        "{'descr': '<i8', 'fortran_order': False, 'shape': (99999999999999999999999,)}",
        "{'descr': ('<i8',), 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '(2,', 'fortran_order': False, 'shape': (3,)}",
    ],
)
def test_a_damaged_header_of_an_array_is_refused(tmp_path, header):
    data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + bytes(24)
    with zipfile.ZipFile(tmp_path / "h.npz", "w") as archive:
        archive.writestr("x.npy", data)
    with pytest.raises(ValueError, match=r"h\.npz cannot be read: [^\n]+$"):
        arrays(tmp_path / "h.npz", "x")


@pytest.mark.parametrize("name", ["x.npy", "x"])
def test_a_member_that_is_no_array_is_refused(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "i.npz", "w") as archive:
        archive.writestr(name, b"0,1,2")
    with pytest.raises(ValueError, match=r"i\.npz cannot be read: 'x' is not an array"):
        arrays(tmp_path / "i.npz", "x")


def test_what_would_fill_the_memory_from_next_to_nothing_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", images=np.zeros(2**26 + 1, np.uint8))
    with pytest.raises(ValueError, match=r"'images\.npy' would unpack to 67108993 bytes from \d{5}$"):
        arrays(tmp_path / "a.npz", "images")
    np.savez_compressed(tmp_path / "a.npz", images=np.zeros(2**20, np.uint8))
    assert arrays(tmp_path / "a.npz", "images")[0].shape == (2**20,)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_array_that_is_there_twice_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", labels=np.arange(3))
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("labels.npy", archive.read("labels.npy"))
    with pytest.raises(ValueError, match=r"it holds 'labels\.npy' twice$"):
        arrays(tmp_path / "a.npz", "labels")


def test_a_folder_has_no_contents(tmp_path):
    with pytest.raises(ValueError, match=rf"^{re.escape(str(tmp_path))} cannot be read: Is a directory$"):
        contents(tmp_path)


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


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, -1], "row 1: label must be from 0 to 3, got -1"),
        ([0, np.nan], "row 1: label must be from 0 to 3, got nan"),
        ([2.5, 0], r"row 0: label must be from 0 to 3, got 2\.5"),
        ([[0], [1]], r"labels must be numbers on one axis, 1 or more, got int64 \(2, 1\)"),
        (3, r"labels must be numbers on one axis, 1 or more, got int64 \(\)"),
        (["a", "b"], r"labels must be numbers on one axis, 1 or more, got <U1 \(2,\)"),
        ([], r"labels must be numbers on one axis, 1 or more, got float64 \(0,\)"),
    ],
)
def test_labels_are_whole_numbers_below_the_number_of_classes(tmp_path, labels, message):
    for given in ([0, 3], [0.0, 3.0]):
        check_table(tmp_path, "train", np.arange(5), np.array([0, 2, 5]), np.array(given), 4)
    with pytest.raises(ValueError, match=rf"^{re.escape(str(tmp_path))}: train {message}$"):
        check_table(tmp_path, "train", np.arange(5), np.array([0, 2, 5]), np.array(labels), 4)


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        (np.array([0.0, 2, 5]), r"offsets must be whole numbers on one axis, 1 or more, got float64 \(3,\)"),
        (np.array(5), r"offsets must be whole numbers on one axis, 1 or more, got int64 \(\)"),
        (np.array([0, 7, 5], np.uint64), "offsets do not divide 5 symbols into 2 rows"),
        (np.array([0, 5, 5]), "row 1 is empty"),
    ],
)
def test_offsets_are_whole_numbers_that_grow(tmp_path, offsets, message):
    with pytest.raises(ValueError, match=rf"^{re.escape(str(tmp_path))}: train {message}$"):
        check_table(tmp_path, "train", np.arange(5), offsets, np.array([0, 3]), 4)
