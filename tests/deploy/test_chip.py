"""Models in C, written by hand, on emulated chips: outputs to the bit, exact costs, errors that say what happened."""

import itertools
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mgrade.deploy import chip
from mgrade.deploy.chip.build import build
from mgrade.deploy.chip.cores import GCC

ROOT = Path(__file__).parent.parent.parent
CORES = tuple(chip.CORES)
BOTH = list(itertools.product(CORES, chip.COMPILERS))

HEADER = """
#include <stdint.h>
#define TINY_INPUTS {inputs}
#define TINY_OUTPUTS {outputs}
typedef {input} tiny_input;
typedef {output} tiny_output;
typedef struct {{ {state} }} tiny_state;
void tiny_init(tiny_state *state);
void tiny_step(tiny_state *state, const tiny_input *input, tiny_output *output);
"""
FRAME = """
#include "tiny.h"
{before}
void tiny_init(tiny_state *state) {{ {init} }}
void tiny_step(tiny_state *state, const tiny_input *input, tiny_output *output) {{
    (void)state; (void)input; (void)output;
    {step}
}}
"""


def write(folder, step, before="", init="(void)state;", state="int32_t none;", inputs=1, outputs=1, **types):
    """A model `tiny`, of int32_t unless types say otherwise."""
    types = {"input": "int32_t", "output": "int32_t", **types}
    (folder / "tiny.h").write_text(HEADER.format(inputs=inputs, outputs=outputs, state=state, **types))
    (folder / "tiny.c").write_text(FRAME.format(step=step, before=before, init=init))
    return folder


def write_counting(folder):
    """A step of 2 n + 3 instructions for the input n > 0, in 10 bytes."""
    write(folder, "")
    (folder / "tiny.c").write_text("""
        #include "tiny.h"
        void tiny_init(tiny_state *state) { (void)state; }
        __asm__(".section .text.step, \\"ax\\"\\n.syntax unified\\n.thumb\\n.thumb_func\\n.global tiny_step\\n"
                "tiny_step: ldr r3, [r1]\\n1: subs r3, #1\\n bne 1b\\n str r3, [r2]\\n bx lr\\n");\n""")
    return folder


def run(folder, inputs, chip_name="cortex-m4", compiler=None, **options):
    if missing := chip.available(chip_name, compiler):
        pytest.skip(missing)
    return chip.run(folder, "tiny", inputs, chip=chip_name, compiler=compiler, **options)


def column(*values):
    return np.array(values, np.int32)[:, None]


def c_array(values):
    return (
        "{" + ", ".join(c_array(row) if row.ndim else str(row) + "f" * (row.dtype.kind == "f") for row in values) + "}"
    )


def write_float(folder):
    """Three sums over five inputs and the same five of eight steps ago; the weights too."""
    weights = (np.random.default_rng(1).integers(-99, 99, (3, 5)) / 64).astype(np.float32)
    step = """
        float *past = state->line[state->at];
        for (int j = 0; j < TINY_OUTPUTS; j++) {
            float sum = 0.0f;
            for (int k = 0; k < TINY_INPUTS; k++) sum += weight[j][k] * (input[k] + 0.3f * past[k]);
            output[j] = sum;
        }
        memcpy(past, input, sizeof state->line[0]);
        state->at = (state->at + 1) & 7;
    """
    before = f"#include <string.h>\nstatic const float weight[3][5] = {c_array(weights)};"
    fields = {"init": "memset(state, 0, sizeof *state);", "state": "float line[8][5]; uint32_t at;"}
    write(folder, step, before, inputs=5, outputs=3, input="float", output="float", **fields)
    return weights


def float_reference(weights, x):
    """(steps, 5) to (steps, 3), in the order of the C."""
    delayed = np.concatenate([np.zeros((8, 5), np.float32), x])[: len(x)]
    terms = x + np.float32(0.3) * delayed
    sums = np.zeros((len(x), 3), np.float32)
    for k in range(5):
        sums = sums + weights[:, k] * terms[:, k : k + 1]
    return sums


@pytest.mark.parametrize(("name", "compiler"), BOTH)
def test_floats_come_back_to_the_bit(tmp_path, name, compiler):
    weights = write_float(tmp_path)
    x = np.random.default_rng(0).standard_normal((1000, 5)).astype(np.float32)
    measured = run(tmp_path, x, name, compiler, flags=["-ffp-contract=off"])
    assert measured.outputs.dtype == np.float32
    np.testing.assert_array_equal(measured.outputs, float_reference(weights, x))
    assert measured.state_bytes == 8 * 5 * 4 + 4
    assert measured.ram == measured.state_bytes + measured.stack_bytes
    assert measured.static_bytes == 0
    assert 100 < measured.flash < 1500
    assert measured.instructions_min == measured.instructions
    assert 60 < measured.instructions < 300
    assert compiler in measured.compiler
    assert measured.flags[-1] == "-ffp-contract=off"


@pytest.mark.parametrize(("name", "compiler"), BOTH)
def test_integers_come_back_to_the_bit(tmp_path, name, compiler):
    """int8 weights, int16 in and out, rounded and held within their range, and a memory of the last output."""
    weights = np.random.default_rng(1).integers(-127, 128, (16, 24)).astype(np.int8)
    step = """
        for (int j = 0; j < TINY_OUTPUTS; j++) {
            int32_t sum = state->last[j];
            for (int k = 0; k < TINY_INPUTS; k++) sum += weight[j][k] * input[k];
            sum = (int32_t)(((int64_t)sum * 123456789 + (1 << 29)) >> 30);
            sum = sum > 32767 ? 32767 : sum < -32768 ? -32768 : sum;
            state->last[j] = output[j] = (int16_t)sum;
        }
    """
    before = f"static const int8_t weight[16][24] = {c_array(weights)};"
    fields = {"init": "for (int j = 0; j < 16; j++) state->last[j] = 0;", "state": "int16_t last[TINY_OUTPUTS];"}
    write(tmp_path, step, before, inputs=24, outputs=16, input="int16_t", output="int16_t", **fields)
    x = np.random.default_rng(0).integers(-3000, 3000, (50, 24)).astype(np.int16)

    last, expected = np.zeros(16, np.int64), []
    for row in x.astype(np.int64):
        last = np.clip((last + weights.astype(np.int64) @ row) * 123456789 + (1 << 29) >> 30, -32768, 32767)
        expected.append(last)
    measured = run(tmp_path, x, name, compiler)
    assert measured.outputs.dtype == np.int16
    np.testing.assert_array_equal(measured.outputs, expected)
    assert measured.constant_bytes in range(16 * 24, 16 * 24 + 64)  # some of the compilers' own are allowed


def test_tokens_and_sequences(tmp_path):
    """Each sequence begins with a state that init has made."""
    write(tmp_path, "*output = state->sum += *input;", init="state->sum = 7;", state="int32_t sum;", input="uint16_t")
    tokens = np.random.default_rng(0).integers(0, 65536, (4, 30, 1)).astype(np.uint16)
    measured = run(tmp_path, tokens)
    np.testing.assert_array_equal(measured.outputs, 7 + tokens.astype(np.int32).cumsum(1))
    assert measured.counts.shape == (4, 30)
    np.testing.assert_array_equal(run(tmp_path, tokens[2, :, 0]).outputs, measured.outputs[2])


def test_a_state_is_inits_to_fill(tmp_path):
    """What relies on memory that happens to be zero would work here, and not on a stack."""
    write(tmp_path, "*output = state->forgotten;", state="int32_t forgotten;")
    assert run(tmp_path, column(1)).outputs.astype(np.uint32) == 0xA5A5A5A5


def test_more_steps_than_are_transferred_at_once(tmp_path):
    write(tmp_path, "*output = state->sum += *input;", init="state->sum = 0;", state="int32_t sum;")
    x = np.random.default_rng(0).integers(-1000, 1000, (10_000, 1)).astype(np.int32)
    measured = run(tmp_path, x)
    np.testing.assert_array_equal(measured.outputs, x.cumsum(0))
    assert measured.counts.shape == (10_000,)


@pytest.mark.parametrize("name", CORES)
def test_instructions_are_counted_exactly(tmp_path, name):
    n = np.array([1, 2, 3, 10, 999, 123_456, 20_000_000, 1])
    measured = run(write_counting(tmp_path), n.astype(np.int32), name)
    assert measured.counts.tolist() == (2 * n + 3).tolist()
    assert (measured.instructions_min, measured.instructions) == (5, 40_000_003)
    assert measured.stack_bytes == 0


@pytest.mark.parametrize("name", CORES)
def test_two_runs_cost_the_same(tmp_path, name):
    step = "for (uint32_t n = (uint32_t)*input; n; n = n * 3 >> 2) *output += (int32_t)n;"
    write(tmp_path, f"*output = 0; {step}")
    x = np.random.default_rng(0).integers(0, 1 << 20, (500, 1)).astype(np.int32)
    first, second = run(tmp_path, x, name), run(tmp_path, x, name)
    np.testing.assert_array_equal(first.counts, second.counts)
    assert first.instructions_min < first.instructions
    assert (first.flash, first.ram) == (second.flash, second.ram)


@pytest.mark.parametrize("compiler", chip.COMPILERS)
def test_only_what_the_model_uses_is_in_flash(tmp_path, compiler):
    before = """
        static const uint8_t used[4096] = {1, 2, 3};
        const uint8_t unused[4096] = {1, 2, 3};
        int32_t not_called(int32_t x);
        int32_t not_called(int32_t x) { return x / 3 + unused[x]; }
    """
    write(tmp_path, "*output = used[*input & 4095];", before)
    (tmp_path / "main.c").write_text("#error this is the user's")
    measured = run(tmp_path, column(2), compiler=compiler)
    assert measured.outputs == [[3]]
    assert measured.constant_bytes == 4096
    assert 10 <= measured.code_bytes <= 40
    assert measured.flash == measured.code_bytes + measured.constant_bytes


def test_flash_is_what_the_hand_counted_model_has(tmp_path):
    measured = run(write_counting(tmp_path), column(1), compiler="gcc")
    assert measured.flash in range(10 + 2, 10 + 2 + 5)  # init, which returns, and what aligns the two


def test_static_variables_count(tmp_path):
    before = "static int32_t cleared[25]; static int32_t set = 4;"
    write(tmp_path, "cleared[*input & 15] += set++; *output = cleared[1];", before)
    measured = run(tmp_path, column(1, 1, 2))
    assert measured.outputs.ravel().tolist() == [4, 9, 9]
    assert measured.static_bytes == 104
    assert measured.ram == 104 + measured.state_bytes + measured.stack_bytes


@pytest.mark.parametrize("name", CORES)
def test_stack_is_measured(tmp_path, name):
    write(tmp_path, "volatile int32_t local[256]; for (int i = 0; i < 256; i++) local[i] = i; *output = local[*input];")
    measured = run(tmp_path, column(3, 5), name)
    assert measured.outputs.ravel().tolist() == [3, 5]
    assert 1024 <= measured.stack_bytes <= 1024 + 64


FAULTS = {
    "*output = *(volatile int32_t *)0x3F000000;": "access to address 0x3f000000",
    "if (*input == 2) __builtin_trap();": "undefined instruction",
    "volatile char local[1000000]; local[*input] = 1; *output = local[*input];": "the stack overflowed",
}


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize("step", FAULTS)
def test_a_fault_is_an_error_that_says_where(tmp_path, name, step):
    write(tmp_path, step)
    number = 1 if "trap" in step else 0
    with pytest.raises(chip.ChipError, match=f"^{name}: step {number}: {FAULTS[step]}.*$") as caught:
        run(tmp_path, column(1, 2), name)
    if "stack" not in str(caught.value):
        assert "in tiny_step (tiny.c:" in str(caught.value)


def test_a_step_without_end_is_given_up(tmp_path):
    write(tmp_path, "for (;;) *(volatile int32_t *)output = *input;")
    with pytest.raises(chip.ChipError, match=r"cortex-m4: the run did not end within 0\.5 s"):
        run(tmp_path, column(1), timeout=0.5)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("*output = *input", "tiny.c:.*error: expected"),
        ("*output = (int32_t)(0.1 * (float)*input);", "tiny.c:.*error: .*double"),
        ("extern void *malloc(unsigned); *output = (int32_t)malloc(8);", "undefined reference to `_sbrk'"),
        ("static const char big[5 << 20] = {1}; *output = big[*input];", "overflowed by [0-9]+ bytes"),
        ('static int32_t own __attribute__((section(".own"))); *output = own++;', "orphan section .*own"),
    ],
)
def test_what_does_not_build_is_an_error_of_one_line(tmp_path, step, message):
    write(tmp_path, step)
    with pytest.raises(chip.ChipError, match=f"^cortex-m4: .*{message}.*$"):
        run(tmp_path, column(1))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (np.zeros((3, 1), np.float32), r"inputs must be int32 \(steps, 1\), got float32 \(3, 1\)"),
        (np.zeros((3, 2), np.int32), r"inputs must be int32 \(steps, 1\), got int32 \(3, 2\)"),
        (np.zeros((0, 1), np.int32), r"got \(0, 1\)"),
        (np.zeros((1, 1, 1, 1), np.int32), r"got \(1, 1, 1, 1\)"),
    ],
)
def test_inputs_must_be_the_models(tmp_path, inputs, message):
    write(tmp_path, "*output = *input;")
    with pytest.raises(ValueError, match=message):
        run(tmp_path, inputs)


def test_names_are_checked(tmp_path):
    write(tmp_path, "*output = *input;")
    with pytest.raises(ValueError, match=r"chip must be one of cortex-m55, .*, got 'z80'"):
        chip.run(tmp_path, "tiny", column(1), chip="z80")
    with pytest.raises(ValueError, match="compiler must be one of clang, gcc, got 'icc'"):
        chip.run(tmp_path, "tiny", column(1), compiler="icc")
    with pytest.raises(ValueError, match=r"name must be that of a header in .*, got 'vowels'"):
        chip.run(tmp_path, "vowels", column(1))


def test_the_harness_compiles_without_a_warning(tmp_path, monkeypatch):
    if missing := chip.available(compiler="gcc"):
        pytest.skip(missing)
    strict = ("-std=gnu11", "-O1", "-ffreestanding", "-Wall", "-Wextra", "-Werror")
    monkeypatch.setattr("mgrade.deploy.chip.build._HARNESS_FLAGS", strict)
    for name in CORES:
        (tmp_path / name).mkdir()
        assert build(write_counting(tmp_path), "tiny", chip.CORES[name], "gcc", (), tmp_path / name).is_file()


@pytest.mark.parametrize(("name", "compiler"), BOTH)
def test_without_the_tools_it_says_what_is_missing(tmp_path, monkeypatch, name, compiler):
    monkeypatch.setenv("PATH", str(tmp_path))
    packages = "qemu-system-arm gcc-arm-none-eabi libnewlib-arm-none-eabi" + " clang-19" * (compiler == "clang")
    said = chip.available(name, compiler)
    assert said == f"{name} with {compiler} cannot be emulated here: sh scripts/tools.sh installs {packages}"
    with pytest.raises(chip.ChipError, match=said):
        chip.run(write(tmp_path, ""), "tiny", column(1), chip=name, compiler=compiler)


def test_a_compiler_without_its_c_library_is_not_enough(tmp_path, monkeypatch):
    for name in (GCC, "qemu-system-arm"):
        (tmp_path / name).write_text("#!/bin/sh\necho libc.a\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert chip.available(compiler="gcc").endswith(" installs libnewlib-arm-none-eabi")


def test_the_script_that_installs_them_says_what_it_could_not(tmp_path):
    """Without apt-get, here."""
    done = subprocess.run(["/bin/sh", ROOT / "scripts/tools.sh"], env={"PATH": str(tmp_path)}, capture_output=True)
    assert done.returncode == 0
    packages = b"qemu-system-arm gcc-arm-none-eabi libnewlib-arm-none-eabi clang-19 lld-19 nodejs chromium"
    assert done.stdout == b"tools: not here: " + packages + b"; tests that need them are skipped\n"
