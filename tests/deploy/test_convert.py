"""A model and its program give the same, one step at a time."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.programs import (
    PRESETS,
    READOUTS,
    assert_close,
    by_steps,
    configs,
    inputs_of,
    perturbed,
    small,
)
from mgrade import Model
from mgrade.deploy import Interpreter, from_model
from mgrade.deploy.convert import LONGEST
from mgrade.nn.convolution import DelayConv

STEPS = 30


def assert_same(model, program, time=STEPS, streams=2):
    x = inputs_of(model.config, streams, time)
    assert_close(Interpreter(program, streams).run(x), by_steps(model, x))


@given(config=configs(), seed=st.integers(0, 1000))
@settings(max_examples=90)
def test_a_program_gives_what_its_model_gives(config, seed):
    model = perturbed(config, seed)
    assert_same(model, from_model(model))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("tokens", [False, True], ids=["values", "tokens"])
def test_every_preset_has_a_program(preset, readout, tokens):
    model = perturbed(small(preset, readout=readout, tokens=tokens))
    assert_same(model, from_model(model))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_program_goes_on_giving_the_same_for_2000_steps(preset):
    model = perturbed(small(preset, depth=1))
    x = inputs_of(model.config, 1, 2000)
    with torch.no_grad():
        whole, _ = model(torch.from_numpy(x))
    assert_close(Interpreter(from_model(model)).run(x), whole.numpy())


@given(config=configs().filter(lambda config: config.conv == "delay"), seed=st.integers(0, 1000))
@settings(max_examples=30)
def test_taps_on_whole_delays_are_the_same_snapped(config, seed):
    """With taps as narrow as this, nothing of a tap lies beside its delay."""
    model = perturbed(dataclasses.replace(config, sigma=0.05), seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("position"):
                parameter.round_()
    program = from_model(model, snap=True)
    assert "taps" in [op.kind for op in program.ops]
    assert_same(model, program)


def test_a_snapped_tap_keeps_its_weight_over_all_delays():
    conv = DelayConv(2, 2, 50, sigma=2.0)
    with torch.no_grad():
        conv.position[:] = torch.tensor([[20.3, 30.6], [31.4, 12.0]])
        conv.weight[:] = torch.tensor([[1.0, -2.0], [3.0, 0.5]])
    weight, lag = conv.snapped()
    assert lag.tolist() == [[20, 31], [12, 31]]
    mass = 2.0 * np.sqrt(2 * np.pi)
    assert_close(weight.detach().numpy() / mass, np.array([[1.0, -2.0], [0.5, 3.0]]), 1e-6)


def test_taps_that_meet_are_one():
    conv = DelayConv(1, 4, 9, sigma=0.05)
    with torch.no_grad():
        conv.position[:] = torch.tensor([[5.1, 2.0, 4.9, 5.0]])
        conv.weight[:] = torch.tensor([[1.0, 7.0, 2.0, 4.0]])
        conv.position.round_()
    weight, lag = conv.snapped()
    assert lag.tolist() == [[2, 5, 5, 5]]
    assert_close(weight.detach().numpy(), np.array([[7.0, 0.0, 0.0, 7.0]]), 1e-6)


def test_snapping_leaves_the_model_as_it_was():
    model = perturbed(small("mgrade"))
    before = copy.deepcopy(model.state_dict())
    from_model(model, snap=True)
    from_model(model)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_pooled_readout_pools_outputs_rather_than_features():
    program = from_model(Model(small("mgrade", readout="mean", dim=8, outputs=2)))
    (total, steps) = program.state(len(program.ops) - 1)
    assert (total.shape, steps.shape) == ((2,), ())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("snap", [False, True])
def test_weights_of_any_dtype_become_float32(dtype, snap):
    model = perturbed(small("lru_dcls", tokens=True)).to(dtype)
    program = from_model(model, snap=snap)
    expected = from_model(copy.deepcopy(model).float(), snap=snap)
    x = inputs_of(program, 1, STEPS)
    assert_close(Interpreter(program).run(x), Interpreter(expected).run(x))
    assert next(model.parameters()).dtype == dtype


def test_two_documents_have_no_single_stream():
    with pytest.raises(ValueError, match="pair"):
        from_model(Model(small("mgrade", readout="mean", pair=True)))


def test_candidates_of_log_space_have_no_program():
    with pytest.raises(ValueError, match=r"^candidate must be 'linear' in a program, got 'positive'$"):
        from_model(Model(small("mingru", candidate="positive")))


@pytest.mark.parametrize(
    ("preset", "fields"),
    [
        ("dcls", {"max_delay": LONGEST + 2}),
        ("tcn", {"taps": 2, "dilation": LONGEST + 1}),
        ("tcn", {"taps": 2, "dilation": 1 << 16}),  # which 16 bits would take for no delay at all
        ("tcn", {"taps": 3, "dilation": 40000}),
    ],
)
def test_a_delay_that_16_bits_do_not_hold_is_refused(preset, fields):
    with pytest.raises(ValueError, match="a delay must be at most 65534 steps"):
        from_model(Model(small(preset, **fields)))


def test_the_longest_delay_is_a_delay():
    model = perturbed(small("tcn", depth=1, dim=1, taps=2, dilation=LONGEST))
    program = from_model(model)
    assert program.state(1)[0].shape == (LONGEST + 1, 1)
    interpreter = Interpreter(program)
    interpreter.step(inputs_of(program, 1, 1)[:, 0])
    first = interpreter.state[1]["line"][0, 0, 0]
    assert first != 0
    interpreter.count = LONGEST  # silence until then
    silent = interpreter.values(np.zeros((1, program.inputs)))
    weight = program.ops[1].arrays["weight"]
    assert_close(silent[2], silent[1] * weight[0] + first * weight[1])


def test_positions_that_are_no_numbers_are_refused():
    model = Model(small("mgrade"))
    with torch.no_grad():
        model.layers[0].conv.position[0, 0] = torch.nan
    for snap in (False, True):
        with pytest.raises(ValueError, match="position must lie within 0 and length - 1 = 10, got nan"):
            from_model(model, snap=snap)


class Own(torch.nn.Linear):
    """A linear layer with a forward of its own, as adapters have."""


@pytest.mark.parametrize("part", ["encoder", "layers.0", "layers.0.mlp", "layers.1.mlp.input", "readout.head"])
def test_what_would_be_left_out_of_a_program_is_refused(part):
    model = Model(small("mgrade"))
    refused = pytest.raises(ValueError, match=f"^{part} must match its configuration to be exported, got a ")
    handle = model.get_submodule(part).register_forward_hook(lambda *_: None)
    with refused:
        from_model(model)
    handle.remove()
    from_model(model)
    if isinstance(found := model.get_submodule(part), torch.nn.Linear):
        bias, found.bias = found.bias, None
        with refused:
            from_model(model)
        found.bias, found.__class__ = bias, Own
        with refused:
            from_model(model)
