"""Split an input anywhere: whole, in pieces or step by step, the outputs and the state are the same."""

import contextlib
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import PRESETS, TOLERANCE, assert_close, in_pieces, leaves, model_of, random_input, small, some
from mgrade.nn import DelayConv
from mgrade.ops import _backend, delay_conv

READOUTS = ("every", "last", "mean", "sum")
BACKENDS = {"fastest": contextlib.nullcontext, "reference": lambda: mock.patch.object(_backend, "HAS_C", False)}

every_preset = pytest.mark.parametrize("preset", PRESETS)
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


@st.composite
def streams(draw):
    """How a model reads, how much it gets to read, and where that is cut."""
    time = draw(st.integers(0, 30))
    return {
        "readout": (readout := draw(st.sampled_from(READOUTS))),
        "pair": readout != "every" and draw(st.booleans()),
        "tokens": draw(st.booleans()),
        "batch": 2 * draw(st.integers(1, 2)),
        "time": time,
        "cuts": [0, *sorted(draw(st.lists(st.integers(0, time), max_size=5))), time],
        "padded": draw(st.booleans()),
        "restarts": draw(st.sampled_from([0.0, 0.1, 0.5])),
        "seed": draw(st.integers(0, 1000)),
    }


def assert_same(model, actual, expected, lengths):
    """Outputs at the valid steps, and all of the state, to the rounding of the model's dtype."""
    (y, state), (whole, last) = actual, expected
    tolerance = TOLERANCE[whole.dtype]
    if lengths is not None and model.config.readout == "every":
        valid = torch.arange(whole.shape[1]) < lengths[:, None]
        y, whole = y[valid], whole[valid]
    # two documents may compare to almost nothing: rounding is that of the features that were compared
    features = [last.total] if model.config.pair else []
    assert_close(y, whole, tolerance, *features, what="outputs")
    for name, one, other in zip(leaves(last), leaves(state).values(), leaves(last).values(), strict=True):
        assert_close(one, other, tolerance, what=name)


@every_preset
@every_dtype
@pytest.mark.parametrize("backend", BACKENDS)
@given(stream=streams())
@settings(max_examples=20)
def test_pieces_and_single_steps_are_the_whole(preset, dtype, backend, stream):
    torch.manual_seed(stream["seed"])
    batch, time = stream["batch"], stream["time"]
    config = small(preset, **{name: stream[name] for name in ("readout", "pair", "tokens")})
    model, x = model_of(config, dtype), random_input(config, batch, time, dtype)
    options = {
        "lengths": torch.randint(0, time + 1, (batch,)) if stream["padded"] else None,
        "reset": some(batch, time, stream["restarts"]) if stream["restarts"] else None,
    }
    with BACKENDS[backend](), torch.no_grad():
        _, state = model(random_input(config, batch, 12, dtype))  # in the middle of things
        whole = model(x, state, **options)
        assert_same(model, in_pieces(model, x, state, stream["cuts"], **options), whole, options["lengths"])
        if time:
            assert_same(model, in_pieces(model, x, state, range(time + 1), **options), whole, options["lengths"])


@every_preset
@every_dtype
@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("tokens", [False, True], ids=["values", "tokens"])
def test_a_step_at_a_time_is_the_whole(preset, dtype, readout, tokens):
    config = small(preset, readout=readout, tokens=tokens)
    model, x = model_of(config, dtype), random_input(config, 2, 25, dtype)
    with torch.no_grad():
        whole = model(x)
        state, outputs = model.initial_state(2), []
        for x_t in x.unbind(1):
            y_t, state = model.step(x_t, state)
            assert y_t.shape == (2, 4)
            outputs.append(y_t)
        y = torch.stack(outputs, 1) if readout == "every" else outputs[-1]
        assert_same(model, (y, state), whole, None)


def test_a_positive_candidate_is_the_one_of_log_space():
    config = small("mingru", depth=1, candidate="positive", mlp="none", norm="none", skips=())
    model, x = model_of(config), random_input(config, 2, 25)
    layer = model.layers[0].recurrence
    gate, value = torch.nn.functional.linear(model.encoder(x), layer.weight, layer.bias).chunk(2, -1)
    value = torch.where(value > 0, value + 0.5, torch.sigmoid(value))
    h, expected = torch.zeros(2, 6).double(), []
    for z, c in zip(torch.sigmoid(gate).unbind(1), value.unbind(1), strict=True):
        h = (1 - z) * h + z * c
        expected.append(h)
    y, state = model(x)
    assert_close(y, model.readout.head(torch.stack(expected, 1)), 1e-12)
    assert state.hidden[0].min() > 0
    assert_same(model, in_pieces(model, x, model.initial_state(2), range(26)), (y, state), None)


@every_preset
@pytest.mark.parametrize("readout", READOUTS)
def test_a_padded_row_is_as_if_it_were_alone(preset, readout):
    config = small(preset, readout=readout)
    model, x = model_of(config), random_input(config, 4, 20)
    lengths = torch.tensor([20, 0, 1, 13])
    x[torch.arange(20) >= lengths[:, None]] = float("nan")  # whatever stands in the padding
    y, state = model(x, lengths=lengths)
    for row, length in enumerate(lengths.tolist()):
        alone, last = model(x[row : row + 1, :length])
        together = y[row : row + 1, :length] if readout == "every" else y[row : row + 1]
        assert_close(together, alone, 1e-12)
        for name, tensor in leaves(last).items():
            assert_close(leaves(state)[name][row : row + 1], tensor, 1e-12, what=name)


@every_preset
@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 7.0])
def test_what_follows_a_restart_is_as_if_it_were_alone(preset, readout, poison):
    config = small(preset, readout=readout)
    model, x = model_of(config), random_input(config, 2, 20)
    x[:, :8] = poison
    reset = torch.zeros(2, 20, dtype=torch.bool)
    reset[:, 8] = True
    (y, state), (alone, last) = model(x, reset=reset), model(x[:, 8:])
    assert_close(y[:, 8:] if readout == "every" else y, alone, 1e-12)
    for name, tensor in leaves(last).items():
        assert_close(leaves(state)[name], tensor, 1e-12, what=name)


@every_preset
@every_dtype
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 7.0])
def test_an_input_never_changes_an_earlier_output(preset, dtype, value):
    config = small(preset)
    model, x = model_of(config, dtype), random_input(config, 2, 20, dtype)
    y, _ = model(x)
    for step in (1, 10, 19):
        changed = x.clone()
        changed[:, step] = value
        other, _ = model(changed)
        assert torch.equal(other[:, :step], y[:, :step])
        assert not torch.equal(other[:, step], y[:, step])


@every_preset
@pytest.mark.parametrize("steps", [0, 1, 7, 20])
def test_the_last_outputs_alone_are_those_of_the_whole(preset, steps):
    config = small(preset)
    model, x, reset = model_of(config), random_input(config, 2, 20), some(2, 20, 0.1)
    (whole, state), (last, same) = model(x, reset=reset), model(x, reset=reset, last=steps)
    assert_close(last, whole[:, 20 - steps :], 1e-13)
    assert all(torch.equal(leaves(same)[name], tensor) for name, tensor in leaves(state).items())
    parameters = list(model.parameters())
    wanted = torch.autograd.grad(whole[:, 20 - steps :].square().sum(), parameters, materialize_grads=True)
    grads = torch.autograd.grad(last.square().sum(), parameters, materialize_grads=True)
    for (name, _), one, other in zip(model.named_parameters(), grads, wanted, strict=True):
        assert_close(one, other, 1e-12, what=name)


@pytest.mark.parametrize("vocabulary", [1, 3, 256, 257])
def test_tokens_are_one_hot_inputs(vocabulary):
    model = model_of(small("mgrade", inputs=vocabulary, tokens=True))
    plain = model_of(small("mgrade", inputs=vocabulary))
    plain.load_state_dict(model.state_dict())
    ids = random_input(model.config, 2, 9)
    assert_close(model(ids)[0], plain(torch.nn.functional.one_hot(ids, vocabulary).double())[0], 1e-13)
    assert torch.equal(model(ids.int())[0], model(ids)[0])


@every_preset
@pytest.mark.parametrize("readout", READOUTS)
def test_nothing_in_is_nothing_out(preset, readout):
    config = small(preset, readout=readout)
    model = model_of(config)
    _, state = model(random_input(config, 2, 5))
    y, same = model(random_input(config, 2, 0), state)
    assert y.shape == ((2, 0, 4) if readout == "every" else (2, 4))
    assert all(
        torch.equal(one, other) for one, other in zip(leaves(same).values(), leaves(state).values(), strict=True)
    )
    y, state = model(random_input(config, 0, 5), reset=some(0, 5), lengths=torch.zeros(0, dtype=torch.int64))
    assert y.shape == ((0, 5, 4) if readout == "every" else (0, 4))
    assert all(len(tensor) == 0 for tensor in leaves(state).values())


def test_the_state_is_a_tree_of_tensors_with_the_batch_first():
    state = model_of(small("mgrade", readout="mean")).initial_state(5)
    assert [tuple(tensor.shape) for tensor in leaves(state).values()] == [
        (5, 8, 6), (5, 8, 6), (5, 6), (5, 6), (5, 6), (5,)
    ]  # fmt: skip


def test_a_state_is_not_changed_by_going_on_from_it():
    model = model_of(small("mgrade", readout="mean"))
    _, state = model(random_input(model.config, 2, 9))
    kept = {name: tensor.clone() for name, tensor in leaves(state).items()}
    model.step(random_input(model.config, 2, 1)[:, 0], state)
    assert all(torch.equal(leaves(state)[name], tensor) for name, tensor in kept.items())


@pytest.mark.parametrize("change", ["weight", "position", "sigma", "dtype"])
def test_a_step_sees_every_change_of_the_taps(change):
    conv = DelayConv(3, 2, 8, 0.8)
    x, past = torch.randn(2, 1, 3), torch.randn(2, 7, 3)
    with torch.no_grad():
        first, _ = conv(x, past)
        assert torch.equal(conv(x, past)[0], first)
        if change == "dtype":
            conv, x, past = conv.double(), x.double(), past.double()
        elif change == "sigma":
            conv.sigma = 0.5
        else:
            getattr(conv, change).data += 0.25  # behind the back of autograd's version counter
        exact, _ = delay_conv(x, conv.weight, conv.position, length=8, sigma=conv.sigma, history=past)
        assert_close(conv(x, past)[0], exact, TOLERANCE[x.dtype])
        assert change == "dtype" or not torch.allclose(exact, first)
