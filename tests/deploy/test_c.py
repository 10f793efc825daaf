"""C is what the interpreter is: to the bit for whole numbers, to rounding for float32; and it is decent C."""

import ctypes
import itertools
import re
import shutil
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.programs import (
    PRECISIONS,
    PRESETS,
    QUICK,
    READOUTS,
    assert_as_interpreted,
    assert_close,
    configs,
    every_compiler,
    inputs_for,
    inputs_of,
    integer,
    perturbed,
    program_of,
    random_program,
    run,
    write_c,
)
from mgrade.deploy import Interpreter, Op, Program, compile, from_model, optimise, print_c
from mgrade.deploy.c.host import WARNINGS
from mgrade.deploy.interpreter import MOST_STEPS
from mgrade.deploy.program import SPECS

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")

C99 = ("-std=c99", *WARNINGS)
PLAIN = ("-U__SSE2__", "-U__AVX__", "-U__AVX512F__", "-U__aarch64__")
"""Without the vectors that a microcontroller lacks."""
FLAGS = {
    "slow": ("-O0",),
    "fast": ("-O3", "-march=native"),
    "plain": ("-O2", *PLAIN),
    "loose": ("-Os", "-ffast-math"),
    "loose-plain": ("-O2", "-ffast-math", *PLAIN),
}
CHOICES = [("float32", 0), *itertools.product(PRECISIONS, (16, 32))]


def in_precision(program, precision, state_bits=32):
    return program if precision == "float32" else integer(program, precision, state_bits or 32)


def assert_same(program, time=40, seed=0, flags=QUICK):
    x = inputs_for(program, 1, time, seed)
    assert_as_interpreted(program, compile(program, flags=flags).run(x[0]), Interpreter(program).run(x)[0])


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


@every_compiler
@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
def test_whatever_the_compiler_makes_of_it(tmp_path, cc, flags):
    """Whole numbers are the same to the bit; float32 to rounding, even where the compiler may do as it likes."""
    for program in (program_of("lru_dcls", dim=70, depth=1), integer(program_of("mgrade", dim=37, depth=1, inputs=1))):
        x = inputs_for(program, 1, 60)
        y = driven(tmp_path, program, x[0], cc, *C99, *flags)  # not in this process, which -ffast-math would change
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
def test_a_mean_over_very_many_steps(precision, steps):
    """Where a float32 no longer counts, and where the past is halved."""
    means = np.array([-123, 456])
    program, compiled, interpreter, state = pooled("mean", precision, means * steps, steps)
    x = inputs_for(program, 1, 4)
    expected = interpreter.run(x)
    assert_as_interpreted(program, compiled.run(x[0]), expected[0])
    assert_close(expected[0, 0], means, 1e-3)
    counted = steps + 4 if steps <= MOST_STEPS - 4 else MOST_STEPS // 2 + min(4, steps + 4 - MOST_STEPS)
    assert interpreter.state[0]["steps"] == state()["steps"] == counted


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


# Decent C

KINDS = {
    "float": lambda: program_of("mgrade", readout="mean", inputs=1),
    "float-lru": lambda: program_of("lru_dcls", readout="sum", tokens=True),
    "float-stateless": lambda: program_of("mgrade", conv="none", recurrence="none"),
    "int16": lambda: integer(program_of("mgrade", readout="mean", inputs=1)),
    "int8": lambda: integer(program_of("lru_dcls", tokens=True), "int8", 16),
    "random-int16": lambda: random_program(3, "int16"),
}
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


@every_compiler
@every_kind
def test_no_compiler_has_anything_to_say(tmp_path, cc, make):
    program = make()
    write_c(tmp_path, program, test=inputs_for(program, 1, 5)[0])
    done = run(tmp_path, cc, *C99, "-Wshadow", "-Wstrict-prototypes", "-Wvla", "-O2", "model.c", "main.c", "-o", "main")
    assert not done.stderr


@every_kind
def test_nothing_is_needed_but_memcpy_and_memset(tmp_path, make):
    write_c(tmp_path, make())
    run(tmp_path, "gcc", *C99, "-O2", "-fno-stack-protector", "-c", "model.c")
    symbols = run(tmp_path, "nm", "model.o").stdout.decode()
    undefined = set(re.findall(r" U (\w+)", symbols))
    assert undefined <= {"memcpy", "memset"}
    assert set(re.findall(r" T (\w+)", symbols)) == {"model_init", "model_step"}


@every_kind
def test_there_are_no_variables_but_those_the_caller_owns(tmp_path, make):
    write_c(tmp_path, make())
    run(tmp_path, "gcc", *C99, "-O2", "-c", "model.c")
    symbols = run(tmp_path, "nm", "model.o").stdout.decode()
    assert not re.findall(r" [bBdDgGsSC] \w+", symbols)
    sizes = run(tmp_path, "size", "-A", "model.o").stdout.decode()
    assert all(int(size) == 0 for size in re.findall(r"^\.(?:data|bss)\S*\s+(\d+)", sizes, re.MULTILINE))


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("kind", ["float", "int8"])
def test_a_program_in_c_plus_plus_can_call_it(tmp_path, kind):
    program = KINDS[kind]()
    write_c(tmp_path, program)
    (tmp_path / "main.cpp").write_text("""
        #include "model.h"
        int main() {
            static model_state state;
            model_input x[MODEL_INPUTS] = {};
            model_output y[MODEL_OUTPUTS];
            model_init(&state);
            model_step(&state, x, y);
            return 0;
        }""")
    run(tmp_path, "gcc", *C99, "-c", "model.c")
    run(tmp_path, "g++", "-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "main.cpp", "model.o", "-o", "main")
    run(tmp_path, "./main")


def test_two_models_live_in_one_program(tmp_path):
    write_c(tmp_path, integer(program_of("mgrade")), "one")
    write_c(tmp_path, integer(program_of("mgrade"), "int8"), "two")
    write_c(tmp_path, program_of("lru"), "three")
    (tmp_path / "main.c").write_text("""
        #include "one.h"
        #include "two.h"
        #include "three.h"
        static one_state a; static two_state b; static three_state c;
        int main(void) { one_init(&a); two_init(&b); three_init(&c); return 0; }""")
    run(tmp_path, "gcc", *C99, "main.c", "one.c", "two.c", "three.c", "-o", "main")
    run(tmp_path, "./main")


@every_kind
def test_the_example_runs_its_test_vector(tmp_path, make):
    program = make()
    write_c(tmp_path, program, test=inputs_for(program, 1, 32)[0])
    run(tmp_path, "gcc", *C99, "-O1", "model.c", "main.c", "-o", "main")
    said = run(tmp_path, "./main").stdout.decode()
    assert said.startswith("32 steps, ")
    if program.integer:
        assert "off by 0 at most" in said


def test_the_example_holds_for_large_outputs(tmp_path):
    """What counts is the share of the largest: a sum of thousands is off by more than a logit."""
    program = program_of("mgrade", readout="sum")
    write_c(tmp_path, program, test=1e4 * inputs_of(program, 1, 500)[0])
    run(tmp_path, "gcc", *C99, "-O1", "model.c", "main.c", "-o", "main")
    run(tmp_path, "./main")


@pytest.mark.parametrize("kind", ["float", "int16"])
@pytest.mark.parametrize("change", ["weights", "nan"])
def test_the_example_fails_where_outputs_are_wrong(tmp_path, kind, change):
    program = KINDS[kind]()
    write_c(tmp_path, program, test=inputs_for(program, 1, 32)[0])
    source = (tmp_path / "model.c").read_text()
    if change == "weights":
        changed = re.sub(r"(a0\[\d+\] = \{[^\n]*\n\s+)(\S+),", r"\g<1>1,", source, count=1)
    else:
        nothing = "0.0f / 0.0f" if kind == "float" else "31"
        changed = source.rstrip("}\n") + f"    output[0] = {nothing};\n}}\n"
    assert changed != source
    (tmp_path / "model.c").write_text(changed)
    run(tmp_path, "gcc", "-std=c99", "-O1", "model.c", "main.c", "-o", "main")
    assert subprocess.run(["./main"], cwd=tmp_path, capture_output=True).returncode == 1


@every_kind
def test_a_state_takes_what_it_says_and_the_places_in_its_lines(tmp_path, make):
    program = make()
    write_c(tmp_path, program)
    lines = sum(part.name == "line" for index in range(len(program.ops)) for part in program.state(index))
    exact = max(program.state_bytes + 2 * lines, 1)
    assert exact <= len(compile(program, flags=("-O0",)).state) <= exact + 7
    assert f"{program.state_bytes} bytes of state" in (tmp_path / "model.h").read_text()


def test_weights_that_are_equal_are_there_once():
    weight = np.arange(4, dtype=np.float32).reshape(2, 2)
    same = Op("linear", (0,), {"weight": weight + weight.T, "bias": np.zeros(2, np.float32)})
    program = Program(2, False, (same, same, Op("add", (1, 2))))
    source = print_c(program)["model.c"]
    assert len(re.findall(r"^MGRADE_WEIGHTS ", source, re.MULTILINE)) == 2
    assert_same(program)


def test_weights_are_printed_to_the_last_bit():
    weight = np.array([1e-45, 1.17549435e-38, 3.4028235e38, -0.0, 0.1, 1 / 3, 16777217, -1e-10], np.float32)
    program = Program(8, False, (Op("scale", (0,), {"weight": weight}),))
    y = compile(program, flags=QUICK).run(np.ones((1, 8)))
    assert y[0].tobytes() == weight.tobytes()


# Whatever comes in

DRIVER = """
#include <stdio.h>
#include <stdlib.h>
#include "model.h"
int main(void) {
    model_state *state = malloc(sizeof *state);
    model_input *x = malloc(sizeof *x * MODEL_INPUTS);
    model_output *y = malloc(sizeof *y * MODEL_OUTPUTS);
    model_init(state);
    while (fread(x, sizeof *x, MODEL_INPUTS, stdin) == MODEL_INPUTS) {
        model_step(state, x, y);
        fwrite(y, sizeof *y, MODEL_OUTPUTS, stdout);
    }
    free(state);
    free(x);
    free(y);
    return 0;
}
"""
SANITISED = ("-std=c99", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def sanitised(folder, program, x):
    """What a program gives that stops at the first thing it must not do."""
    return driven(folder, program, x, "gcc", *SANITISED)


def driven(folder, program, x, *command):
    """What a program of its own gives for inputs (time, inputs)."""
    write_c(folder, program)
    (folder / "driver.c").write_text(DRIVER)
    run(folder, *command, "model.c", "driver.c", "-o", "driver")
    kind = np.dtype("uint16" if program.tokens else program.precision)
    pooled = program.integer and program.ops[-1].kind in ("mean", "sum")
    y = run(folder, "./driver", data=x.astype(kind).tobytes()).stdout
    return np.frombuffer(y, "int32" if pooled else program.precision).reshape(len(x), program.outputs)


def extremes(program, time):
    """The largest and the smallest, alone and mixed."""
    half, rng = 1 << (8 * np.dtype(program.precision).itemsize - 1), np.random.default_rng(0)
    x = rng.choice([-half, 1 - half, -1, 0, 1, half - 1], (time, program.inputs))
    x[: time // 4], x[time // 4 : time // 2] = -half, half - 1
    return x


@pytest.mark.parametrize("precision", PRECISIONS)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=9)
def test_no_integer_program_that_is_allowed_overflows(tmp_path_factory, precision, seed):
    program = random_program(seed, precision)
    x = inputs_of(program, 1, 30)[0] if program.tokens else extremes(program, 30)
    y = sanitised(tmp_path_factory.mktemp("c"), program, x)
    assert_as_interpreted(program, y, Interpreter(program).run(x[None])[0])


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("preset", ["mgrade", "lru_dcls"])
def test_the_largest_whole_numbers_do_no_harm(tmp_path, preset, precision):
    program = integer(program_of(preset, inputs=1, readout="sum"), precision)
    x = extremes(program, 400)
    assert_as_interpreted(program, sanitised(tmp_path, program, x), Interpreter(program).run(x[None])[0])


def test_sums_of_as_many_terms_as_allowed_fit_in_32_bits(tmp_path):
    """512 products of the largest weight and the largest value, over which nothing may run."""
    n, bias = 512, np.full(1, 511, np.int16)
    arrays = {"weight": np.full((1, n), 127, np.int8), "bias": bias, "multiplier": np.full(1, 32767, np.int16)}
    up = 15
    assert 511 << up <= (1 << 31) - 1 - 127 * 32768 * n < 513 << up
    linear = Op("linear", (0,), arrays, {"down": 17, "bias_up": up})
    norm = Op("norm", (0,), {"scale": np.full(n, 32767, np.int16), "shift": np.full(n, 32767, np.int16)})
    norm = Op("norm", (0,), norm.arrays, {"epsilon": 1 << 56, "scale_shift": 1})
    taps = {"weight": np.full((n, 512), -127, np.int8), "lag": np.tile(np.arange(512, dtype=np.uint16), (n, 1))}
    delays = Op("taps", (2,), {**taps, "multiplier": np.full(n, 32767, np.int16)}, {"down": 17})
    program = Program(n, False, (linear, norm, delays), "int16", (0, 0, 0, 0))
    x = extremes(program, 24)
    assert_as_interpreted(program, sanitised(tmp_path, program, x), Interpreter(program).run(x[None])[0])


STRANGE = [np.nan, np.inf, -np.inf, 3.4028235e38, -3.4028235e38, 1e30, -1e20, 1e-45, -1e-45, 1e-38, 0.0, -0.0, 1.0, 1e4]


@pytest.mark.parametrize("kind", ["float", "float-lru", "float-stateless", "wide"])
def test_strange_floats_do_no_harm(tmp_path, kind):
    program = program_of("mgrade", dim=70, depth=1, readout="sum") if kind == "wide" else KINDS[kind]()
    rng = np.random.default_rng(0)
    x = inputs_of(program, 1, 200)[0]
    x = x if program.tokens else rng.choice(STRANGE, x.shape).astype(np.float32)
    assert sanitised(tmp_path, program, x).shape == (200, program.outputs)


def test_a_value_that_is_too_large_is_forgotten_as_the_interpreter_forgets_it():
    """A norm of values whose square is infinite is its shift, and not what is not a number."""
    program = program_of("tcn", norm="pre", skips=())
    x = inputs_of(program, 1, 60)
    x[0, 10] = 1e25
    expected = Interpreter(program).run(x)[0]
    assert np.isfinite(expected).all()
    assert_close(compile(program, flags=QUICK).run(x[0]), expected)


@pytest.mark.parametrize("x", [np.nan, np.inf, -np.inf])
def test_what_is_not_a_number_stays_so(x):
    program = program_of("mingru", readout="every")
    y = compile(program, flags=QUICK).run(np.full((3, 3), x))
    assert np.isnan(y).all()
    assert np.isnan(Interpreter(program).run(np.full((1, 3, 3), x))).all()


def test_a_token_that_does_not_exist_counts_as_the_first(tmp_path):
    program = program_of("mgrade", tokens=True)
    x, known = np.array([1, 60_000, 2, 3, 65_535]), np.array([1, 0, 2, 0, 0])
    assert_close(sanitised(tmp_path, program, x), Interpreter(program).run(known[None])[0])
