"""Streams: samples from lines and sound, compiled and interpreted alike."""

import numpy as np
import pytest

from deploy.programs import assert_as_interpreted, inputs_for, inputs_of, integer, program_of
from mgrade.deploy.about import About
from mgrade.deploy.c import host
from mgrade.deploy.samples import parse_samples
from mgrade.deploy.stream import csv_samples, open_stream, stream, wav_samples

PROGRAMS = {
    "float32": lambda: program_of(readout="mean"),
    "tokens": lambda: program_of(tokens=True),
    "int16": lambda: integer(program_of(readout="sum")),
    "int8": lambda: integer(program_of("mingru"), "int8"),
}


def parse(text, inputs=2, tokens=False, **known):
    lines = text.splitlines(keepends=True)
    return [sample.tolist() for sample in parse_samples(lines, inputs, tokens, "here", About(**known))]


def test_lines_become_samples():
    assert parse("1,2\n3,4\n") == [[1, 2], [3, 4]]
    assert parse("1,2\r\n3,4") == [[1, 2], [3, 4]]
    assert parse("\n  \nname, other\n\n 1 , 2e0 \n\n") == [[1, 2]]
    assert parse('"a","b"\n"1","-2.5"\n') == [[1, -2.5]]
    assert parse("\ufeff1,2\n") == [[1, 2]]  # as spreadsheets begin
    assert parse("a\n3\n0\n", 4, tokens=True) == [3, 0]
    assert parse("") == []
    assert parse("1;2\n3;4\n") == parse("a\tb\n1\t2\n3\t4\n") == [[1, 2], [3, 4]]
    assert parse("sep=;\r\n1;2\n3;4\n") == parse('\ufeff"SEP=|"\n\na|b\n1|2\n3|4\n') == [[1, 2], [3, 4]]
    with pytest.raises(ValueError, match="here, line 2: must be numbers, or names of 2 columns, got 'sep='"):
        parse("sep=;\nsep=\n3;4\n")


def test_names_say_which_columns_are_read():
    known = {"channels": ("left", "right")}
    assert parse("right,left\n1,2\n", **known) == [[2, 1]]
    assert parse("take;left;label;right\n7;1;up;2\n8;3;down;4\n", **known) == [[1, 2], [3, 4]]
    assert parse('"a,x",label,1\n3,up,4\n', channels=("a,x", "1")) == [[3, 4]]
    assert parse("1,label,0\n3,up,4\n", channels=("0", "1")) == [[4, 3]]
    long = ("a" * 80, "b" * 80)  # names as an export keeps them
    assert parse(f"{'b' * 90},label,{'a' * 90}\n1,up,2\n", channels=long) == [[2, 1]]
    assert parse("x,y\n1,2\n", **known) == parse("1,2\n", **known) == [[1, 2]]
    for text, message in (
        ("left,middle\n1,2\n", "here, line 1: has no column 'right'; the channels are left, right"),
        ("no,left,right\n0,1,2\n0,1\n", "here, line 3: must have 3 columns, got 2"),
        ("left,right\n1,5,2,5\n", "here, line 2: must have 2 columns, got 4"),
        (
            "left;right\n1,5;2,5\n",
            "here, line 2: must be finite numbers, got '1,5;2,5': decimal commas are not supported, write points",
        ),
        ("left,left,right\n0,1,2\n", "here, line 1: column 'left' must be named once, got 2"),
    ):
        with pytest.raises(ValueError, match=f"^{message}$"):
            parse(text, **known)


@pytest.mark.parametrize("text", ["1 2\n3 4\n", "RIFF..WAVE\n", '"1,2\n', "a,b,c\n1,2\n"])
def test_a_first_line_of_something_else_is_not_taken_for_names(text):
    with pytest.raises(ValueError, match=r"^here, line 1: must be numbers, or names of 2 columns, got "):
        parse(text)


def test_samples_are_gathered_into_frames():
    assert parse("1,2\n3,4\n5,6\n7,8\n9,9\n", 4, frame=2) == [[1, 2, 3, 4], [5, 6, 7, 8]]  # an incomplete end is left
    assert parse("1,2,3,4\n", 4, frame=2) == [[1, 2, 3, 4]]  # one that is whole already
    assert parse("b,a\n1,2\n3,4\n", 4, frame=2, channels=("a", "b")) == [[2, 1, 4, 3]]
    with pytest.raises(ValueError, match="line 1: must have 2 values, got 3"):
        parse("1,2,3\n", 4, frame=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\nc,d\n", "here, line 2: must be finite numbers, got 'c,d'"),
        ("1,2\na,b\n", "here, line 2: must be finite numbers, got 'a,b'"),
        ("x,1\n", "here, line 1: must be finite numbers, got 'x,1'"),
        ("1,\n", "here, line 1: must be finite numbers, got '1,'"),
        ("1,2\n,\n", "here, line 2: must be finite numbers, got ','"),
        ("\n1,2,3\n", "here, line 2: must have 2 values, got 3"),
        ("1_0,2\n", "here, line 1: must be finite numbers, got '1_0,2'"),
        ("1,-inf\n", "here, line 1: must be finite numbers, got '1,-inf'"),
        pytest.param(
            "1" * 140_000, "here, line 1: is not CSV: field larger than field limit (131072)", id="a field too long"
        ),
    ],
)
def test_a_bad_line_is_named(text, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the whole message is looked at
        parse(text)
    assert str(error.value) == message


def test_samples_come_one_by_one():
    read = []

    def lines():
        for number in range(3):
            read.append(number)
            yield f"{number},0\n"

    samples = parse_samples(lines(), 2, False, "here")
    assert next(samples).tolist() == [0, 0]
    assert read == [0]


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_and_interpreted_streams_are_equal(monkeypatch, name):
    program = PROGRAMS[name]()
    x = inputs_for(program, 1, 25)[0]
    compiled = open_stream(program)
    monkeypatch.setattr(host, "compile", no_compiler)
    interpreted = open_stream(program)
    assert type(compiled) is not type(interpreted)
    expected = np.stack([interpreted.step(sample) for sample in x])
    assert_as_interpreted(program, np.stack([compiled.step(sample) for sample in x]), expected)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_stream_begins_anew_after_every_window(monkeypatch, compiled):
    if not compiled:
        monkeypatch.setattr(host, "compile", no_compiler)
    program = PROGRAMS["int16"]()
    x = inputs_of(program, 1, 7)[0]
    windows = np.stack(list(stream(program, x, About(window=3))))
    pieces = [np.stack(list(stream(program, x[begin : begin + 3]))) for begin in (0, 3, 6)]
    np.testing.assert_array_equal(windows, np.concatenate(pieces))
    assert not np.array_equal(windows, np.stack(list(stream(program, x, About()))))


def no_compiler(program):
    raise ValueError("no C compiler found")


@pytest.mark.parametrize("error", [ValueError, RuntimeError, OSError])
def test_without_a_compiler_a_program_is_interpreted(monkeypatch, error):
    def fail(program):
        raise error("no")

    monkeypatch.setattr(host, "compile", fail)
    program = PROGRAMS["int16"]()
    x = inputs_of(program, 1, 5)[0]
    lines = [",".join(map(str, row)) for row in x]
    outputs = list(stream(program, csv_samples(program, lines, "here")))
    assert len(outputs) == 5
    assert all(y.dtype == np.float32 and y.shape == (program.outputs,) for y in outputs)


def test_sound_cut_short_gives_whole_frames(tmp_path):
    path = tmp_path / "a.wav"
    data = np.arange(7, dtype="<i2").tobytes() + b"\x01"
    size = (36 + len(data)).to_bytes(4, "little")
    form = b"WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x80\x3e\0\0\2\0\x10\0"
    path.write_bytes(b"RIFF" + size + form + b"data" + len(data).to_bytes(4, "little") + data)
    frames = list(wav_samples(program_of(), path))
    np.testing.assert_array_equal(np.stack(frames) * 32768, [[0, 1, 2], [3, 4, 5]])
    louder = list(wav_samples(program_of(), path, About(samples_per_second=8000, gain=16.0)))
    np.testing.assert_array_equal(np.stack(louder) * 2048, [[0, 1, 2], [3, 4, 5]])
    with pytest.raises(ValueError, match=r"a\.wav: samples a second must be 16000, got 8000"):
        wav_samples(program_of(), path, About(samples_per_second=16000))
    with pytest.raises(ValueError, match=r"a\.wav: the program reads ax, ay, az, not sound"):
        wav_samples(program_of(), path, About(channels=("ax", "ay", "az")))
    with pytest.raises(ValueError, match=r"a\.wav: the program reads 3 channels, not sound"):
        wav_samples(program_of(), path, About())
    assert len(list(wav_samples(program_of(), path, About(frame=3)))) == len(frames)
    whole = path.read_bytes()
    for damaged, message in (
        (whole[:-4], ": its header says 14 bytes of sound, got 11"),
        (whole[:44], ": its header says 14 bytes of sound, got 0"),
        (whole[:16] + b"\xdb" + whole[17:], " is not a WAV file"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=rf"a\.wav{message}"):
            wav_samples(program_of(), path)
    path.write_bytes(whole)
    with pytest.raises(ValueError, match=r"a\.wav: must hold 9 samples or more, got 7"):
        wav_samples(program_of(inputs=9), path)
