"""What every operator promises on every backend: pieces, restarts, causality, padding, emptiness."""

import itertools

import pytest
import torch

from helpers import INTERPRETED, OPERATORS, TOLERANCE, assert_close, each_operator, place, some

INF, NAN = float("inf"), float("nan")
BATCH, TIME, CHANNELS = 2, 19, 3


def sample(operator, backend, batch=BATCH, time=TIME, channels=CHANNELS):
    return {name: tensor.detach() for name, tensor in operator.sample(batch, time, channels, **place(backend)).items()}


def same(actual, expected, *more):
    """To the rounding of the dtype that was computed in."""
    assert_close(actual, expected, TOLERANCE[expected.dtype], *more)


@each_operator()
@pytest.mark.parametrize("cuts", [(0, 1, 1, 7, 19), (0, 16, 18, 19)])
def test_pieces_joined_by_their_states_are_the_whole(operator, backend, cuts):
    tensors = sample(operator, backend)
    reset = some(BATCH, TIME, device=tensors[operator.state].device)
    y, state = operator(tensors, reset=reset, backend=backend)
    pieces, carried = [], tensors[operator.state]
    for begin, end in itertools.pairwise(cuts):
        piece = operator.cut(tensors, begin, end) | {operator.state: carried}
        out, carried = operator(piece, reset=reset[:, begin:end], backend=backend)
        pieces.append(out)
    same(torch.cat(pieces, 1), y)
    same(carried, state, y)


@each_operator()
def test_no_state_is_a_silent_past(operator, backend):
    tensors = sample(operator, backend)
    silent = tensors | {operator.state: torch.zeros_like(tensors[operator.state])}
    expected = operator(silent, backend=backend)
    for actual, wanted in zip(operator(operator.without_state(tensors), backend=backend), expected, strict=True):
        assert torch.equal(actual, wanted)


@each_operator()
@pytest.mark.parametrize("restarts", [[(), (5,)], [(0,), (1, 18)], [(3, 4, 11), (16, 17)]])
def test_a_restart_runs_the_segments_apart(operator, backend, restarts):
    tensors = sample(operator, backend)
    reset = torch.zeros(BATCH, TIME, dtype=torch.bool, device=tensors[operator.state].device)
    for row, steps in enumerate(restarts):
        reset[row, list(steps)] = True
    y, state = operator(tensors, reset=reset, backend=backend)
    for row, steps in enumerate(restarts):
        alone = operator.row(tensors, row)
        edges = sorted({0, *steps, TIME})
        for begin, end in itertools.pairwise(edges):
            piece = operator.cut(alone, begin, end)
            piece = operator.without_state(piece) if begin in steps else piece
            out, last = operator(piece, backend=backend)
            same(y[row : row + 1, begin:end], out, y)
        same(state[row : row + 1], last, y)


@each_operator()
@pytest.mark.parametrize("poison", [NAN, INF])
def test_nothing_before_a_restart_is_seen_after_it(operator, backend, poison):
    tensors = sample(operator, backend)
    clean, restart = dict(tensors), 6
    for name in (*operator.timed, operator.state):
        tensors[name] = tensors[name].clone()
        tensors[name][:, :restart] = poison
    reset = torch.zeros(BATCH, TIME, dtype=torch.bool, device=tensors[operator.state].device)
    reset[:, restart] = True
    y, state = operator(tensors, reset=reset, backend=backend)
    expected, last = operator(operator.without_state(operator.cut(clean, restart, TIME)), backend=backend)
    same(y[:, restart:], expected)
    same(state, last, expected)


@each_operator()
@pytest.mark.parametrize("value", [NAN, INF, 7.0])
@pytest.mark.parametrize("step", [1, 16])
def test_an_input_never_changes_an_earlier_output(operator, backend, value, step):
    tensors = sample(operator, backend)
    reset = some(BATCH, TIME, 0.1, tensors[operator.state].device)
    y, _ = operator(tensors, reset=reset, backend=backend)
    for name in operator.timed:
        changed = tensors[name].clone()
        changed[:, step] = value
        other, _ = operator(tensors | {name: changed}, reset=reset, backend=backend)
        assert torch.equal(other[:, :step], y[:, :step])
        assert not torch.equal(other[:, step:], y[:, step:])


@each_operator()
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_lengths_give_the_state_after_the_valid_steps_of_each_row(operator, backend, dtype):
    tensors = sample(operator, backend, batch=3)
    device = tensors[operator.state].device
    lengths, reset = torch.tensor([0, TIME, 7], dtype=dtype, device=device), some(3, TIME, device=device)
    for name in operator.timed:  # whatever stands in the padding
        tensors[name] = tensors[name].masked_fill(
            (torch.arange(TIME, device=device) >= lengths[:, None])[..., None], NAN
        )
    y, state = operator(tensors, reset=reset, lengths=lengths, backend=backend)
    for row, length in enumerate(lengths.tolist()):
        alone = operator.cut(operator.row(tensors, row), 0, length)
        out, last = operator(alone, reset=reset[row : row + 1, :length], backend=backend)
        same(y[row : row + 1, :length], out)
        same(state[row : row + 1], last, alone[operator.state], out)


@each_operator()
@pytest.mark.parametrize("options", ["nothing", "reset", "lengths", "both"])
def test_no_steps_leave_the_state_as_it_was(operator, backend, options):
    tensors = operator.sample(BATCH, 0, CHANNELS, **place(backend))
    device = tensors[operator.state].device
    given = {}
    if options in ("reset", "both"):
        given["reset"] = torch.zeros(BATCH, 0, dtype=torch.bool, device=device)
    if options in ("lengths", "both"):
        given["lengths"] = torch.zeros(BATCH, dtype=torch.int64, device=device)
    y, state = operator(tensors, backend=backend, **given)
    assert y.shape == (BATCH, 0, CHANNELS)
    assert torch.equal(state, tensors[operator.state])
    pull = torch.randn_like(state)
    through, *others = torch.autograd.grad(
        (y, state),
        [tensors.pop(operator.state), *tensors.values()],
        (torch.zeros_like(y), pull),
        materialize_grads=True,
    )
    assert torch.equal(through, pull)
    assert all(not other.any() for other in others)


@each_operator()
@pytest.mark.parametrize("restarts", [False, True])
def test_no_rows_are_no_work(operator, backend, restarts):
    tensors = operator.sample(0, 4, CHANNELS, **place(backend))
    device = tensors[operator.state].device
    reset = some(0, 4, device=device) if restarts else None
    lengths = torch.zeros(0, dtype=torch.int64, device=device)
    for options in ({}, {"lengths": lengths}):
        y, state = operator(tensors, reset=reset, backend=backend, **options)
        assert y.shape == (0, 4, CHANNELS)
        assert state.shape == tensors[operator.state].shape
        grads = torch.autograd.grad((y.sum() + state.sum()).real, list(tensors.values()))
        assert all(not grad.any() for grad in grads)


@each_operator(mixing=False)
@pytest.mark.parametrize("time", [1, 2])
@pytest.mark.parametrize("channels", [1, 130])
def test_a_step_or_two_of_one_or_many_channels_equal_each_channel_alone(operator, backend, time, channels):
    if backend == "triton" and INTERPRETED:
        channels = min(channels, 11)
    tensors = sample(operator, backend, 1, time, channels)
    y, state = operator(tensors, backend=backend)
    for channel in {0, channels // 2, channels - 1}:
        out, last = operator(operator.channel(tensors, channel), backend=backend)
        same(y[..., channel : channel + 1], out, y)
        same(state[..., channel : channel + 1], last, y)


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
def test_tensors_without_values_give_the_same_shapes(operator):
    expected = operator(operator.sample(BATCH, TIME, CHANNELS))
    for actual, wanted in zip(operator(operator.sample(BATCH, TIME, CHANNELS, device="meta")), expected, strict=True):
        assert actual.is_meta
        assert (actual.shape, actual.dtype) == (wanted.shape, wanted.dtype)
