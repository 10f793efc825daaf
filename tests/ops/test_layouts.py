"""Tensors need not be dense, and gradients need not be either."""

import pytest
import torch

from helpers import OPERATORS, assert_close, each_operator, place


def transposed(tensor):
    """Time first in memory."""
    return tensor.transpose(0, 1).contiguous().transpose(0, 1)


def channels_apart(tensor):
    """Channels furthest apart in memory."""
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)


def part_of_a_wider(tensor):
    """The second half of a tensor twice as wide, as `chunk` gives it."""
    return torch.cat([torch.full_like(tensor, 9), tensor], -1).chunk(2, -1)[1]


def every_other(tensor):
    """Gaps between rows, or between the entries of a vector."""
    return torch.stack([tensor, torch.full_like(tensor, 9)], 1).flatten(0, 1)[::2]


LAYOUTS = (transposed, channels_apart, part_of_a_wider, every_other)


@each_operator()
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_of_the_inputs_makes_no_difference(operator, backend, layout):
    tensors = operator.sample(2, 6, 3, **place(backend))
    reset = torch.rand(6, 2, device=tensors[operator.state].device).t() < 0.2
    results = []
    for lay in (torch.Tensor.contiguous, layout):
        laid = {name: lay(t) if t.dim() > 1 or lay is every_other else t for name, t in tensors.items()}
        y, state = operator(laid, reset=reset, backend=backend)
        pulls = lay(y.detach() + 1), lay(state.detach() + 1)
        results.append((y, state, *torch.autograd.grad((y, state), list(tensors.values()), pulls)))
    for dense, sparse in zip(*results, strict=True):
        assert_close(sparse, dense, 1e-15 if backend == "c" else 1e-6)


@each_operator()
@pytest.mark.parametrize("channels", [1, 5])
def test_an_expanded_gradient_is_one_full_of_ones(operator, backend, channels):
    tensors = operator.sample(2, 7, channels, **place(backend))
    inputs = list(tensors.values())
    y, state = operator(tensors, backend=backend)
    dense = torch.autograd.grad((y, state), inputs, (torch.ones_like(y), torch.ones_like(state)))
    y, state = operator(tensors, backend=backend)
    expanded = torch.autograd.grad((y.sum() + state.sum()).real, inputs)
    for one, other in zip(expanded, dense, strict=True):
        assert torch.equal(one, other)


@each_operator("reference", "c")
@pytest.mark.parametrize("which", ["output", "state"])
def test_a_gradient_may_come_through_one_result_alone(operator, backend, which):
    tensors = operator.sample(2, 6, 3, **place(backend))
    inputs = list(tensors.values())
    y, state = operator(tensors, backend=backend)
    one = torch.autograd.grad((y if which == "output" else state).abs().sum(), inputs, materialize_grads=True)
    y, state = operator(tensors, backend=backend)
    pulls = torch.zeros_like(y), torch.zeros_like(state)
    only = torch.sgn((y if which == "output" else state).detach())
    pulls = (only, pulls[1]) if which == "output" else (pulls[0], only)
    for actual, expected in zip(one, torch.autograd.grad((y, state), inputs, pulls), strict=True):
        assert_close(actual, expected, 1e-15)


@pytest.mark.parametrize("name", OPERATORS)
def test_conjugated_and_shared_inputs_are_read_as_they_are(name):
    operator = OPERATORS[name]
    tensors = {key: tensor.detach() for key, tensor in operator.sample(2, 7, 5).items()}
    lazy = {key: t.conj() if t.is_complex() else t[:1].expand_as(t) for key, t in tensors.items()}
    dense = {key: t.resolve_conj().contiguous().clone() for key, t in lazy.items()}
    for actual, expected in zip(operator(lazy), operator(dense), strict=True):
        assert_close(actual, expected, 1e-14)
