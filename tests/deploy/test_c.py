"""C is what the interpreter is: to the bit for whole numbers, to rounding for float32."""

import ctypes
import itertools
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.programs import (
    C99,
    PRECISIONS,
    PRESETS,
    QUICK,
    READOUTS,
    assert_as_interpreted,
    assert_close,
    assert_same,
    configs,
    driven,
    every_compiler,
    inputs_for,
    integer,
    perturbed,
    program_of,
    random_program,
)
from mgrade.deploy import Interpreter, Op, Program, compile, from_model, optimise, print_c
from mgrade.deploy.c.host import FAST, WARNINGS
from mgrade.deploy.interpreter import MOST_STEPS
from mgrade.deploy.specs import SPECS

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")

PLAIN = ("-U__SSE2__", "-U__AVX__", "-U__AVX512F__", "-U__aarch64__")
"""Without the vectors that a microcontroller lacks."""
FLAGS = {
    "slow": ("-O0",),
    "fast": FAST,
    "plain": ("-O2", *PLAIN),
    "loose": ("-Os", "-ffast-math"),
    "loose-plain": ("-O2", "-ffast-math", *PLAIN),
}
CHOICES = [("float32", 0), *itertools.product(PRECISIONS, (16, 32))]


def in_precision(program, precision, state_bits=32):
    return program if precision == "float32" else integer(program, precision, state_bits or 32)


# The same numbers


@given(config=configs(), seed=st.integers(0, 1000), snap=st.booleans(), kind=st.sampled_from(CHOICES))
@settings(max_examples=28)
def test_a_compiled_program_gives_what_the_interpreter_gives(config, seed, snap, kind):
    program = optimise(from_model(perturbed(config, seed), snap=snap))
    assert_same(in_precision(program, *kind), seed=seed)


@pytest.mark.parametrize(("precision", "state_bits"), CHOICES)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_compiles(preset, precision, state_bits):
    readout = READOUTS[PRESETS.index(preset) % 4]
    assert_same(in_precision(program_of(preset, inputs=1, readout=readout), precision, state_bits))


@pytest.mark.parametrize("precision", ["float32", *PRECISIONS])
def test_programs_that_no_model_leads_to_compile_as_well(precision):
    programs = [random_program(seed, precision) for seed in range(9)]
    assert {op.kind for program in programs for op in program.ops} == SPECS.keys()
    for seed, program in enumerate(programs):
        assert_same(program, seed=seed)


LONG = {
    "mgrade": ("float32", {"preset": "mgrade", "inputs": 1}),
    "mgrade-snapped-mean": ("int16", {"preset": "mgrade", "inputs": 1, "snap": True, "readout": "mean"}),
    "mingru-sum": ("float32", {"preset": "mingru", "readout": "sum"}),
    "dcls-tokens": ("int8", {"preset": "dcls", "tokens": True, "snap": True}),
    "tcn-last": ("int16", {"preset": "tcn", "readout": "last"}),
    "lru-mean": ("float32", {"preset": "lru", "readout": "mean"}),
    "lru_dcls-sum": ("int8", {"preset": "lru_dcls", "readout": "sum", "snap": True}),
}


@pytest.mark.parametrize(("precision", "fields"), LONG.values(), ids=LONG)
def test_after_10000_steps_it_is_still_the_same(precision, fields):
    assert_same(in_precision(program_of(depth=1, dim=4, max_delay=37, **fields), precision), 10_000)


@pytest.mark.parametrize("precision", ["float32", "int16"])
@pytest.mark.parametrize("inputs", [1, 3])
@pytest.mark.parametrize("snap", [False, True])
def test_delays_that_a_byte_does_not_hold(precision, inputs, snap):
    program = in_precision(program_of(dim=4, inputs=inputs, max_delay=700, snap=snap), precision)
    assert max(op.arrays["lag"].max() for op in program.ops if "lag" in op.arrays) > 255
    assert program.lag_dtype == "uint16"
    assert_same(program, 1500)


@every_compiler
@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
def test_whatever_the_compiler_makes_of_it(tmp_path, cc, flags):
    """Whole numbers are the same to the bit; float32 to rounding, even where the compiler may do as it likes."""
    # it warns of machines with AVX10, whatever the program
    quiet = ("-Wno-invalid-feature-combination",) if cc == "clang-19" else ()
    for program in (program_of("lru_dcls", dim=70, depth=1), integer(program_of("mgrade", dim=37, depth=1, inputs=1))):
        x = inputs_for(program, 1, 60)
        # not in this process, which -ffast-math would change
        y = driven(tmp_path, program, x[0], cc, *C99, *quiet, *flags)
        assert_as_interpreted(program, y, Interpreter(program).run(x)[0])


@pytest.mark.parametrize("precision", ["float32", *PRECISIONS])
def test_a_step_at_a_time_is_the_same_as_many(precision):
    program = in_precision(program_of("mgrade", readout="mean"), precision)
    x, compiled = inputs_for(program, 1, 30)[0], compile(program, flags=QUICK)
    whole = compiled.run(x)
    compiled.reset()
    assert np.array_equal(np.stack([compiled.step(x_t) for x_t in x]), whole)


@pytest.mark.parametrize("precision", ["float32", *PRECISIONS])
@pytest.mark.parametrize("preset", ["mgrade", "lru_dcls"])
def test_streams_that_take_turns_do_not_meet(preset, precision):
    program = in_precision(program_of(preset, readout="mean", inputs=1), precision)
    x, compiled = inputs_for(program, 3, 60), compile(program, flags=QUICK)
    alone = []
    for row in x:
        compiled.reset()
        alone.append(compiled.run(row))
    states = [ctypes.create_string_buffer(b"\xff" * len(compiled.state), len(compiled.state)) for _ in x]
    outputs = [[] for _ in x]
    for compiled.state in states:
        compiled.reset()
    turns = np.random.default_rng(0).permutation(np.repeat(np.arange(3), 60))
    for stream in turns:
        compiled.state = states[stream]
        outputs[stream].append(compiled.step(x[stream, len(outputs[stream])]))
    assert np.array_equal(np.array(outputs), np.array(alone))


@pytest.mark.parametrize("precision", ["float32", *PRECISIONS])
@pytest.mark.parametrize("preset", ["mgrade", "tcn", "lru"])
def test_after_a_reset_it_is_as_at_first(preset, precision):
    program = in_precision(program_of(preset, readout="sum", inputs=1), precision)
    x, compiled = inputs_for(program, 1, 40)[0], compile(program, flags=QUICK)
    first = compiled.run(x)
    assert not np.array_equal(compiled.run(x), first)
    compiled.reset()
    assert np.array_equal(compiled.run(x), first)


@pytest.mark.parametrize("kind", ["gated", "rotate"])
def test_a_state_may_be_the_output(kind):
    arrays = {"decay": np.array([[0.5, 0.3]], np.float32)} if kind == "rotate" else {}
    program = Program(2, False, (Op(kind, (0,) * len(SPECS[kind].args), arrays),))
    assert_same(program)


def test_a_program_may_remember_nothing():
    program = program_of("mgrade", conv="none", recurrence="none")
    assert program.state_bytes == 0
    assert_same(program)


def test_the_bias_counts_for_as_long_as_the_stream_goes_on():
    """Beyond the 2^16 steps that its age is counted to."""
    floats = program_of("dcls", depth=1, inputs=1, outputs=2, snap=True)
    assert "taps_input" in [op.kind for op in floats.ops]
    for program in (floats, integer(floats)):
        x, compiled, interpreter = inputs_for(program, 1, 20), compile(program, flags=QUICK), Interpreter(program)
        silent = np.zeros((70_000, 1), np.int64)
        compiled.run(silent)
        interpreter.count = len(silent)
        assert_as_interpreted(program, compiled.run(x[0]), interpreter.run(x)[0])


def pooled(kind, precision, total, *more):
    """A program that pools two inputs, compiled and interpreted, both with something in their state."""
    exponents = () if precision == "float32" else (3, 3)
    program = Program(2, False, (Op(kind, (0,)),), precision, exponents)
    compiled, interpreter = compile(program, flags=QUICK), Interpreter(program)
    values = [total, *more]
    parts = program.state(0)
    layout = np.dtype([(part.name, part.dtype, part.shape) for part in parts])
    state = np.zeros(1, layout)
    for part, value in zip(parts, values, strict=True):
        state[part.name] = interpreter.state[0][part.name][:] = value
    compiled.state[: layout.itemsize] = state.tobytes()
    return program, compiled, interpreter, lambda: np.frombuffer(compiled.state, layout, 1)[0]


@pytest.mark.parametrize("precision", ["float32", "int16"])
@pytest.mark.parametrize("steps", [1 << 24, MOST_STEPS - 4, MOST_STEPS - 3, MOST_STEPS, MOST_STEPS + 1])
@pytest.mark.parametrize("means", [(-123, 456), (-32768, 32767)])
def test_a_mean_over_very_many_steps(precision, steps, means):
    """Where a float32 no longer counts, and where the past is halved; the largest means too."""
    means = np.array(means)
    program, compiled, interpreter, state = pooled("mean", precision, means * steps, steps)
    x = inputs_for(program, 1, 4)
    expected = interpreter.run(x)
    assert_as_interpreted(program, compiled.run(x[0]), expected[0])
    assert_close(expected[0, 0], means, 1e-3)
    counted = steps + 4 if steps <= MOST_STEPS - 4 else MOST_STEPS // 2 + min(4, steps + 4 - MOST_STEPS)
    assert interpreter.state[0]["steps"] == state()["steps"] == counted


@pytest.mark.parametrize("kind", ["mean", "sum"])
def test_totals_of_very_many_steps_still_grow(kind):
    """By what single precision has no room for beside them."""
    steps, mean = 10**7, np.array([3.3, -0.3])
    _, compiled, interpreter, state = pooled(kind, "float32", steps * mean, *[steps] * (kind == "mean"))
    x = np.tile(mean, (4000, 1)).astype(np.float32)
    expected = mean if kind == "mean" else (steps + 4000) * mean
    for last in (interpreter.run(x[None])[0, -1], compiled.run(x)[-1]):
        assert_close(last, expected, 1e-6)
    np.testing.assert_array_equal(state()["total"], interpreter.state[0]["total"][0])
    assert_close(state()["total"], (steps + 4000) * mean, 1e-9)


def test_a_sum_is_held_at_the_end_of_its_bits():
    top = (1 << 31) - 1
    _, compiled, interpreter, state = pooled("sum", "int16", np.array([top - 40_000, 40_000 - top]))
    x = np.array([[30_000, -30_000], [30_000, -30_000], [-1, 1]])
    expected = [[top - 10_000, 10_000 - top], [top, -top], [top - 1, 1 - top]]
    assert interpreter.run(x[None])[0].tolist() == compiled.run(x).tolist() == expected
    assert state()["total"].tolist() == expected[-1]


@pytest.mark.parametrize("flags", [QUICK, (*QUICK, *PLAIN)], ids=["vectors", "plain"])
def test_activations_are_right_to_a_few_parts_in_ten_million(flags):
    x = np.concatenate([np.linspace(-87, 87, 8000), 10.0 ** np.linspace(-30, 1, 200)]).astype(np.float32)
    real = x.astype(np.float64)
    program = Program(4, False, (Op("glu", (0, 0)),))
    rows = np.resize(x, (len(x) // 4 + 1, 4))
    y = compile(program, flags=flags).run(rows).ravel()[: len(x)]
    assert np.abs(y * (1 + np.exp(-real)) / real - 1).max() < 5e-7


def test_a_norm_is_right_to_a_part_in_a_million():
    arrays = {"scale": np.ones(2, np.float32), "shift": np.zeros(2, np.float32)}
    program = Program(2, False, (Op("norm", (0,), arrays, {"eps": 1e-12}),))
    half = 10.0 ** np.linspace(-7, 18, 2001).astype(np.float32)
    y = compile(program, flags=QUICK).run(np.stack([half, -half], 1))
    real = half.astype(np.float64)
    assert np.abs(y[:, 0] / (real / np.sqrt(real**2 + 1e-12)) - 1).max() < 1e-6


# What it refuses


def test_inputs_are_checked_as_the_interpreter_checks_them():
    values, tokens, whole = program_of("mgrade"), program_of("mgrade", tokens=True), integer(program_of("mgrade"))
    for program, x, message in [
        (values, np.zeros((5, 2)), r"x must have shape \(5, 3\), got \(5, 2\)"),
        (values, np.zeros(3), r"x must have shape \(3, 3\), got \(3,\)"),
        (values, np.array(1.0), r"x must have shape"),
        (values, np.zeros((5, 3), complex), "x must be numbers, got complex128"),
        (tokens, np.array([0, 3]), "x must hold token ids from 0 to 2"),
        (tokens, np.array([0, -1]), "x must hold token ids from 0 to 2"),
        (tokens, np.array([0.0]), "x must be whole numbers, got float64"),
        (whole, np.zeros((5, 3)), "x must be whole numbers, got float64"),
    ]:
        with pytest.raises(ValueError, match=message):
            compile(program, flags=("-O0",)).run(x)
        with pytest.raises(ValueError, match="x must"):
            Interpreter(program).run(np.asarray(x)[None])


def test_whole_numbers_beyond_their_bits_are_the_largest_there_are():
    program = integer(program_of("mgrade"))
    compiled = compile(program, flags=("-O0",))
    far = compiled.run(np.array([[40_000, -40_000, 1 << 40]]))
    compiled.reset()
    assert np.array_equal(compiled.run(np.array([[32_767, -32_768, 32_767]])), far)
    assert np.array_equal(Interpreter(program).run(np.array([[[40_000, -40_000, 1 << 40]]]))[0], far)


def test_a_compiler_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="no C compiler found: no-such-compiler is not installed"):
        compile(program_of("mgrade"), cc="no-such-compiler")


def test_warnings_stop_tests_and_nobody_else(monkeypatch):
    program, picky = program_of("mgrade"), (*QUICK, "-Wtraditional")
    with pytest.raises(RuntimeError, match="traditional"):
        compile(program, cc="gcc", flags=picky)
    monkeypatch.setattr("mgrade.deploy.c.host.WARNINGS", WARNINGS)
    assert_same(program, flags=picky)


def test_what_a_compiler_says_is_passed_on():
    with pytest.raises(RuntimeError, match="no-such-flag"):
        compile(program_of("mgrade"), flags=("-fno-such-flag",))


@pytest.mark.parametrize(
    "name", ["", "Model", "1st", "a-b", "a b", "é", "a\nb", "mg_x", "mgrade", "main", "string", "stdint", "x" * 41]
)
def test_names_that_c_or_the_files_cannot_have_are_refused(name):
    with pytest.raises(ValueError, match="name must"):
        print_c(program_of("mgrade"), name)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (np.zeros((0, 3)), "test must hold at least one step"),
        (np.zeros((2, 4)), "x must have shape"),
        (np.full((2, 3), np.nan), "test must hold inputs that are finite"),
        (np.full((2, 3), np.inf), "test must hold inputs that are finite"),
        (np.full((2, 3), 1e39), "test must hold inputs that are finite"),
    ],
)
def test_a_test_vector_is_made_of_numbers(test, message):
    with pytest.raises(ValueError, match=message):
        print_c(program_of("mgrade"), "model", test)
