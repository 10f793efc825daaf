"""Units: channels as unequal as sensors are, read and given by programs of whole numbers."""

import numpy as np
import pytest

from deploy.programs import program_of
from mgrade.deploy import Interpreter, Op, Program, calibrate, dequantise_output, optimise, quantise, quantise_input
from mgrade.deploy.units import Channel, frame, seen

LIMITS = (16, (-20, 30))


def unequal(program, x, scale, offset):
    """The program whose inputs are `scale` times as wide, and `offset` away, and such inputs."""
    ops = list(program.ops)
    for index, op in enumerate(ops):
        if 0 in op.args:
            name = "weight" if op.kind == "linear" else "mix"
            weight = op.arrays[name] / scale
            bias = (op.arrays["bias"] - weight @ offset).astype(np.float32)
            ops[index] = op.with_arrays(**{name: weight.astype(np.float32), "bias": bias})
    return Program(program.inputs, False, tuple(ops)), (x * scale + offset).astype(np.float32)


def off(small, program, x):
    y = Interpreter(program, len(x)).run(x)
    got = dequantise_output(small, Interpreter(small, len(x)).run(quantise_input(small, x)))
    return np.sqrt(((got - y) ** 2).mean()) / y.std()


@pytest.mark.parametrize("optimised", [False, True])
@pytest.mark.parametrize("precision", ["int16", "int8"])
@pytest.mark.parametrize(
    ("scale", "offset"),
    [((1e-3, 1.0, 50.0), (0, 0, 0)), ((1.0, 1.0, 1.0), (0, 500, -200)), ((1e18, 1e-18, 1.0), (0, 0, 30))],
)
def test_units_cost_little(scale, offset, precision, optimised):
    rng = np.random.default_rng(0)
    x, plain = rng.normal(size=(4, 50, 3)), program_of("mgrade", inputs=3, readout="mean")
    program, moved = unequal(plain, x, np.array(scale), np.array(offset, float))
    program = optimise(program) if optimised else program
    even = quantise(plain, calibrate(plain, [x]), precision=precision)
    small = quantise(program, calibrate(program, [moved]), precision=precision)
    assert not even.input_units
    assert len(small.input_units) == 3
    assert off(small, program, moved) < 2 * off(even, plain, x) + 0.01


def test_scores_share_a_scale_and_values_have_their_own():
    weight = np.array([[1e-3, 0], [0, 1.0]], np.float32)
    program = Program(2, False, (Op("linear", (0,), {"weight": weight, "bias": np.float32([0, 700])}),))
    x = np.random.default_rng(0).normal(size=(2, 40, 2)).astype(np.float32)
    ranges = calibrate(program, [x])
    assert not quantise(program, ranges).output_units
    values = quantise(program, ranges, apart=True)
    assert [round(unit.offset, -2) for unit in values.output_units] == [0, 700]
    y = Interpreter(program, 2).run(x)
    got = dequantise_output(values, Interpreter(values, 2).run(quantise_input(values, x)))
    assert (np.abs(got - y).max((0, 1)) < 5e-3 * y.std((0, 1)) + 1e-6 * np.abs(y).max((0, 1))).all()


def test_a_program_that_reads_its_input_otherwise_is_left_alone():
    program = Program(2, False, (Op("gelu", (0,)),))
    x = np.random.default_rng(0).normal(size=(1, 20, 2)) * [1.0, 1e-4]
    assert not quantise(program, calibrate(program, [x])).input_units


def test_channels_of_about_one_width_share_a_scale():
    assert frame([Channel(-1, 1, 0.5), Channel(-4, 4, 2)], *LIMITS, by_size=False) is None
    assert frame([], *LIMITS, by_size=True) is None
    assert frame([Channel(0, 0, 0)] * 2, *LIMITS, by_size=True) is None
    made = frame([Channel(-1, 1, 0.5), Channel(-16, 16, 8), Channel(3, 3, 0)], *LIMITS, by_size=False)
    assert made.shift.tolist() == [4, 0, 0]
    assert made.offset.tolist() == [0, 0, 3]


def test_a_channel_far_from_zero_has_room_to_drift():
    made = frame([Channel(1000, 1002, 0.5)], *LIMITS, by_size=False)
    assert made.offset.tolist() == [1001]
    assert made.largest == 4
    assert frame([Channel(1000, 1002, 0.5)], 8, (-20, 30), by_size=True).largest == 1


def test_what_was_seen_of_channels():
    x = np.array([[[0.0, 1.0], [2.0, 1.0]], [[4.0, 1.0], [2.0, 1.0]]])
    assert seen([x[:1], x[1:]]) == (Channel(0, 4, np.sqrt(2)), Channel(1, 1, 0))
