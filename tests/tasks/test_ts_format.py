"""The .ts format: what the archive's files hold is read exactly, and anything else is refused by file and row."""

import numpy as np
import pytest

from mgrade.tasks.ts_format import read_ts

HEADER = """#A comment,
#
@problemName Two
@timeStamps false
@missing false
@univariate false
@dimensions 2
@equalLength false
@classLabel true left right
@data
"""
ROWS = "1.5,-2,3e-1:4,5,6:right\n7:-8.25:left\n"


def read(tmp_path, text):
    path = tmp_path / "two.ts"
    path.write_text(text)
    return read_ts(path, 2, ("left", "right"))


def test_series_of_unequal_length_come_with_their_classes(tmp_path):
    series, labels = read(tmp_path, HEADER + ROWS)
    assert [one.tolist() for one in series] == [
        [[1.5, 4.0], [-2.0, 5.0], [np.float32(0.3).item(), 6.0]],
        [[7.0, -8.25]],
    ]
    assert {one.dtype for one in series} == {np.dtype(np.float32)}
    assert labels.tolist() == [1, 0]


def test_classes_are_numbered_as_asked_for_and_not_as_the_file_lists_them(tmp_path):
    swapped = HEADER.replace("left right", "right left")
    assert read(tmp_path, swapped + ROWS)[1].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("@timeStamps false", "@TIMESTAMPS False"),
        ("@missing false\n", "\n"),
        ("@dimensions 2\n", ""),
        ("@equalLength false\n", ""),
        ("#A comment", "#Ein Gru\u00df"),
        ("\n", "\r\n"),
        ("@data\n", "@data\n# rows\n\n"),
    ],
)
def test_what_writers_do_differently_does_not_matter(tmp_path, old, new):
    path = tmp_path / "two.ts"
    path.write_bytes((HEADER + ROWS).replace(old, new).encode("latin-1"))
    series, labels = read_ts(path, 2, ("left", "right"))
    assert [one.shape for one in series] == [(3, 2), (1, 2)]
    assert labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@timeStamps false", "@timeStamps true", ": @timeStamps must be false, got 'true'"),
        ("@missing false", "@missing true", ": @missing must be false, got 'true'"),
        ("@dimensions 2", "@dimensions 3", ": @dimensions must be 2, got '3'"),
        (
            "true left right",
            "true left middle",
            ": @classLabel must be true and the classes left right, got 'true left middle'",
        ),
        ("true left right", "false", ": @classLabel must be true and the classes left right, got 'false'"),
        ("@classLabel true left right\n", "", ": @classLabel must be true and the classes left right, got 'false'"),
        (
            "@equalLength false",
            "@equalLength true",
            ": @seriesLength must be a whole number with @equalLength true, got ''",
        ),
        (
            "@equalLength false",
            "@equalLength true\n@seriesLength 2",
            " row 12: a series must have @seriesLength = 2 steps, got 3",
        ),
        ("@problemName", "problemName", " row 3: before @data a row must begin with # or @, got 'problemName Two'"),
        ("@data\n", "", " row 10: before @data a row must begin with # or @, got '1.5,-2,3e-1:4,5,6:right'"),
        (ROWS, "", " has no rows after @data"),
        ("@data\n" + ROWS, "", " has no row @data"),
        (":left", ":up", " row 12: class must be one of left, right, got 'up'"),
        (":left", "", " row 12: expected 2 channels and a class after colons, got 1 channels"),
        ("7:-8.25", "7:-8.25:9", " row 12: expected 2 channels and a class after colons, got 3 channels"),
        (":4,5,6:", ":4,5:", " row 11: channel 2 must have 3 values like channel 1, got 2"),
        ("4,5,6", "4,?,6", " row 11, channel 2: values must be finite numbers of at most 1e+30, got '?'"),
        ("4,5,6", "4,nan,6", " row 11, channel 2: values must be finite numbers of at most 1e+30, got 'nan'"),
        ("4,5,6", "4,-1e31,6", " row 11, channel 2: values must be finite numbers of at most 1e+30, got '-1e31'"),
        ("4,5,6", "4,1e999,6", " row 11, channel 2: values must be finite numbers of at most 1e+30, got '1e999'"),
        ("4,5,6", "4,5,6,", " row 11, channel 2: values must be finite numbers of at most 1e+30, got ''"),
        ("7:", ":", " row 12, channel 1: values must be finite numbers of at most 1e+30, got ''"),
        ("7:", "(0,7):", " row 12, channel 1: values must be finite numbers of at most 1e+30, got '(0'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_file_and_row(tmp_path, old, new, message):
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        read(tmp_path, (HEADER + ROWS).replace(old, new))
    assert str(refusal.value) == f"{tmp_path / 'two.ts'}{message}"


def test_what_cannot_be_read_at_all_is_refused(tmp_path):
    with pytest.raises(ValueError, match="cannot be read: Is a directory"):
        read_ts(tmp_path, 2, ("left", "right"))
    path = tmp_path / "bytes.ts"
    path.write_bytes(bytes(range(256)))
    with pytest.raises(ValueError, match=r"bytes\.ts row 1: before @data"):
        read_ts(path, 2, ("left", "right"))
