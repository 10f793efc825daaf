"""What a program is: its operations, what it remembers; and that docs/program.md says so."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.programs import (
    assert_as_interpreted,
    assert_close,
    inputs_for,
    inputs_of,
    integer,
    program_of,
    random_program,
)
from deploy.scalar import Scalar
from mgrade.deploy import Interpreter, Op, Program, StatePart, dequantise_output, quantise_input
from mgrade.deploy.check import NUMBER_RANGES
from mgrade.deploy.interpreter import MOST_STEPS
from mgrade.deploy.specs import INTEGER_DTYPES, PRECISIONS, SPECIAL_DTYPES, SPECS
from mgrade.deploy.storage import FIELDS, FORMAT, OP_FIELDS, VERSION

DOCS = (Path(__file__).parent.parent.parent / "docs" / "program.md").read_text(encoding="utf-8")


def floats(*values):
    return np.array(values, np.float32)


def one(kind, inputs, numbers=None, tokens=False, **arrays):
    """A program of one operation, of which every argument is the input."""
    arrays = {n: np.array(a, np.uint16 if n == "lag" else np.float32) for n, a in arrays.items()}
    return Program(inputs, tokens, (Op(kind, (0,) * len(SPECS[kind].args), arrays, numbers or {}),))


def outputs(program, *steps):
    return Interpreter(program).run(np.array(steps)[None])[0]


# Operations


def test_linear():
    program = one("linear", 2, weight=[[1, 2], [3, 4], [5, 6]], bias=[10, 20, 30])
    assert outputs(program, [1, -1]).tolist() == [[9, 19, 29]]


def test_embed():
    assert outputs(one("embed", 3, tokens=True, table=[[1, 2], [3, 4], [5, 6]]), 2, 0).tolist() == [[5, 6], [1, 2]]


def test_taps_have_delays_of_their_own():
    program = one("taps", 2, weight=[[1, 10], [100, 1000]], lag=[[0, 2], [1, 0]])
    assert outputs(program, [1, 1], [2, 2], [3, 3], [4, 4]).tolist() == [[1, 1000], [2, 2100], [13, 3200], [24, 4300]]


def test_a_filter_has_the_same_delays_for_all():
    program = one("filter", 2, weight=[[1, 2], [10, 20]], lag=[0, 2])
    assert outputs(program, [1, 1], [2, 2], [3, 3]).tolist() == [[1, 2], [2, 4], [13, 26]]


def test_taps_of_the_input_have_a_bias_as_far_back_as_there_was_input():
    program = one("taps_input", 1, weight=[[1, 10]], lag=[[0, 2]], mix=[[2]], bias=[0.5])
    assert outputs(program, [1], [0], [0], [0]).tolist() == [[2.5], [0.5], [25.5], [5.5]]


def test_taps_of_tokens_are_silent_before_the_first():
    program = one("taps_token", 2, tokens=True, weight=[[1, 10]], lag=[[0, 1]], table=[[7], [3]])
    assert outputs(program, 0, 1, 1).tolist() == [[7], [73], [33]]


def test_gated():
    ops = (Op("linear", (0,), {"weight": floats([1, 0]), "bias": floats(0)}),)
    ops += (Op("linear", (0,), {"weight": floats([0, 1]), "bias": floats(0)}), Op("gated", (1, 2)))
    y = outputs(Program(2, False, ops), [0, 4], [-100, 9], [100, 3], [math.log(3), 7])
    assert_close(y, np.array([[2], [2], [3], [6]]))


def test_rotate():
    y = outputs(one("rotate", 2, decay=[[0, 0.5]]), [1, 0], [0, 0], [0, 0], [0, 1])
    assert y.tolist() == [[1, 0], [0, 0.5], [-0.25, 0], [0, 0.875]]


def test_norm():
    program = one("norm", 2, {"eps": 1e-12}, scale=[2, 3], shift=[10, 20])
    assert_close(outputs(program, [1, 3], [5, 5]), np.array([[8, 23], [10, 20]]))


def test_gelu():
    y = outputs(one("gelu", 5), [0, 1, -1, 100, -100])
    assert_close(y, np.array([[0, 0.841192, -0.158808, 100, 0]]), 1e-6)


def test_glu():
    assert_close(outputs(one("glu", 2), [math.log(3), -math.log(3)]), math.log(3) * np.array([[0.75, -0.25]]))


def test_add_and_scale():
    assert outputs(one("add", 2), [1, 2]).tolist() == [[2, 4]]
    assert outputs(one("scale", 2, weight=[3, -1]), [1, 2]).tolist() == [[3, -2]]


def test_mean_and_sum():
    assert outputs(one("mean", 1), [1], [2], [6]).tolist() == [[1], [1.5], [3]]
    assert outputs(one("sum", 1), [1], [2], [6]).tolist() == [[1], [3], [9]]


def test_a_mean_counts_further_than_float32_does():
    interpreter = Interpreter(one("mean", 1))
    interpreter.state[0]["steps"][:] = 1 << 24
    interpreter.step([[0.0]])
    assert interpreter.state[0]["steps"] == (1 << 24) + 1


def test_a_mean_that_cannot_count_further_halves_the_past():
    interpreter = Interpreter(one("mean", 1))
    interpreter.state[0]["steps"][:], interpreter.state[0]["total"][:] = MOST_STEPS, 5.0 * MOST_STEPS
    assert_close(interpreter.step([[5.0]]), np.array([[5.0]]))
    assert interpreter.state[0]["steps"] == MOST_STEPS // 2 + 1


@pytest.mark.parametrize("precision", PRECISIONS)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=25)
def test_programs_compute_what_the_page_says_number_by_number(precision, seed):
    program = random_program(seed, precision)
    x, scalar = inputs_for(program, 1, 12, seed), Scalar(program)
    expected = np.array([scalar.step(x_t) for x_t in x[0].tolist()])
    assert_as_interpreted(program, Interpreter(program).run(x)[0], expected)


# Streams


@given(seed=st.integers(0, 1000), precision=st.sampled_from(PRECISIONS))
@settings(max_examples=15)
def test_streams_are_independent(seed, precision):
    program = random_program(seed, precision)
    x = inputs_for(program, 3, 20, seed)
    together = Interpreter(program, 3).run(x)
    for row, y in zip(x, together, strict=True):
        assert_as_interpreted(program, y, Interpreter(program).run(row[None])[0])


@pytest.mark.parametrize("preset", ["mgrade", "lru_dcls", "tcn"])
def test_after_a_reset_it_is_as_at_first(preset):
    program = program_of(preset, readout="mean", inputs=1)
    x, interpreter = inputs_of(program, 2, 20), Interpreter(program, 2)
    first = interpreter.run(x)
    assert not np.array_equal(interpreter.run(x), first)
    interpreter.reset()
    assert np.array_equal(interpreter.run(x), first)


def test_a_run_is_its_steps():
    program = program_of("mgrade")
    x, interpreter = inputs_of(program, 2, 9), Interpreter(program, 2)
    whole = Interpreter(program, 2).run(x)
    assert np.array_equal(np.stack([interpreter.step(x[:, t]) for t in range(9)], 1), whole)
    assert Interpreter(program, 2).run(x[:, :0]).shape == (2, 0, 4)


def test_there_may_be_no_streams_at_all():
    program = program_of("mgrade", readout="mean")
    assert Interpreter(program, 0).run(np.zeros((0, 5, 3))).shape == (0, 5, 4)
    with pytest.raises(ValueError, match="streams must be at least 0, got -1"):
        Interpreter(program, -1)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
def test_what_is_too_large_is_no_reason_to_speak_up(value):
    """Warnings are errors in these tests."""
    for preset in ("mgrade", "lru"):
        program = program_of(preset, readout="mean")
        assert Interpreter(program).run(np.full((1, 3, 3), value)).shape == (1, 3, program.outputs)


def test_an_input_of_double_precision_may_be_too_large_for_float32():
    assert np.isinf(Interpreter(one("add", 1)).step(np.array([[1e300]])))


# Whole numbers in and out


def test_inputs_are_rounded_half_up_and_held_at_the_ends():
    program = Program(1, False, (Op("glu", (0, 0)),), "int16", (3, 3))
    x = [0.0624, 0.0625, -0.0625, -0.0626, 1.0, 4096, -4096, 1e30, -1e30, 1e308, np.inf, -np.inf, np.nan]
    whole = [0, 1, 0, -1, 8, 32767, -32768, 32767, -32768, 32767, 32767, -32768, 0]
    assert quantise_input(program, x).tolist() == whole
    assert dequantise_output(program, np.array([8, -1])).tolist() == [1.0, -0.125]


def test_inputs_of_other_programs_are_as_they_are():
    assert quantise_input(one("add", 1), [0.3]).tolist() == [0.3]
    assert quantise_input(integer(program_of("mgrade", tokens=True)), [2, 1]).tolist() == [2, 1]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int64, np.uint32])
def test_whole_numbers_may_come_in_any_dtype(dtype):
    program = Program(1, False, (Op("sum", (0,)),), "int16", (0, 0))
    assert Interpreter(program).step(np.array([[100]], dtype)).tolist() == [[100]]


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 3)), r"x must have shape \(1, 3\), got \(2, 3\)"),
        (np.zeros((1, 4)), r"x must have shape \(1, 3\), got \(1, 4\)"),
        (np.zeros(3), r"x must have shape \(1, 3\), got \(3,\)"),
        (np.zeros((1, 3), "U1"), "x must be numbers, got <U1"),
        (np.zeros((1, 3), object), "x must be numbers, got object"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(x, message):
    with pytest.raises(ValueError, match=message):
        Interpreter(program_of("mgrade")).step(x)


@pytest.mark.parametrize("x", [np.zeros(3), np.zeros((1, 3)), np.zeros((1, 1, 1, 3))])
def test_a_sequence_has_three_axes(x):
    with pytest.raises(ValueError, match=r"x must be \(streams, time, inputs\), got shape"):
        Interpreter(program_of("mgrade")).run(x)


# What it remembers


def test_what_a_program_remembers():
    lag = np.array([[0, 4], [2, 1]])
    ops = (
        Op("taps", (0,), {"weight": np.ones((2, 2), np.float32), "lag": lag.astype(np.uint16)}),
        Op("rotate", (1,), {"decay": np.ones((1, 2), np.float32)}),
        Op("gated", (2, 2)),
        Op("mean", (3,)),
    )
    program = Program(2, False, ops)
    assert program.state(0) == (StatePart("line", (5, 2), "float32"),)
    assert program.state(1) == program.state(2) == (StatePart("hidden", (2,), "float32"),)
    assert program.state(3) == (StatePart("total", (2,), "float64"), StatePart("steps", (), "uint32"))
    assert program.state_bytes == 4 * (10 + 2 + 2) + 8 * 2 + 4
    assert program.widths == (2, 2, 2, 2, 2)
    assert program.parameter_bytes == 4 * 4 + 2 * 4 + 4
    far = ops[0].with_arrays(lag=np.array([[0, 256], [2, 1]], np.uint16))
    assert Program(2, False, (far, *ops[1:])).parameter_bytes == 4 * 4 + 2 * 4 + 4 * 2


@pytest.mark.parametrize(
    ("precision", "state_bits", "kept"),
    [("int16", 16, "int16"), ("int16", 32, "int32"), ("int8", 16, "int16"), ("int8", 32, "int32")],
)
def test_a_recurrent_state_has_the_bits_it_was_given(precision, state_bits, kept):
    program = integer(program_of("mingru"), precision, state_bits)
    (index, *_) = (index for index, op in enumerate(program.ops) if op.kind == "gated")
    assert program.state(index) == (StatePart("hidden", (6,), kept),)


# The page


def test_the_page_names_every_operation_array_number_and_state():
    said = set(re.findall(r"`(\w+)`", DOCS))
    states = {"line", "age", "hidden", "total", "steps"}
    arrays = {name for spec in SPECS.values() for name in (*spec.arrays, *spec.integer)}
    numbers = {name for spec in SPECS.values() for name in (*spec.numbers, *spec.integer_numbers)}
    assert arrays == INTEGER_DTYPES.keys() | {"lag"}
    assert numbers == NUMBER_RANGES.keys()
    for name in (*SPECS, *arrays, *numbers, *states, *PRECISIONS, *FIELDS, *OP_FIELDS, FORMAT.split("-")[1]):
        assert name in said or f'"{name}"' in DOCS, f"docs/program.md does not mention {name}"


@pytest.mark.parametrize("kind", SPECS)
def test_the_page_has_the_arrays_of_an_operation_in_its_row(kind):
    (row, *_) = (line for line in DOCS.splitlines() if line.startswith(f"| `{kind}` |"))
    for name in SPECS[kind].arrays:
        assert f"`{name}`" in row
    if SPECS[kind].integer_numbers:
        rows = [line for line in DOCS.splitlines() if line.startswith("| ") and f"`{kind}`" in line.split("|")[1]]
        assert any(all(f"`{name}`" in line for name in SPECS[kind].integer_numbers) for line in rows)


def test_the_page_has_the_dtypes_in_its_table():
    table = [row.split("|") for row in DOCS[DOCS.index("| what | dtype |") :].splitlines() if row.startswith("| `")]
    special = {(f"`{name}` of `{kind}`", dtype) for (kind, name), dtype in SPECIAL_DTYPES.items()}
    for name, dtype in {*INTEGER_DTYPES.items(), *special}:
        said = [of.strip() for _, what, of, _ in table if name.strip("`") in what]
        assert any(re.match(rf"{dtype}\b", of) for of in said), f"{name} is not {dtype}"


def test_the_page_shows_a_description_as_it_is():
    example = json.loads(re.search(r"```json\n(.*?)```", DOCS, re.DOTALL)[1])
    assert list(example) == list(FIELDS)
    assert all(list(op) == list(OP_FIELDS) for op in example["ops"])
    assert f"`{FORMAT}`" in DOCS
    assert f"`version`, which is `{VERSION}`" in DOCS


@pytest.mark.parametrize("name", ["down", "mix_down", "bias_up", "one", "extra", "scale_shift", "weight_shift"])
def test_the_page_has_the_limits_of_numbers(name):
    low, high = NUMBER_RANGES[name]
    limits = DOCS[DOCS.index("## Limits") :].replace("\n  ", " ")
    assert re.search(rf"`{name}`(?: and `\w+`)? {low} to {high}\b", limits)
