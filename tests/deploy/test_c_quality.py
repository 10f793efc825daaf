"""The C that is printed is decent: quiet compilers, nothing needed, nothing kept, no harm from whatever comes in."""

import platform
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.programs import (
    C99,
    PRECISIONS,
    QUICK,
    assert_as_interpreted,
    assert_close,
    assert_same,
    driven,
    every_compiler,
    inputs_for,
    inputs_of,
    integer,
    program_of,
    random_program,
    run,
    write_c,
)
from mgrade.deploy import Interpreter, Op, Program, compile, print_c

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")

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
    more = ("-Wshadow", "-Wstrict-prototypes", "-Wvla", "-Wsign-conversion", "-Wfloat-equal", "-Wdouble-promotion")
    for machine in ((), ("-march=native",)):
        assert not run(tmp_path, cc, *C99, *more, *machine, "-O2", "model.c", "main.c", "-o", "main").stderr


@pytest.mark.parametrize("dim", [65, 100])
def test_widths_that_blocks_do_not_fill_draw_no_warning(tmp_path, dim):
    """GCC 12 takes a block that a known width leaves out for one that runs beyond it."""
    write_c(tmp_path, program_of("dcls", dim=dim, mlp="none", max_delay=3, taps=1, sigma=0.8))
    assert not run(tmp_path, "gcc", *C99, "-O2", "-c", "model.c").stderr


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
    assert run(tmp_path, "./main").returncode == 0


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
    assert run(tmp_path, "./main").returncode == 0


@every_kind
def test_the_example_runs_its_test_vector(tmp_path, make):
    program = make()
    write_c(tmp_path, program, test=inputs_for(program, 1, 32)[0])
    run(tmp_path, "gcc", *C99, "-O1", "model.c", "main.c", "-o", "main")
    said = run(tmp_path, "./main").stdout.decode()
    assert said.startswith("32 steps, ")
    if program.integer:
        assert "largest error 0," in said


def test_the_example_holds_for_large_outputs(tmp_path):
    """What counts is the share of the largest: a sum of thousands is off by more than a logit."""
    program = program_of("mgrade", readout="sum")
    write_c(tmp_path, program, test=1e4 * inputs_of(program, 1, 500)[0])
    run(tmp_path, "gcc", *C99, "-O1", "model.c", "main.c", "-o", "main")
    assert run(tmp_path, "./main").stdout.startswith(b"500 steps, ")


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
    taken = len(compile(program, flags=("-O0",)).state)
    assert exact <= taken <= exact + 7
    assert f" {taken} bytes of state. */" in (tmp_path / "model.h").read_text()


def test_weights_that_are_equal_are_there_once():
    weight = np.arange(4, dtype=np.float32).reshape(2, 2)
    same = Op("linear", (0,), {"weight": weight + weight.T, "bias": np.zeros(2, np.float32)})
    program = Program(2, False, (same, same, Op("add", (1, 2))))
    source = print_c(program)["model.c"]
    assert len(re.findall(r"^MGRADE_WEIGHTS static const ", source, re.MULTILINE)) == 2
    assert_same(program)


@every_kind
def test_weights_can_be_moved_and_stay_constant(tmp_path, make):
    write_c(tmp_path, make())
    moved = """-DMGRADE_WEIGHTS=__attribute__((section(".rodata.mine")))"""
    gcc = ("gcc", "-std=c99", "-O1", moved, "-c", "model.c", "-o", "model.o")
    subprocess.run(gcc, cwd=tmp_path, check=True)
    symbols = subprocess.run(("nm", "model.o"), cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    kinds = {line.split()[-2] for line in symbols.splitlines() if re.search(r" a\d+$", line)}
    assert kinds == {"r"}


def test_machines_of_the_other_byte_order_take_plain_c(tmp_path):
    if (gcc := shutil.which("arm-none-eabi-gcc")) is None:
        pytest.skip("arm-none-eabi-gcc is not installed")
    write_c(tmp_path, KINDS["int16"]())
    for order, paired in (("-mlittle-endian", True), ("-mbig-endian", False)):
        line = (gcc, "-mcpu=cortex-r5", order, "-std=c99", "-dM", "-E", "model.c")
        seen = subprocess.run(line, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
        assert ("#define MG_DSP " in seen) == paired


@pytest.mark.parametrize("cpu", ["arm926ej-s", "xscale", "cortex-m4", "cortex-m0"])
def test_chips_and_compilers_without_an_instruction_take_plain_c(tmp_path, cpu):
    """ARMv5 has the sums of ARMv7E-M, but not its pairs; GCC below 10 names neither."""
    if (gcc := shutil.which("arm-none-eabi-gcc")) is None:
        pytest.skip("arm-none-eabi-gcc is not installed")
    write_c(tmp_path, KINDS["int16"]())
    older = ("-U__GNUC__", "-D__GNUC__=9")
    for flags, paired in (((), cpu == "cortex-m4"), (older, False)):
        run(tmp_path, gcc, f"-mcpu={cpu}", *flags, *C99, "-O2", "-c", "model.c")
        seen = run(tmp_path, gcc, f"-mcpu={cpu}", *flags, "-std=c99", "-dM", "-E", "model.c").stdout
        assert (b"#define MG_DSP " in seen) == paired


def assert_works_without_vectors(folder, program, *flags):
    write_c(folder, program, test=inputs_for(program, 1, 5)[0])
    assert b"#define MG_LANES" not in run(folder, "gcc", "-std=c99", *flags, "-dM", "-E", "model.c").stdout
    run(folder, "gcc", *C99, *flags, "-O2", "model.c", "main.c", "-o", "main")
    run(folder, "./main")


@every_kind
@pytest.mark.parametrize("flags", [("-U__GNUC__", "-D__GNUC__=8"), ("-DMGRADE_PLAIN",)], ids=["older", "plain"])
def test_the_same_is_made_without_vectors(tmp_path, make, flags):
    assert_works_without_vectors(tmp_path, make(), *flags)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs a processor with x87")
@pytest.mark.parametrize("kind", ["float", "float-lru", "float-stateless"])
def test_numbers_wider_than_float_are_computed_without_vectors(tmp_path, kind):
    assert_works_without_vectors(tmp_path, KINDS[kind](), "-mfpmath=387")


def test_weights_are_printed_to_the_last_bit():
    weight = np.array([1e-45, 1.17549435e-38, 3.4028235e38, -0.0, 0.1, 1 / 3, 16777217, -1e-10], np.float32)
    program = Program(8, False, (Op("scale", (0,), {"weight": weight}),))
    y = compile(program, flags=QUICK).run(np.ones((1, 8)))
    assert y[0].tobytes() == weight.tobytes()


# Whatever comes in

SANITISED = ("-std=c99", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def sanitised(folder, program, x, *more):
    """What a program gives that stops at the first thing it must not do."""
    return driven(folder, program, x, "gcc", *SANITISED, *more)


def has_avx2():
    cpu = Path("/proc/cpuinfo")
    return cpu.exists() and " avx2 " in cpu.read_text()


@pytest.mark.skipif(not has_avx2(), reason="this machine has no AVX2")
@pytest.mark.parametrize(
    "more",
    [("-mavx2",), ("-march=native",), ("-msse4.1",), ("-mavx2", "-DMGRADE_PLAIN")],
    ids=["wide", "newest", "narrow", "plain"],
)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("dim", [16, 33, 70])
def test_whole_numbers_are_the_same_with_and_without_vectors(tmp_path, precision, dim, more):
    """Linear maps, filters, gates and activations wider than a vector, over the largest numbers too."""
    kinds = set()
    for mlp, delays in (("gelu", 9), ("glu", 10)):  # of a filter, two at a time
        program = integer(program_of("mgrade", dim=dim, taps=4, max_delay=delays, sigma=3.0, mlp=mlp), precision)
        kinds |= {op.kind for op in program.ops}
        x = np.concatenate([extremes(program, 20), inputs_for(program, 1, 20)[0]])
        assert_as_interpreted(program, sanitised(tmp_path, program, x, *more), Interpreter(program).run(x[None])[0])
    assert {"filter", "linear", "gated", "gelu", "glu"} <= kinds


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
    vectors = ("-mavx2",) if seed % 2 and has_avx2() else ()
    y = sanitised(tmp_path_factory.mktemp("c"), program, x, *vectors)
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
    arrays = {"weight": np.full((1, n), 127, np.int8), "bias": bias, "multiplier": np.full(1, 255, np.uint8)}
    up = 15
    assert 511 << up <= (1 << 31) - 1 - 127 * 32768 * n < 513 << up
    linear = Op("linear", (0,), arrays, {"down": 17, "bias_up": up})
    norm = Op("norm", (0,), {"scale": np.full(n, 32767, np.int16), "shift": np.full(n, 32767, np.int16)})
    norm = Op("norm", (0,), norm.arrays, {"epsilon": 1 << 56, "scale_shift": 1})
    taps = {"weight": np.full((n, 512), -127, np.int8), "lag": np.tile(np.arange(512, dtype=np.uint16), (n, 1))}
    delays = Op("taps", (2,), {**taps, "multiplier": np.full(n, 255, np.uint8)}, {"down": 17})
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
