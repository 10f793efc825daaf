"""A pass leaves the outputs as they are, and makes a program smaller or nothing of it larger."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.programs import (
    PRECISIONS,
    PRESETS,
    assert_as_interpreted,
    assert_close,
    configs,
    inputs_for,
    inputs_of,
    integer,
    perturbed,
    program_of,
    random_program,
    small,
)
from mgrade.deploy import Interpreter, Op, Program, from_model, narrow, optimise, prune, trim

PASSES = {"trim": trim, "narrow": narrow, "prune": prune, "optimise": optimise}
every_pass = pytest.mark.parametrize("change", PASSES.values(), ids=PASSES)


def taps(weight, lag, kind="taps", args=(0,)):
    return Op(kind, args, {"weight": np.array(weight, np.float32), "lag": np.array(lag, np.uint16)})


def linear(outputs, inputs, args=(0,), seed=0):
    rng = np.random.default_rng(seed)
    weight, bias = rng.standard_normal((outputs, inputs)), rng.standard_normal(outputs)
    return Op("linear", args, {"weight": weight.astype(np.float32), "bias": bias.astype(np.float32)})


def assert_unchanged(before, after, time=30):
    """The outputs to rounding, or to the bit where there is none; no more state and no more values."""
    x = inputs_for(before, 2, time)
    assert_as_interpreted(before, Interpreter(after, 2).run(x), Interpreter(before, 2).run(x))
    assert after.state_bytes <= before.state_bytes
    assert len(after.ops) <= len(before.ops)


@given(config=configs(), seed=st.integers(0, 1000), snap=st.booleans(), order=st.permutations(list(PASSES)))
@settings(max_examples=80)
def test_passes_in_any_order_leave_outputs_and_never_enlarge_the_state(config, seed, snap, order):
    program = start = from_model(perturbed(config, seed), snap=snap)
    for name in order:
        before, program = program, PASSES[name](program)
        assert program.state_bytes <= before.state_bytes
    assert_unchanged(start, program)


@every_pass
@given(seed=st.integers(0, 1000))
@settings(max_examples=15)
def test_programs_that_no_model_leads_to_keep_their_outputs(change, seed):
    program = random_program(seed)
    assert_unchanged(program, change(program))


@every_pass
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("preset", PRESETS)
def test_integer_programs_keep_their_outputs_to_the_bit(change, precision, preset):
    program = integer(from_model(perturbed(small(preset))), precision)
    assert_unchanged(program, change(program))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("tokens", [False, True], ids=["values", "tokens"])
@pytest.mark.parametrize("snap", [False, True])
def test_what_is_optimised_stays_as_it_is(preset, tokens, snap):
    once = program_of(preset, tokens=tokens, snap=snap)
    twice = optimise(once)
    assert [(op.kind, op.args) for op in twice.ops] == [(op.kind, op.args) for op in once.ops]
    assert (twice.state_bytes, twice.parameter_bytes) == (once.state_bytes, once.parameter_bytes)


# trim


def test_a_delay_line_ends_at_the_longest_delay_used():
    program = Program(2, False, (taps([[1, 2, 0], [0, 3, 0]], [[0, 4, 9], [7, 2, 8]]),))
    (op,) = trim(program).ops
    assert op.arrays["lag"].tolist() == [[0, 4], [2, 0]]
    assert op.arrays["weight"].tolist() == [[1, 2], [3, 0]]
    assert trim(program).state(0)[0].shape == (5, 2)


def test_weights_of_rounding_noise_count_as_nothing():
    program = Program(1, False, (taps([[1, 1e-10]], [[0, 9]]),))
    assert trim(program).state(0)[0].shape == (1, 1)
    kept = Program(1, False, (taps([[1, 1e-8]], [[0, 9]]),))
    assert trim(kept).state(0)[0].shape == (10, 1)


def test_noise_is_judged_by_the_channel():
    program = Program(2, False, (taps([[1, 0], [0, 1e-20]], [[0, 9], [0, 9]]),))
    assert trim(program).state(0)[0].shape == (10, 2)


def test_a_convolution_of_nothing_keeps_one_tap():
    program = Program(2, False, (taps(np.zeros((3, 2)), [0, 3, 5], "filter"),))
    assert_unchanged(program, trim(program))
    assert trim(program).state(0)[0].shape == (1, 2)


@pytest.mark.parametrize(("channels", "kind"), [(1, "filter"), (8, "taps")])
def test_taps_take_the_smaller_form(channels, kind):
    """Channels with the same delays share them; those with one delay each need not go through everyone's."""
    weight = np.ones((3, channels)) if kind == "filter" else np.eye(channels)
    program = Program(channels, False, (taps(weight, range(len(weight)), "filter"),))
    (op,) = trim(program).ops
    assert op.kind == kind
    assert_unchanged(program, trim(program))


# narrow


def test_a_convolution_of_an_encoded_input_delays_the_input():
    rest = [linear(5, 5, (value,), seed=value) for value in range(2, 6)]
    program = Program(2, False, (linear(5, 2), taps(np.ones((5, 2)), np.full((5, 2), 6), args=(1,)), *rest))
    smaller = narrow(program)
    assert [op.kind for op in smaller.ops][:2] == ["linear", "taps_input"]
    assert [part.shape for part in smaller.state(1)] == [(7, 2), ()]
    assert_unchanged(program, smaller)


def test_products_that_would_take_too_long_are_not_worth_the_bytes():
    program = Program(4, False, (linear(5, 4), taps(np.ones((5, 2)), np.full((5, 2), 6), args=(1,))))
    assert [op.kind for op in narrow(program).ops] == ["linear", "taps"]


def test_before_the_first_step_there_is_silence_not_the_bias():
    program = Program(1, False, (linear(3, 1), taps(np.ones((3, 1)), np.full((3, 1), 2), args=(1,))))
    y = Interpreter(narrow(program)).run(np.zeros((1, 4, 1)))[0]
    assert (y[:2] == 0).all()
    assert_close(y[2:], np.stack([program.ops[0].arrays["bias"]] * 2))


@pytest.mark.parametrize("inputs", [5, 6])
def test_an_input_that_is_no_narrower_is_delayed_as_before(inputs):
    rest = [linear(30, 5, (2,)), linear(30, 30, (3,))]  # beside which a few products more do not count
    program = Program(inputs, False, (linear(5, inputs), taps(np.ones((5, 1)), np.full((5, 1), 6), args=(1,)), *rest))
    assert [op.kind for op in narrow(program).ops][:2] == ["linear", "taps"]


def test_a_convolution_of_anything_else_is_delayed_as_before():
    tail = taps(np.ones((5, 1)), np.full((5, 1), 6), args=(2,))
    program = Program(2, False, (linear(5, 2), Op("gelu", (1,)), tail))
    assert [op.kind for op in narrow(program).ops] == ["linear", "gelu", "taps"]


def test_tokens_are_delayed_as_tokens():
    program = program_of("dcls", tokens=True, inputs=7, depth=1)
    (index,) = (index for index, op in enumerate(program.ops) if op.kind == "taps_token")
    (line,) = program.state(index)
    assert (line.dtype, len(line.shape)) == ("uint16", 1)


# prune


def test_what_nobody_reads_is_left_out():
    ops = (linear(3, 2), linear(4, 2, seed=1), Op("gelu", (1,)), Op("gelu", (2,)), linear(2, 3, (3,), seed=2))
    program = Program(2, False, ops)
    smaller = prune(program)
    assert [(op.kind, op.args) for op in smaller.ops] == [("linear", (0,)), ("gelu", (1,)), ("linear", (2,))]
    assert_unchanged(program, smaller)


def test_what_is_left_keeps_its_scale():
    program = integer(Program(2, False, (linear(3, 2), linear(4, 2, seed=1), Op("gelu", (1,)))))
    assert prune(program).exponents == (program.exponents[0], program.exponents[1], program.exponents[3])


def test_a_program_that_is_all_needed_is_the_same():
    program = program_of("lru")
    same = prune(program)
    assert [dataclasses.astuple(op)[:2] for op in same.ops] == [dataclasses.astuple(op)[:2] for op in program.ops]
    x = inputs_of(program, 1, 9)
    assert np.array_equal(Interpreter(same).run(x), Interpreter(program).run(x))
