"""A saved program comes back bit for bit, or not at all."""

import json
import os

import numpy as np
import pytest
import safetensors.numpy

import helpers
from deploy.programs import PRESETS, edit, edited, inputs_for, integer, program_of, saved
from mgrade.deploy import Interpreter, load_program, parse_program, save_program

PRECISIONS = ("float32", "int16", "int8")


def make(precision="float32", preset="mgrade", **fields):
    program = program_of(preset, **fields)
    return program if precision == "float32" else integer(program, precision)


def assert_refused(data, message):
    helpers.assert_refused(message, parse_program, data)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_saved_program_comes_back_bit_for_bit(tmp_path, preset, precision):
    program = make(precision, preset, readout="mean")
    save_program(program, tmp_path / "p.mgrade")
    loaded = load_program(tmp_path / "p.mgrade")
    for name in ("inputs", "tokens", "precision", "exponents", "widths", "state_bytes"):
        assert getattr(loaded, name) == getattr(program, name)
    for one, other in zip(loaded.ops, program.ops, strict=True):
        assert (one.kind, one.args, one.numbers) == (other.kind, other.args, other.numbers)
        assert one.arrays.keys() == other.arrays.keys()
        for name, array in one.arrays.items():
            assert array.dtype == other.arrays[name].dtype
            assert np.array_equal(array, other.arrays[name])
    x = inputs_for(program, 2, 12)
    assert np.array_equal(Interpreter(loaded, 2).run(x), Interpreter(program, 2).run(x))


def test_a_program_is_one_safetensors_file_and_nothing_else(tmp_path):
    program = make("int16")
    save_program(program, str(tmp_path / "p.mgrade"))
    assert [path.name for path in tmp_path.iterdir()] == ["p.mgrade"]
    arrays = safetensors.numpy.load_file(tmp_path / "p.mgrade")
    assert set(arrays) == {f"{i}.{name}" for i, op in enumerate(program.ops) for name in op.arrays}
    with safetensors.safe_open(tmp_path / "p.mgrade", "np") as file:
        metadata = file.metadata()
    assert (metadata["format"], metadata["version"]) == ("mgrade-program", "4")
    named = {"inputs", "tokens", "precision", "exponents", "input_units", "output_units", "ops"}
    assert set(json.loads(metadata["program"])) == named


def test_the_same_program_is_the_same_file():
    first = saved(make("int8"))
    assert all(saved(parse_program(first)) == first for _ in range(8))


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "p.mgrade"
    save_program(make(), path)
    before = path.read_bytes()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(OSError, match="no space left"):
        save_program(make("int16"), path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["p.mgrade"]


@pytest.mark.parametrize("what", ["missing", "folder", "empty", "other"])
def test_a_file_that_is_no_program_is_refused_by_its_path(tmp_path, what):
    path = tmp_path / "p.mgrade"
    if what == "folder":
        path.mkdir()
    if what in ("empty", "other"):
        path.write_bytes(b"" if what == "empty" else b"PK\x03\x04" * 100)
    with pytest.raises(
        ValueError, match="cannot be read" if what in ("missing", "folder") else "not a safetensors file"
    ) as caught:
        load_program(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_arrays_without_a_description_are_refused():
    assert_refused(safetensors.numpy.save({"0.weight": np.zeros(3)}), "format must be 'mgrade-program', got None")


def test_metadata_of_null_is_none():
    assert_refused(
        edited(make(), lambda header, _: header.update(__metadata__=None)), "format must be 'mgrade-program', got None"
    )


@pytest.mark.parametrize("version", ["0", "3", "4.0", ""])
def test_another_version_is_refused(version):
    assert_refused(
        edited(make(), lambda header, _: header["__metadata__"].update(version=version)), "version must be 4, got"
    )


@pytest.mark.parametrize("text", ["", "{", "nothing", "[" * 100_000, '{"a": ' + "9" * 5000 + "}"])
def test_a_description_that_is_not_json_is_refused(text):
    assert_refused(edited(make(), lambda header, _: header["__metadata__"].update(program=text)), "program is not JSON")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("tokens"), "program must have the fields inputs, tokens, precision, exponents, input_units, "),
        (lambda d: d.update(more=1), "program must have the fields"),
        (lambda d: d.update(inputs=True), "program: inputs must be a int, got True"),
        (lambda d: d.update(inputs=3.0), "program: inputs must be a int, got 3.0"),
        (lambda d: d.update(inputs=0), "inputs must be a whole number from 1 to 65534, got 0"),
        (lambda d: d.update(inputs=1 << 70), "inputs must be a whole number from 1 to 65534"),
        (lambda d: d.update(tokens=0), "program: tokens must be a bool, got 0"),
        (lambda d: d.update(precision="float16"), "precision must be one of float32, int16, int8, got 'float16'"),
        (lambda d: d.update(exponents=[1]), "exponents must have 0 entries, got 1"),
        (lambda d: d.update(input_units=[3]), r"input_units\[0\] must be an offset and bits, got 3"),
        (lambda d: d.update(output_units=[[0.0, 1, 2]]), r"output_units\[0\] must be an offset and bits"),
        (lambda d: d.update(input_units=[[0.0, 1]]), "input_units must be 0, got 1"),
        (lambda d: d.update(ops={}), "program: ops must be a list"),
        (lambda d: d["ops"].clear(), "belongs to no operation"),
        (lambda d: d["ops"].append([]), r"ops\[\d+\] must have the fields kind, args, numbers"),
        (lambda d: d["ops"][1].pop("args"), r"ops\[1\] must have the fields kind, args, numbers"),
        (lambda d: d["ops"][0].update(kind="dense"), r"ops\[0\]: no kind 'dense'; there are linear, "),
        (lambda d: d["ops"][0].update(args=[]), r"ops\[0\] \(linear\): args must name 1 values, got 0"),
        (lambda d: d["ops"][0].update(args=[1]), r"args must name values before it, 0 to 0, got 1"),
        (lambda d: d["ops"][0].update(args=[-1]), r"args must name values before it, 0 to 0, got -1"),
        (lambda d: d["ops"][0].update(args=[False]), r"args must name values before it, 0 to 0, got False"),
        (lambda d: d["ops"][0].update(args=[0.0]), r"args must name values before it, 0 to 0, got 0.0"),
        (lambda d: d["ops"][0].update(numbers={"a\nb": 1}), r"numbers must be none, got 'a\\nb'"),
    ],
)
def test_an_altered_description_is_refused(change, message):
    assert_refused(edited(make(), lambda _, description: change(description)), message)


@pytest.mark.parametrize("eps", [0.0, -1e-5, 1, True, None, "1e-5", [1e-5], float("nan"), float("inf"), 1e-13])
def test_a_norm_divides_by_something(eps):
    def change(_, description):
        (norm, *_) = (op for op in description["ops"] if op["kind"] == "norm")
        norm["numbers"]["eps"] = eps

    assert_refused(edited(make(), change), "eps must be a number, 1e-12 to 1.0, got")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0.weight", "0.waits", r"ops\[0\] \(linear\): arrays must be weight, bias, got "),
        ("0.weight", "0.we\night", r"got .*'we\\night'"),
        ("0.weight", "0", "array '0' belongs to no operation"),
        ("0.weight", "weight", "array 'weight' belongs to no operation"),
        ("0.weight", "99.weight", "array '99.weight' belongs to no operation"),
        ("0.weight", "-1.weight", "array '-1.weight' belongs to no operation"),
        ("0.weight", "00.weight", "array '00.weight' belongs to no operation"),
        ("0.weight", "0.weight.0", r"got .*'weight.0'"),
    ],
)
def test_arrays_have_the_names_they_need(old, new, message):
    assert_refused(edited(make(), lambda header, _: header.update({new: header.pop(old)})), message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "I32"}, "weight must be float32, got int32"),
        ({"dtype": "F16", "shape": [6, 6]}, "weight must be float32, got float16"),
        ({"shape": [18]}, r"weight must have 2 axes, got shape \(18,\)"),
        ({"shape": [3, 6]}, "weight has size 6 where 3 is needed"),
        ({"shape": [18, 1]}, "weight has size 1 where 3 is needed"),
        ({"shape": [6, 3, 1]}, "weight must have 2 axes"),
        ({"dtype": "I64"}, "not a safetensors file"),
        ({"dtype": "F99"}, "not a safetensors file"),
        ({"data_offsets": [0, 1 << 60]}, "not a safetensors file"),
    ],
)
def test_arrays_have_the_shape_and_the_dtype_they_need(change, message):
    def first(header, _):
        assert header["0.weight"]["shape"] == [6, 3]
        header["0.weight"].update(change)

    assert_refused(edited(make(), first), message)


@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3", "C64", "BOOL", "U64"])
def test_dtypes_that_numpy_lacks_are_refused(dtype):
    bits = {"B": 16, "C": 64, "U": 64}.get(dtype[0], int(dtype[1:2]) if dtype[0] == "F" else 8)
    bits = 8 if dtype == "BOOL" else bits

    def change(header, _):
        header["0.weight"].update(dtype=dtype, shape=[18 * 32 // bits])

    with pytest.raises(ValueError, match=r"weight must be float32|not a safetensors file") as caught:
        parse_program(edited(make(), change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_are_finite(value):
    data, places = bytearray(saved(make())), []
    edit(bytes(data), lambda header, _: places.append(header["0.bias"]["data_offsets"][0]))
    begin = 8 + int.from_bytes(data[:8], "little") + places[0]
    data[begin : begin + 4] = np.float32(value).tobytes()
    assert_refused(bytes(data), r"ops\[0\] \(linear\): bias must be finite")
