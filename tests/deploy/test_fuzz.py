"""Whatever is in a file: it is refused with one line, or it is a program, and then that runs."""

import copy
import json
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deploy.programs import edit, integer, program_of, saved
from mgrade.deploy import Interpreter, Op, Program, parse_program
from mgrade.deploy.check import MAX_OPS, MAX_STATE

PROGRAMS = {
    "float": lambda: program_of("mgrade", readout="mean"),
    "float-tokens": lambda: program_of("lru_dcls", tokens=True, snap=True),
    "int16": lambda: integer(program_of("mgrade", readout="sum", projection=True, branch_norms=("mlp",))),
    "int16-tokens": lambda: integer(program_of("tcn", tokens=True, readout="mean"), state_bits=16),
    "int8": lambda: integer(program_of("lru", depth=1), "int8"),
}
FILES = {name: saved(make()) for name, make in PROGRAMS.items()}

every_file = pytest.mark.parametrize("data", FILES.values(), ids=FILES)
HUGE = "\x00a number of too many digits\x00"
VALUES = [
    *(None, True, False, "", "x", "\n", "\ud800", "weight", "0", "x" * 5000, [], {}, [[]], [None], {"": 0}, {"a": []}),
    *(0, 1, 2, 3, -1, 15, 16, 31, 63, 64, 65535, 65536, 1 << 31, -(1 << 31), 1 << 63, 1 << 64, 10**400),
    *(0.0, -0.0, 0.5, 1e-320, 1e308, math.nan, math.inf, -math.inf, [0] * 5000, HUGE),
]


def assert_sound(data):
    """Refused in one line of decent length, or a program that runs."""
    try:
        program = parse_program(data)
    except ValueError as error:
        message = str(error)
        assert message.isprintable(), repr(message)
        assert len(message) < 500, message
        return None
    interpreter = Interpreter(program)
    x = np.zeros(1, np.int64) if program.tokens else np.zeros((1, program.inputs), np.int64)
    for _ in range(2):
        y = interpreter.step(x)
    assert y.shape == (1, program.outputs)
    assert program.state_bytes <= MAX_STATE
    return program


@every_file
def test_what_is_not_altered_is_a_program(data):
    assert assert_sound(data) is not None


@every_file
@given(at=st.floats(0, 1, exclude_max=True), value=st.integers(1, 255), more=st.lists(st.integers(0, 4000), max_size=3))
@settings(max_examples=150)
def test_bytes_that_flipped(data, at, value, more):
    damaged = bytearray(data)
    damaged[int(at * len(data))] ^= value
    for place in more:
        damaged[place % len(data)] ^= value
    assert_sound(bytes(damaged))


@every_file
@given(bit=st.integers(0, 63), number=st.integers(0, (1 << 64) - 1), direct=st.booleans())
@settings(max_examples=50)
def test_a_header_of_another_length(data, bit, number, direct):
    length = number if direct else int.from_bytes(data[:8], "little") ^ (1 << bit)
    assert assert_sound(length.to_bytes(8, "little") + data[8:]) is None or length == int.from_bytes(data[:8], "little")


@every_file
@given(share=st.floats(0, 1, exclude_max=True))
@example(share=0.0)
@settings(max_examples=50)
def test_files_that_end_early(data, share):
    assert assert_sound(data[: int(share * len(data))]) is None


@every_file
@given(share=st.floats(0, 1), piece=st.binary(min_size=1, max_size=40), again=st.booleans())
@settings(max_examples=100)
def test_bytes_too_many(data, share, piece, again):
    at = int(share * len(data))
    assert_sound(data[:at] + (data[at : at + 40] if again else piece) + data[at:])


def places(node, path=()):
    """The path to everything in a tree of JSON."""
    yield path
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


def parent(tree, path):
    for key in path[:-1]:
        tree = tree[key]
    return tree


def alter(draw, tree):
    """Something in the tree becomes something else, goes, is doubled, or changes places."""
    path = draw(st.sampled_from([path for path in places(tree) if path]))
    owner, key = parent(tree, path), path[-1]
    action = draw(st.sampled_from(["replace", "replace", "number", "remove", "swap", "double"]))
    if action == "replace":
        owner[key] = copy.deepcopy(draw(st.sampled_from(VALUES)))
    elif action == "number" and isinstance(owner[key], (int, float)):
        owner[key] = owner[key] + draw(st.integers(-40, 40))
    elif action == "remove":
        owner.pop(key)
    elif action == "swap":
        other = draw(st.sampled_from(list(owner) if isinstance(owner, dict) else range(len(owner))))
        owner[key], owner[other] = owner[other], owner[key]
    elif action == "double" and isinstance(owner, list):
        owner.insert(key, copy.deepcopy(owner[key]))


@every_file
@given(pick=st.data(), times=st.integers(1, 3))
@settings(max_examples=150)
def test_descriptions_that_somebody_altered(data, pick, times):
    def change(header, description):
        for _ in range(times):
            alter(pick.draw, description)
        text = json.dumps(description)
        header["__metadata__"]["program"] = text.replace(json.dumps(HUGE), "9" * 5000)

    assert_sound(edit(data, change))


@every_file
@given(pick=st.data(), times=st.integers(1, 2))
@settings(max_examples=100)
def test_arrays_that_somebody_altered(data, pick, times):
    """Names, dtypes, shapes and places of arrays."""
    names = st.sampled_from(
        ["0", "0.", ".", "", "0.weight", "1.weight", "00.weight", "99.weight", "0.a\nb", "0." + "x" * 999]
    )
    dtypes = st.sampled_from(["F32", "F16", "BF16", "I8", "U8", "I16", "U16", "I32", "U32", "I64", "F64", "BOOL", "F4"])

    def change(header, _):
        arrays = {name: entry for name, entry in header.items() if name != "__metadata__"}
        for _ in range(times):
            name = pick.draw(st.sampled_from(sorted(arrays)))
            action = pick.draw(st.sampled_from(["rename", "dtype", "shape", "swap", "any"]))
            if action == "rename":
                arrays[pick.draw(names)] = arrays.pop(name)
            elif action == "dtype":
                arrays[name]["dtype"] = pick.draw(dtypes)
            elif action == "shape":
                arrays[name]["shape"] = pick.draw(st.permutations(arrays[name]["shape"]))
            elif action == "swap":
                other = pick.draw(st.sampled_from(sorted(arrays)))
                arrays[name], arrays[other] = arrays[other], arrays[name]
            else:
                alter(pick.draw, arrays)
                break
        for name in [name for name in header if name != "__metadata__"]:
            del header[name]
        header.update(arrays)

    assert_sound(edit(data, change))


@every_file
@given(
    seed=st.integers(0, 10_000),
    name=st.sampled_from(["lag", "weight", "bias", "multiplier", "decay", "scale", "table"]),
)
@settings(max_examples=60)
def test_numbers_that_are_anything(data, seed, name):
    """All bytes of the arrays of a name."""
    spans = []
    edit(data, lambda header, _: spans.extend(e["data_offsets"] for n, e in header.items() if n.endswith(f".{name}")))
    begin, damaged = 8 + int.from_bytes(data[:8], "little"), bytearray(data)
    rng = np.random.default_rng(seed)
    for first, last in spans:
        damaged[begin + first : begin + last] = rng.bytes(last - first)
    assert_sound(bytes(damaged))


def test_a_long_list_of_operations_is_refused_before_anything_is_done_with_it():
    def change(_, description):
        description["ops"] = [{"kind": "gelu", "args": [0], "numbers": {}}] * 50_000

    with pytest.raises(ValueError, match=f"ops must be 1 to {MAX_OPS} operations, got 50000"):
        parse_program(edit(saved(Program(2, False, (Op("gelu", (0,)),))), change))


@pytest.mark.parametrize("kind", ["taps_input", "filter"])
def test_a_small_file_asks_for_no_more_memory_than_the_limit(kind):
    lag = np.full((1, 1), 65534, np.uint16)
    ops = {
        "taps_input": (
            {"weight": np.ones((1, 1)), "mix": np.ones((1, 60_000)), "bias": np.ones(1)},
            60_000,
            {"lag": lag},
        ),
        "filter": ({"weight": np.ones((1, 4096))}, 4096, {"lag": lag[0]}),
    }
    arrays, inputs, more = ops[kind]
    op = Op(kind, (0,), {**{name: array.astype(np.float32) for name, array in arrays.items()}, **more})
    with pytest.raises(ValueError, match=f"state must be at most {MAX_STATE} bytes, got "):
        Program(inputs, False, (op,))


def test_a_small_file_asks_for_no_more_work_than_the_limit():
    arrays = {"weight": np.ones((1, 65_000)), "mix": np.ones((1, 60_000)), "bias": np.ones(1)}
    lag = np.zeros((1, 65_000), np.uint16)
    op = Op("taps_input", (0,), {**{name: array.astype(np.float32) for name, array in arrays.items()}, "lag": lag})
    with pytest.raises(ValueError, match="a step must take at most 67108864 products, got 3900000000"):
        Program(60_000, False, (op,))
