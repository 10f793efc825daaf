"""Recordings from CSV files: layouts, what is set aside, and what is refused."""

import numpy as np
import pytest

from mgrade.estimator import read_csv, split

LONG = "id,label,x,y\na,up,1,2\na,up,3,4\nb,down,5,6\na,up,7,8\n"
LOG = "time,label,x\n" + "".join(f"{t},{'on' if t // 4 % 2 else 'off'},{t * 10}\n" for t in range(14))


@pytest.fixture
def csv(tmp_path):
    def write(text):
        path = tmp_path / "sensor.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_a_column_tells_recordings_apart(csv):
    found = read_csv(csv(LONG), sequence="id")
    assert found.channels == ("x", "y")
    assert (found.labels.tolist(), found.names.tolist()) == (["up", "down"], ["a", "b"])
    assert [one.tolist() for one in found.series] == [[[1, 3, 7], [2, 4, 8]], [[5], [6]]]


def test_without_one_a_change_of_label_does(csv):
    found = read_csv(csv("\ufeff" + LOG), channels=["x"])
    assert found.labels.tolist() == ["off", "on", "off", "on"]
    assert [one[0].tolist() for one in found.series][3] == [120, 130]


@pytest.mark.parametrize("separator", [";", "\t", ", ", " ,"], ids=["semicolon", "tab", "blank after", "blank before"])
def test_other_separators_and_blanks_are_read(csv, separator):
    found = read_csv(csv(LONG.replace(",", separator)), sequence="id")
    assert found.channels == ("x", "y")
    assert (found.labels.tolist(), found.names.tolist()) == (["up", "down"], ["a", "b"])


@pytest.mark.parametrize("before", ["sep=;\n", "\ufeffsep=;\r\n", '"sep=;"\n\n', "\nSep=;\n"])
def test_the_separator_may_be_told_first(csv, before):
    found = read_csv(csv(before + "label;x,y;z\nup;1;2\n"))
    assert found.channels == ("x,y", "z")
    with pytest.raises(ValueError, match=f"line {2 + before.count(chr(10))}, column 'z' must be a number, got 'a'"):
        read_csv(csv(before + "label;x,y;z\nup;1;a\n"))


def test_a_comma_goes_before_other_separators(csv):
    found = read_csv(csv("label,x;y\nup,1\n"))
    assert found.channels == ("x;y",)


@pytest.mark.parametrize("before", ["", "\n", "\ufeff", " \r\n\n"], ids=["at once", "blank", "BOM", "blanks"])
def test_signs_in_names_do_not_hide_what_stands_between_columns(csv, before):
    found = read_csv(csv(before + "label;x, rad/s;y\nup;1;2\n"))
    assert found.channels == ("x, rad/s", "y")
    found = read_csv(csv(before + '"label","x;a;b;c"\nup,1\n'))
    assert found.channels == ("x;a;b;c",)
    with pytest.raises(ValueError, match=f"line {2 + before.count(chr(10))}, column 'y' must be a number, got 'z'"):
        read_csv(csv(before + "label,x;a;b;c,y\nup,1,z\n"))


def test_a_file_of_something_else_is_not_shown_in_full(csv):
    with pytest.raises(ValueError, match="has no column 'label'; its first line names") as error:
        read_csv(csv(",".join(f'"{i}{"x" * 99}"' for i in range(5000))))
    assert str(error.value).endswith("…, … (5000 in all)")
    assert len(str(error.value)) < 1000


def test_a_column_that_is_not_chosen_may_hold_anything(csv):
    found = read_csv(csv("label,x,note,note\nup,1,a,b\n"), channels=["x"])
    assert found.series[0].tolist() == [[1]]


def test_a_window_cuts_recordings_into_pieces_that_know_where_they_are_from(csv):
    found = read_csv(csv(LOG), channels=["x"], window=2)
    assert {one.shape for one in found.series} == {(1, 2)}
    assert found.names.tolist() == ["1", "1", "2", "2", "3", "3", "4"]


def test_whole_recordings_of_every_label_are_set_aside(csv):
    rows = "".join(f"r{i},{'ab'[i % 2]},{i}\n" * 4 for i in range(20))
    found = read_csv(csv("id,label,x\n" + rows), sequence="id", window=2)
    training, held_out = split(found, 0.3, seed=1)
    assert not set(training.names) & set(held_out.names)
    assert len(training.series) + len(held_out.series) == len(found.series)
    assert np.unique(held_out.labels, return_counts=True)[1].tolist() == [6, 6]
    assert split(found, 0.3, seed=1)[1].names.tolist() == held_out.names.tolist()
    assert split(found, 0.3, seed=2)[1].names.tolist() != held_out.names.tolist()


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "is empty"),
        (LONG, {"sequence": "name"}, "has no column 'name'; its first line names id, label, x, y"),
        (LONG, {"channels": ["z"]}, "has no column 'z'"),
        ("label,x,,y\nup,1,,2\n", {}, r"column 3 has no name: name it, or the channels \(--channels\)$"),
        (LONG, {}, r"line 2, column 'id' must be a number, got 'a': name the column that tells .* \(--channels\)$"),
        ("label;x\nup;1,5\n", {}, "column 'x' must be a number, got '1,5': decimal commas are not supported"),
        (LONG, {"channels": "x,y"}, "channels must be a list of names, got 'x,y'"),
        (LONG + "c,up,,1\n", {"sequence": "id"}, "line 6, column 'x' must be a number, got ''"),
        (LONG + "c,up,nan,1\n", {"sequence": "id"}, "line 6, column 'x' must be a number, got 'nan'"),
        (LONG + "c,up,1\n", {"sequence": "id"}, "line 6 must have 4 columns, got 3"),
        (LONG + "a,down,1,2\n", {"sequence": "id"}, "line 6: recording 'a' must have one label, got 'up' and 'down'"),
        (LONG + "c,,1,2\n", {"sequence": "id"}, "line 6, column 'label' must not be empty"),
        (LONG + " ,up,1,2\n", {"sequence": "id"}, "line 6, column 'id' must not be empty"),
        (LONG + "c,up,1e39,1\n", {"sequence": "id"}, r"line 6, column 'x' must be within 3.4e\+38 of 0, got '1e39'"),
        (LONG + f"c,up,1{'0' * 50}.{'0' * 500},1\n", {"sequence": "id"}, r"of 0, got '10{39,}…'$"),
        (LONG + "  \n\t\nc,up,?,1\n", {"sequence": "id"}, r"line 8, column 'x' must be a number, got '\?'"),
        (LONG + "c,up,1_0,1\n", {"sequence": "id"}, "line 6, column 'x' must be a number, got '1_0'"),
        (LONG + '"c\nd",up,1,1\n\nc,up,?,1\n', {"sequence": "id"}, "line 9, column 'x' must be a number"),
        (
            LONG + 'c,up,"1,1\nd,up,1,1\n',
            {"sequence": "id"},
            r"lines 6 to 7 \(joined by a quote\) must have 4 columns, got 3",
        ),
        (
            LONG + "c,up,2024-05-01,1\n",
            {"sequence": "id"},
            r"01': correct it, or leave the column out .* \(--channels\)$",
        ),
        (LONG + "c,up,1.2.3,1\n", {"sequence": "id"}, "got '1.2.3': correct it, or cut the recording there$"),
        pytest.param(
            LONG + f"c,up,{'1' * 140_000},1\n",
            {"sequence": "id"},
            "line 6 is not CSV: field larger than",
            id="a field too long",
        ),
        pytest.param(LONG + "c,u\0p,1,1\n", {"sequence": "id"}, "line 6 is not CSV: line contains NUL", id="NUL"),
        pytest.param(
            "label,x\nschön,1\n".encode("latin-1"),
            {},
            "sensor.csv: must be text in UTF-8: save it again as",
            id="latin-1",
        ),
        pytest.param(
            "label,x\nup,1\n".encode("utf-16"), {}, "sensor.csv: must be text in UTF-8: save it again as", id="utf-16"
        ),
        ("label,x, x\nup,1,2\n", {}, "column 'x' must be named once, got 2"),
        ("label,x\n1,1\n", {"channels": ["label", "x"]}, "column 'label' must be the label, the sequence or a channel"),
        ("id,label,x\n", {}, "has no samples"),
        ("label\nup\n", {}, "has no columns besides 'label'"),
        (LONG, {"sequence": "id", "window": 9}, "window must be at most 1, the longest recording of 'down', got 9"),
        (LONG, {"sequence": "id", "window": 2}, "window must be at most 1, the longest recording of 'down', got 2"),
        (LONG, {"sequence": "id", "window": 0}, "window must be at least 1, got 0"),
    ],
)
def test_a_mistake_is_named(csv, text, options, message):
    with pytest.raises(ValueError, match=message):
        read_csv(csv(text), **options)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"none.csv: cannot be read: No such file"):
        read_csv(tmp_path / "none.csv")


def test_what_cannot_be_split_is_refused(csv):
    found = read_csv(csv(LONG), sequence="id")
    with pytest.raises(ValueError, match="label 'down' must have at least 2 recordings"):
        split(found, 0.5)
    with pytest.raises(ValueError, match="share must be between 0 and 1, got 1"):
        split(found, 1.0)
