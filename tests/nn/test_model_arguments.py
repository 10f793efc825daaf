"""A wrong argument of a model is refused in one line that names it."""

import pytest
import torch

from helpers import assert_refused, model_of, random_input, small
from mgrade import State

X = torch.zeros(2, 5, 3, dtype=torch.float64)


@pytest.fixture
def model():
    return model_of(small("mgrade", readout="mean"))


@pytest.fixture
def reader():
    return model_of(small("mgrade", tokens=True))


@pytest.mark.parametrize(
    "x",
    [X[..., :2], X[0], X[..., None], X.long(), X.bool(), X.cfloat(), torch.zeros(2, 5, dtype=torch.int64)],
    ids=["channels", "no-batch", "axes", "integers", "booleans", "complex", "tokens"],
)
def test_values_of_the_wrong_shape_or_kind_are_refused(model, x):
    assert_refused(r"^x must be floating point \(batch, time, 3\), got torch\.\w+ \(", model, x)


@pytest.mark.parametrize("x", [None, [[1.0]], 3.0])
def test_what_is_no_tensor_is_refused(model, x):
    assert_refused(rf"^x must be a tensor, got {type(x).__name__}$", model, x)


def test_values_in_another_dtype_than_the_weights_are_refused(model):
    assert_refused(r"^x must .*float64.*float32", model, X.float())


@pytest.mark.parametrize(
    "x", [X, torch.zeros(2, 5), torch.zeros(2, dtype=torch.int64), torch.zeros(2, 5, dtype=torch.int8)]
)
def test_tokens_of_the_wrong_shape_or_kind_are_refused(reader, x):
    assert_refused(r"^x must be token ids \(batch, time\), int32 or int64, got torch\.\w+ \(", reader, x)


@pytest.mark.parametrize("token", [-1, 3, 2**40])
def test_a_token_out_of_the_vocabulary_is_refused(reader, token):
    ids = torch.zeros(2, 5, dtype=torch.int64)
    ids[1, 2] = token
    assert_refused(rf"^x must hold token ids from 0 to 2, got {token}$", reader, ids)


@pytest.mark.parametrize(
    ("lengths", "match"),
    [
        (torch.tensor([1, 6]), r"^lengths must lie within 0 and 5 steps, got 6$"),
        (torch.tensor([-2, 1]), r"^lengths must lie within 0 and 5 steps, got -2$"),
        (torch.tensor([1, 2, 3]), r"^lengths must have shape \(batch\) = \(2\), got \(3,\)$"),
        (torch.tensor([[1, 2]]), r"^lengths must have shape"),
        (torch.tensor([1.0, 2.0]), r"^lengths must be an int32 or int64 tensor \(batch\), got torch.float32$"),
        (torch.tensor([True, False]), r"^lengths must be an int32 or int64 tensor \(batch\), got torch.bool$"),
        ([1, 2], r"^lengths must be an int32 or int64 tensor \(batch\), got list$"),
    ],
)
def test_wrong_lengths_are_refused(model, lengths, match):
    assert_refused(match, model, X, lengths=lengths)


@pytest.mark.parametrize("last", [-1, 6, 1.0, True, "all"])
def test_a_wrong_number_of_last_steps_is_refused(last):
    assert_refused(
        rf"^last must be a number of steps from 0 to 5, got {last!r}$", model_of(small("mgrade")), X, last=last
    )


def test_last_steps_of_a_pooled_readout_or_of_padded_rows_are_refused(model):
    assert_refused(r"^last cannot go with readout 'mean'", model, X, last=1)
    assert_refused(r"^last cannot go with lengths", model_of(small("mgrade")), X, lengths=torch.tensor([5, 2]), last=1)


@pytest.mark.parametrize(
    ("reset", "match"),
    [
        (torch.zeros(2, 5), r"^reset must be a boolean tensor \(batch, time\), got torch.float32$"),
        (torch.zeros(2, 5, dtype=torch.uint8), r"^reset must be a boolean tensor"),
        (torch.zeros(2, 6, dtype=torch.bool), r"^reset must have shape \(batch, time\) = \(2, 5\), got \(2, 6\)$"),
        (torch.zeros(5, dtype=torch.bool), r"^reset must have shape"),
        (True, r"^reset must be a boolean tensor \(batch, time\), got bool$"),
    ],
)
def test_a_wrong_restart_mask_is_refused(model, reset, match):
    assert_refused(match, model, X, reset=reset)


@pytest.mark.parametrize(
    ("fields", "batch", "match"),
    [
        ({"dim": 7}, 2, r"^state.history\[0\] must have shape \(2, 8, 6\), got \(2, 8, 7\): is it another model's\?$"),
        ({"max_delay": 5}, 2, r"^state.history\[0\] must have shape \(2, 8, 6\), got \(2, 4, 6\)"),
        ({}, 3, r"^state.history\[0\] must have shape \(2, 8, 6\), got \(3, 8, 6\)"),
        ({"depth": 3}, 2, r"^state.history must have one entry per layer, 2, got 3$"),
        ({"expansion": 2, "projection": True}, 2, r"^state.hidden\[0\] must have shape \(2, 6\), got \(2, 12\)"),
        ({"readout": "every"}, 2, r"^state.total must have shape \(2, 6\), got \(2, 0\)"),
        ({"conv": "none"}, 2, r"^state.history\[0\] must have shape \(2, 8, 6\), got \(2, 0, 0\)"),
        ({"recurrence": "none"}, 2, r"^state.hidden\[0\] must have shape \(2, 6\), got \(2, 0\)"),
    ],
)
def test_the_state_of_another_model_is_refused(model, fields, batch, match):
    other = model_of(small("mgrade", **{"readout": "mean", **fields}))
    assert_refused(match, model, X, other.initial_state(batch))
    assert_refused(match, model.step, X[:, 0], other.initial_state(batch))


@pytest.mark.parametrize("state", [(), {}, torch.zeros(2, 6), "state"])
def test_what_is_no_state_is_refused(model, state):
    assert_refused(
        rf"^state must come from this model's initial_state or a call, got {type(state).__name__}$", model, X, state
    )


@pytest.mark.parametrize("preset", ["mgrade", "lru"])
@pytest.mark.parametrize("readout", ["every", "mean"])
def test_a_state_in_another_dtype_is_carried_on_or_refused_by_its_name(preset, readout):
    config = small(preset, readout=readout)
    state = model_of(config, torch.float32).initial_state(2)
    try:
        y, _ = model_of(config)(X, state)
    except ValueError as error:
        assert str(error).startswith("state")  # noqa: PT017
    else:
        assert y.dtype == torch.float64


def test_a_state_of_the_right_shapes_is_accepted(model):
    history, hidden, total, count = model.initial_state(2)
    assert model(X, State(history, hidden, total, count))[0].shape == (2, 4)


@pytest.mark.parametrize("position", [float("nan"), float("inf")])
def test_a_position_that_is_no_number_is_refused(model, position):
    with torch.no_grad():
        model.layers[1].conv.position[2, 1] = position
    assert_refused(r"^position must lie within 0 and length - 1 = 8, got nan", model, X)


@pytest.mark.parametrize("rows", [1, 3])
def test_an_odd_number_of_documents_is_no_batch_of_pairs(rows):
    model = model_of(small("mgrade", readout="mean", pair=True))
    x = random_input(model.config, rows, 5)
    assert_refused(rf"^x must hold pairs of rows, first documents then second ones, got {rows} rows$", model, x)


def test_a_negative_batch_is_refused(model):
    assert_refused(r"^batch must be at least 0, got -1$", model.initial_state, -1)


@pytest.mark.parametrize("batch", [1.5, True, "a", None])
def test_a_batch_that_is_no_number_of_rows_is_refused(model, batch):
    assert_refused(rf"^batch must be a whole number, got {batch!r}$", model.initial_state, batch)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"steps": 3}, r"^state.steps must be a tensor, got int$"),
        ({"total": None}, r"^state.total must be a tensor, got NoneType$"),
        ({"history": (None, None)}, r"^state.history\[0\] must be a tensor, got NoneType$"),
        ({"hidden": 5}, r"^state.hidden must be a tuple of tensors, got int$"),
        ({"hidden": (torch.zeros(2, 6).long(),) * 2}, r"^state.hidden\[0\] must be floating-point, got torch.int64$"),
        ({"total": torch.zeros(2, 6).cfloat()}, r"^state.total must be floating-point, got torch.complex64$"),
        ({"steps": torch.zeros(2)}, r"^state.steps must be int64, got torch.float32$"),
    ],
)
def test_a_state_with_something_else_in_it_is_refused(model, changes, match):
    assert_refused(match, model, X, model.initial_state(2)._replace(**changes))


def test_a_step_that_is_no_tensor_is_refused(model):
    assert_refused(r"^x must be a tensor, got int$", model.step, 3, model.initial_state(2))


@pytest.mark.parametrize("x_t", [X, X[0, 0], X[0, 0, 0]])
def test_a_step_of_the_wrong_shape_is_refused(model, x_t):
    assert_refused(r"^x_t must have shape \(batch, 3\), got ", model.step, x_t, model.initial_state(2))


def test_a_step_of_the_wrong_width_is_refused(model):
    assert_refused(r"^x must be floating point", model.step, X[:, 0, :2], model.initial_state(2))


@pytest.mark.parametrize("padding", [-100, -1, 3, 2**40])
def test_padding_may_hold_any_token(reader, padding):
    lengths = torch.tensor([2, 5])
    ids = torch.ones(2, 5, dtype=torch.int64)
    y, _ = reader(ids, lengths=lengths)
    ids[0, 2:] = padding
    padded, _ = reader(ids, lengths=lengths)
    assert padded[0, :2].equal(y[0, :2])
    assert padded[1].equal(y[1])
    ids[1, 4] = padding
    assert_refused(rf"^x must hold token ids from 0 to 2, got {padding}$", reader, ids, lengths=lengths)
