"""Outputs at every step, at the last, or pooled over the valid steps since the last restart."""

import pytest
import torch
import torch.nn.functional as F

from helpers import assert_close, model_of, random_input, small, some, transposed
from mgrade.nn import PairHead
from mgrade.nn.readout import Readout


def twins(readout):
    """A model with a pooled readout, and one that shows the outputs that are pooled."""
    pooled, every = model_of(small("mgrade", readout=readout)), model_of(small("mgrade"))
    every.load_state_dict(pooled.state_dict())
    return pooled, every


POOLS = {"last": lambda y: y[-1], "mean": lambda y: y.mean(0), "sum": lambda y: y.sum(0)}


@pytest.mark.parametrize("readout", POOLS)
def test_a_pooled_readout_pools_the_outputs_at_every_step(readout):
    pooled, every = twins(readout)
    x = random_input(pooled.config, 3, 14)
    expected = torch.stack([POOLS[readout](row) for row in every(x)[0]])
    assert_close(pooled(x)[0], expected, 1e-13)


@pytest.mark.parametrize("readout", POOLS)
def test_only_valid_steps_since_the_last_restart_are_pooled(readout):
    pooled, every = twins(readout)
    x, lengths = random_input(pooled.config, 5, 14), torch.tensor([14, 1, 9, 6, 3])
    reset = some(5, 14)
    reset[0] = False
    y, _ = every(x, lengths=lengths, reset=reset)
    expected = []
    for row, length in enumerate(lengths.tolist()):
        restarts = reset[row, :length].nonzero().flatten().tolist()
        expected.append(POOLS[readout](y[row, max(restarts, default=0) : length]))
    assert_close(pooled(x, lengths=lengths, reset=reset)[0], torch.stack(expected), 1e-13)


@pytest.mark.parametrize("readout", POOLS)
def test_pooling_goes_on_where_the_state_left_it(readout):
    pooled, every = twins(readout)
    x = random_input(pooled.config, 2, 14)
    state = pooled.initial_state(2)
    for step in range(14):
        y, state = pooled.step(x[:, step], state)
        expected = torch.stack([POOLS[readout](row) for row in every(x[:, : step + 1])[0]])
        assert_close(y, expected, 1e-12)


@pytest.mark.parametrize("lengths", [None, torch.tensor([5, 2])])
@pytest.mark.parametrize("layout", [torch.Tensor.contiguous, transposed])
def test_the_gradient_of_pooled_features_is_laid_out_as_they_are(layout, lengths):
    readout = Readout(small("mgrade", readout="mean"))
    x = layout(torch.randn(2, 5, 6)).bfloat16().requires_grad_()
    strides = []
    features = x + 0
    features.register_hook(lambda grad: strides.append(grad.stride()))
    y, _ = readout(features, readout.initial_state(2, features), lengths=lengths)
    assert y.dtype == torch.float32
    y.square().sum().backward()
    assert strides == [x.stride()]


@pytest.mark.parametrize("readout", POOLS)
def test_a_document_of_no_steps_has_an_output_all_the_same(readout):
    model = model_of(small("mgrade", readout=readout))
    y, _ = model(random_input(model.config, 2, 5), lengths=torch.tensor([0, 5]))
    assert y.isfinite().all()


def test_a_pair_is_compared_by_what_was_pooled_of_each():
    head = PairHead(6, 4).double()
    a, b = torch.randn(3, 6, dtype=torch.float64), torch.randn(3, 6, dtype=torch.float64)
    features = torch.cat([a, b, a - b, a * b], 1)
    hidden = F.gelu(features @ head.input.weight.T + head.input.bias, approximate="tanh")
    assert_close(head(torch.cat([a, b])), hidden @ head.output.weight.T + head.output.bias, 1e-13)


@pytest.mark.parametrize("readout", POOLS)
def test_a_pair_is_row_b_and_row_b_plus_half_the_batch(readout):
    model = model_of(small("mgrade", readout=readout, pair=True))
    x = random_input(model.config, 6, 9)
    y, state = model(x)
    assert y.shape == (3, 4)
    for pair in range(3):
        assert_close(model(x[[pair, pair + 3]])[0], y[pair : pair + 1], 1e-12)
    assert_close(y, model.readout.head(state.total / (9 if readout == "mean" else 1)), 1e-13)
