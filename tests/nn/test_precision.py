"""Lower precisions: models in half precision, and models under autocast."""

import pytest
import torch

from helpers import PRESETS, assert_close, in_pieces, leaves, model_of, random_input, small

HALVES = [torch.float16, torch.bfloat16]


def twin(model, dtype):
    other = model_of(model.config, dtype)
    other.load_state_dict(model.state_dict())
    return other


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("dtype", HALVES)
def test_a_model_in_half_precision_is_near_the_same_weights_in_float32(preset, dtype):
    model = model_of(small(preset, readout="mean"), dtype)
    x = random_input(model.config, 2, 20, dtype)
    y, state = model(x)
    assert y.dtype == dtype
    assert_close(y, twin(model, torch.float32)(x.float())[0], 20 * torch.finfo(dtype).eps)
    assert all(hidden.dtype in (torch.float32, torch.complex64) for hidden in state.hidden if hidden.numel())
    kinds = [[part.dtype for part in leaves(s).values()] for s in (model.initial_state(2), state)]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("readout", ["mean", "sum"])
@pytest.mark.parametrize("dtype", HALVES)
def test_totals_over_many_steps_keep_growing_in_half_precision(readout, dtype):
    model = model_of(small("mingru", readout=readout, depth=1), dtype)
    with torch.no_grad():
        model.layers[0].norm.weight.zero_()
        model.layers[0].norm.bias.fill_(0.9)  # at every step
        x = random_input(model.config, 1, 1000, dtype)
        whole, _ = model(x)
        state = model.initial_state(1)
        for x_t in x.unbind(1):
            y, state = model.step(x_t, state)
    assert state.total.dtype == torch.float32
    assert_close(state.total / state.steps, torch.full_like(state.total, 0.9), 1e-2)
    assert_close(y, whole, 4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("readout", ["every", "mean"])
def test_a_model_trains_and_streams_under_autocast(preset, readout):
    model = model_of(small(preset, readout=readout), torch.float32)
    x = random_input(model.config, 2, 20, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        y, _ = model(x)
        pieces, _ = in_pieces(model, x, None, (0, 1, 9, 20))
    y.float().square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    exact, _ = model(x)
    assert_close(y, exact, 30 * torch.finfo(torch.bfloat16).eps)
    assert_close(pieces, y, 4 * torch.finfo(torch.bfloat16).eps)
