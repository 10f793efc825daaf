"""Whole numbers: arithmetic that is exact where it says so, and programs that stay near the float ones."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.programs import PRECISIONS, PRESETS, READOUTS, configs, inputs_of, integer, perturbed, program_of
from mgrade.deploy import (
    Interpreter,
    Op,
    Program,
    Ranges,
    calibrate,
    dequantise_output,
    from_model,
    optimise,
    quantise,
    quantise_input,
)
from mgrade.deploy import arithmetic as whole

ints = lambda bits: st.integers(-(1 << bits), (1 << bits) - 1)  # noqa: E731


def array(*numbers):
    return np.array(numbers, np.int64)


def share_off(program, reference, x, streams=4):
    """Root mean square of the error, over that of the outputs."""
    y = Interpreter(reference, streams).run(x)
    z = dequantise_output(program, Interpreter(program, streams).run(quantise_input(program, x)))
    return math.sqrt(np.mean(np.square(z - y)) / np.mean(np.square(y)))


# Arithmetic


@given(x=ints(60), bits=st.integers(-2, 60))
def test_a_shift_rounds_half_up(x, bits):
    shifted = int(whole.shift_right(array(x), bits)[0]) if bits > 0 else int(whole.shift_right(array(x >> 3), bits)[0])
    assert shifted == (math.floor(x / 2**bits + 0.5) if abs(x) < 1 << 50 and bits > 0 else _shifted(x, bits))


def _shifted(x, bits):
    return (x + (1 << (bits - 1))) // (1 << bits) if bits > 0 else (x >> 3) * (1 << -bits)


@given(total=ints(31), multiplier=st.integers(0, 32767), down=st.integers(17, 46), bits=st.sampled_from([8, 16]))
def test_rescaling_rounds_once(total, multiplier, down, bits):
    byte = multiplier % 256
    for factor, fraction, kept in (
        (multiplier, down, np.array([multiplier], np.int16)),
        ((16 + byte % 16) * 2 ** (byte // 16), down + 5, np.array([byte], np.uint8)),
    ):
        exact = (total * factor + (1 << (fraction - 1))) // (1 << fraction)
        held = min(max(exact, -(1 << (bits - 1))), (1 << (bits - 1)) - 1)
        assert whole.rescale(array(total), kept, down, bits) == held


@pytest.mark.parametrize("exponent", [-5, 0, 8, 11, 14, 20])
def test_the_sigmoid_is_within_2e_5_of_the_real_one(exponent):
    x = np.arange(-32768, 32768, dtype=np.int64)
    off = whole.sigmoid(x, exponent) / 2.0**24 - 1 / (1 + np.exp(-np.clip(x * 2.0**-exponent, -500, 500)))
    assert np.abs(off).max() < (2e-4 if exponent > 11 else 2e-5)


def test_the_sigmoid_rises_and_is_symmetric():
    y = whole.sigmoid(np.arange(-40000, 40001, dtype=np.int64), 11)
    assert (np.diff(y) >= 0).all()
    assert (y + y[::-1] == 1 << 24).all()
    assert (y > 0).all()


@pytest.mark.parametrize("exponent", [-6, 0, 3, 6, 9, 12, 14, 25])
def test_the_gelu_is_within_a_bit_or_a_thousandth(exponent):
    u = np.arange(-32768, 32768, dtype=np.int64)
    x = u * 2.0**-exponent
    real = x / (1 + np.exp(-np.clip(1.5957691216 * (x + 0.044715 * x**3), -500, 500)))
    off = np.abs(whole.gelu(u, exponent) * 2.0**-exponent - real)
    assert (off <= 0.51 * 2.0**-exponent + 1e-3 * np.minimum(np.abs(x), 1) + 2.0**-15 * np.abs(x)).all()
    assert (np.abs(whole.gelu(u, exponent)) <= np.abs(u)).all()


@given(v=st.integers(1, (1 << 63) - 1))
@settings(max_examples=300)
def test_the_reciprocal_root_is_right_to_a_part_in_a_million(v):
    root, half = whole.reciprocal_root(array(v))
    real = float(root[0]) / 2.0**30 / 2.0 ** (32 - int(half[0]))
    assert abs(real * math.sqrt(v) - 1) < 1e-6


@given(total=ints(45), steps=st.integers(1, 1 << 30))
def test_a_division_rounds_half_away_from_zero(total, steps):
    size = (2 * abs(total) + steps) // (2 * steps)
    assert whole.divide(array(total), steps) == (-size if total < 0 else size)


# Calibration


def test_ranges_are_the_largest_sizes():
    ops = (Op("scale", (0,), {"weight": np.array([3, -2], np.float32)}), Op("sum", (1,)))
    program = Program(2, False, ops)
    x = np.array([[[1, 2], [-1, 0]], [[0, -5], [0, 0]]], np.float32)
    assert calibrate(program, [x]).values == (5, 10, 10)
    assert calibrate(program, [x[:1], x[1:]]).values == (5, 10, 10)


def test_ranges_of_rotations_are_those_of_their_state():
    program = Program(2, False, (Op("rotate", (0,), {"decay": np.array([[1, 0]], np.float32)}),))
    assert calibrate(program, [np.ones((1, 7, 2))]).rotations == {0: 7.0}


def test_sequences_may_be_lists_or_have_no_steps():
    program = Program(1, False, (Op("gelu", (0,)),))
    assert calibrate(program, [[[[1.0], [2.0]]], np.zeros((0, 5, 1)), np.zeros((2, 0, 1))]).values[0] == 2


@pytest.mark.parametrize("sequences", [[], [np.zeros((0, 5, 3))], [np.zeros((2, 0, 3))]])
def test_there_is_something_to_calibrate_on(sequences):
    with pytest.raises(ValueError, match="sequences must hold at least one step to calibrate on, got none"):
        calibrate(program_of("mgrade"), sequences)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("preset", ["mgrade", "lru"])
def test_what_is_not_finite_gives_no_range(value, preset):
    x = inputs_of(program_of(preset), 2, 9)
    x[1, 4, 0] = value
    with pytest.raises(ValueError, match="sequences give values that are not finite"):
        calibrate(program_of(preset, norm="none"), [x])


def test_what_is_in_whole_numbers_already_is_refused():
    program = program_of("mgrade")
    ranges = calibrate(program, [inputs_of(program, 1, 9)])
    small = quantise(program, ranges)
    with pytest.raises(ValueError, match="precision must be float32 to calibrate, got int16"):
        calibrate(small, [inputs_of(program, 1, 9)])
    with pytest.raises(ValueError, match="precision must be float32 to quantise, got int16"):
        quantise(small, ranges)


def test_ranges_are_those_of_the_program():
    program, other = program_of("mgrade"), program_of("lru")
    with pytest.raises(ValueError, match="ranges must be those of this program's"):
        quantise(program, calibrate(other, [inputs_of(other, 1, 9)]))
    ranges = calibrate(other, [inputs_of(other, 1, 9)])
    with pytest.raises(ValueError, match="ranges must be those of this program's"):
        quantise(other, Ranges(ranges.values, {}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "float32"}, "precision must be one of int16, int8, got 'float32'"),
        ({"precision": "int4"}, "precision must be one of int16, int8, got 'int4'"),
        ({"state_bits": 8}, "state_bits must be 16 or 32, got 8"),
    ],
)
def test_other_bits_are_refused(options, message):
    program = program_of("mgrade")
    with pytest.raises(ValueError, match=message):
        quantise(program, calibrate(program, [inputs_of(program, 1, 9)]), **options)


def test_what_cannot_be_brought_into_whole_numbers_is_named():
    program = Program(2, False, (Op("gelu", (0,)), Op("rotate", (1,), {"decay": np.array([[2.5, 0]], np.float32)})))
    with pytest.raises(ValueError, match=r"ops\[1\] \(rotate\): decay must lie within -2 and 2, got 2.5"):
        quantise(program, calibrate(program, [np.ones((1, 3, 2))]))


def test_sums_that_32_bits_do_not_hold_are_refused():
    wide = Op("linear", (0,), {"weight": np.ones((1, 513), np.float32), "bias": np.zeros(1, np.float32)})
    program = Program(513, False, (wide,))
    with pytest.raises(ValueError, match=r"\(linear\): an integer sum takes at most 512 inputs, got 513: use float32"):
        quantise(program, calibrate(program, [np.ones((1, 1, 513))]))


# Programs


def in_units(program, scale):
    """The program of the same model for inputs that are `scale` times as large."""
    names = {"linear": "weight", "taps_input": "mix"}
    return Program(
        program.inputs,
        False,
        tuple(
            op.with_arrays(**{names[op.kind]: op.arrays[names[op.kind]] / np.float32(scale)}) if op.args == (0,) else op
            for op in program.ops
        ),
    )


@given(config=configs(), seed=st.integers(0, 1000), scale=st.sampled_from([1e-6, 1e-3, 1.0, 1e3, 1e6]))
@settings(max_examples=35)
def test_every_model_has_an_integer_program_whatever_the_units(config, seed, scale):
    program = optimise(from_model(perturbed(config, seed)))
    x = inputs_of(config, 2, 30)
    if not config.tokens:
        program, x = in_units(program, scale), (scale * x).astype(np.float32)
    ranges = calibrate(program, [x])
    for precision in PRECISIONS:
        small = quantise(program, ranges, precision=precision)
        assert small.widths == program.widths
        assert small.state_bytes <= program.state_bytes + 4 * small.outputs  # a mean is kept in 64 bits
        assert precision == "int8" or share_off(small, program, x, 2) < 0.5


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("preset", PRESETS)
def test_an_integer_program_is_near_the_float_one_whatever_the_units(preset, scale):
    """As near as 8 bits per weight come: about a hundredth; with 8 bits per value, about a tenth."""
    off = {precision: [] for precision in PRECISIONS}
    for seed in range(4):
        program = in_units(program_of(preset, seed=seed, dim=16, depth=1, inputs=1 + seed % 3, snap=True), scale)
        x = (scale * inputs_of(program, 4, 60, seed)).astype(np.float32)
        ranges = calibrate(program, [x])
        for precision in PRECISIONS:
            off[precision].append(share_off(quantise(program, ranges, precision=precision), program, x))
    assert np.median(off["int16"]) < 0.02
    assert np.median(off["int8"]) < 0.15


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("tokens", [False, True], ids=["values", "tokens"])
def test_every_readout_is_near(readout, tokens):
    program = program_of("mgrade", readout=readout, tokens=tokens, dim=16)
    assert share_off(integer(program), program, inputs_of(program, 4, 60)) < 0.03


@pytest.mark.parametrize("scale", [1e-5, 1e-2, 1.0, 300.0, 1e5])
def test_the_bias_of_a_delayed_input_counts_whatever_the_units(scale):
    program = in_units(program_of("dcls", inputs=1, depth=1, dim=12, norm="none", mlp="none", snap=True), scale)
    assert "taps_input" in [op.kind for op in program.ops]
    x = (scale * inputs_of(program, 4, 60)).astype(np.float32)
    assert share_off(quantise(program, calibrate(program, [x])), program, x) < 0.02


@pytest.mark.parametrize("precision", PRECISIONS)
def test_outputs_of_any_size_have_their_digits(precision):
    for size in (1e-4, 1.0, 1e4):
        program = program_of("mingru", dim=16)
        head = program.ops[-1]
        larger = head.with_arrays(**{name: (size * a).astype(np.float32) for name, a in head.arrays.items()})
        program = Program(3, False, (*program.ops[:-1], larger))
        x = inputs_of(program, 4, 60)
        small = quantise(program, calibrate(program, [x]), precision=precision)
        assert share_off(small, program, x) < (0.02 if precision == "int16" else 0.2), size


def test_values_of_very_different_size_can_be_added():
    """More than 14 bits apart: the fine one gives up what the sum has no place for."""
    scale = lambda size, value: Op("scale", (value,), {"weight": np.full(2, size, np.float32)})  # noqa: E731
    ops = (scale(1e-3, 0), Op("gelu", (1,)), scale(1e5, 0), Op("add", (2, 3)), Op("add", (4, 2)), Op("sum", (5,)))
    program = Program(2, False, ops)
    x = inputs_of(program, 4, 30)
    for precision, most in (("int16", 0.001), ("int8", 0.02)):
        small = quantise(program, calibrate(program, [x]), precision=precision)
        assert small.exponents[2] <= small.exponents[3] + 14
        assert share_off(small, program, x) < most


def test_weights_that_are_whole_shares_of_the_largest_are_exact():
    weight = np.array([[127, -64, 1], [0, 0, 0], [-2, 254, 8]], np.float32) / 64
    program = Program(3, False, (Op("linear", (0,), {"weight": weight, "bias": np.zeros(3, np.float32)}),))
    (op,) = quantise(program, calibrate(program, [np.ones((1, 1, 3))])).ops
    assert op.arrays["weight"].tolist() == [[127, -64, 1], [0, 0, 0], [-1, 127, 4]]


def test_a_channel_of_a_bias_alone_gives_its_bias():
    arrays = {"weight": np.array([[0, 0], [1, -1]], np.float32), "bias": np.array([0.7, -0.3], np.float32)}
    program = Program(2, False, (Op("linear", (0,), arrays),))
    x = inputs_of(program, 1, 50)
    small = quantise(program, calibrate(program, [x]))
    y = dequantise_output(small, Interpreter(small).run(quantise_input(small, x)))[0]
    assert np.abs(y - Interpreter(program).run(x)[0]).max() < 0.01 * np.abs(x).max()
    assert np.ptp(y[:, 0]) == 0


def test_values_never_wrap_around():
    """Inputs ten times what was calibrated on: outputs stay at the end of their range, where they belong."""
    arrays = {"weight": np.ones((1, 1), np.float32), "bias": np.zeros(1, np.float32)}
    program = Program(1, False, (Op("linear", (0,), arrays),))
    small = quantise(program, calibrate(program, [np.linspace(-1, 1, 9).reshape(1, 9, 1)]))
    y = Interpreter(small).run(quantise_input(small, np.linspace(-10, 10, 101).reshape(1, 101, 1)))[0, :, 0]
    assert (np.diff(y) >= 0).all()
    assert (y[0], y[-1]) == (-y[-1] - 1, y[-1])


def test_slow_gates_lose_nothing_in_32_bits():
    """A gate of 1/3000: in 16 bits, steps too small to count vanish."""
    ops = (
        Op("linear", (0,), {"weight": np.zeros((1, 1), np.float32), "bias": np.full(1, -8, np.float32)}),
        Op("linear", (0,), {"weight": np.full((1, 1), 0.05, np.float32), "bias": np.zeros(1, np.float32)}),
        Op("gated", (1, 2)),
        Op("linear", (3,), {"weight": np.ones((1, 1), np.float32), "bias": np.zeros(1, np.float32)}),
    )
    program = Program(1, False, ops)
    x = np.concatenate([np.full((1, 4000, 1), 20.0), np.full((1, 4000, 1), 10.0)], 1).astype(np.float32)
    ranges = calibrate(program, [x])
    wide = quantise(program, ranges, state_bits=32)
    narrow = quantise(program, ranges, state_bits=16)
    assert wide.state_bytes == 2 * narrow.state_bytes == 4
    assert share_off(wide, program, x, 1) < 0.01 < share_off(narrow, program, x, 1)


def test_an_eight_bit_program_keeps_its_state_in_as_many_bits_as_asked():
    program = program_of("mingru", dim=16)
    x = inputs_of(program, 4, 200)
    ranges = calibrate(program, [x])
    near = [share_off(quantise(program, ranges, precision="int8", state_bits=bits), program, x) for bits in (16, 32)]
    assert max(near) < 1.2 * min(near)


def test_values_beyond_all_scales_are_refused():
    program = program_of("mingru")
    x = 1e13 * inputs_of(program, 2, 9)
    with pytest.raises(ValueError, match=r"^values must be at most 3\.4e\+10 to quantise, got "):
        quantise(program, calibrate(program, [x]))
