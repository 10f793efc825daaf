"""Tensors need not be dense, and gradients need not be either."""

import pytest
import torch

from helpers import (
    GRADIENT_TOLERANCE,
    INTERPRETED,
    OPERATORS,
    TRITON_DEVICE,
    assert_close,
    backend_param,
    each_operator,
    place,
    some,
)
from mgrade.ops import gated_recurrence, gated_scan


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


def adjacent(tensor):
    """Channels next to each other, as in any tensor at first."""
    return tensor.contiguous()


def first_half(tensor):
    """The first half of a tensor twice as wide."""
    return torch.cat([tensor, torch.full_like(tensor, 9)], -1).chunk(2, -1)[0]


# How gate, candidate and the gradient of h lie in memory, and whether the results keep channels contiguous.
SCAN_LAYOUTS = {
    "channels": (adjacent, adjacent, adjacent, True),
    "time": (channels_apart, channels_apart, channels_apart, False),
    "halves": (first_half, part_of_a_wider, adjacent, True),
    "channels_and_gradient_apart": (adjacent, adjacent, channels_apart, True),
    "time_and_gradient_adjacent": (channels_apart, channels_apart, adjacent, False),
    "mixed": (adjacent, channels_apart, adjacent, False),
    "rows_apart": (transposed, adjacent, every_other, True),
}


def scan_options(name, batch, time, device):
    """Restarts and lengths, or nothing."""
    if name == "plain":
        return {}
    lengths = torch.tensor([time, 0, time // 2 + 1], device=device)
    return {"reset": some(batch, time, 0.15, device), "lengths": lengths}


def in_double(tensors):
    return [None if tensor is None else tensor.detach().double().contiguous().requires_grad_() for tensor in tensors]


@pytest.mark.parametrize("options", ["plain", "both"])
@pytest.mark.parametrize("name", SCAN_LAYOUTS)
@pytest.mark.parametrize("backend", [backend_param("triton")])
def test_a_scan_in_any_layout_agrees_with_the_reference(backend, name, options):
    *layouts, across = SCAN_LAYOUTS[name]
    shape = (3, 9, 5) if INTERPRETED else (3, 300, 37)
    gate, candidate, pull = (lay(torch.randn(shape, device=TRITON_DEVICE)) for lay in layouts)
    given = scan_options(options, *shape[:2], TRITON_DEVICE)
    initial, pull_last = torch.randn(2, shape[0], shape[2], device=TRITON_DEVICE)
    initial = None if options == "plain" else initial
    leaves = [tensor if tensor is None else tensor.detach().requires_grad_() for tensor in (gate, candidate, initial)]
    assert all(a is None or a.stride() == b.stride() for a, b in zip(leaves, (gate, candidate, initial), strict=True))
    h, last = gated_scan(*leaves, **given, backend=backend)
    assert h.stride() == (torch.empty(shape) if across else channels_apart(torch.empty(shape))).stride()
    wanted = [leaf for leaf in leaves if leaf is not None]
    grads = torch.autograd.grad((h, last), wanted, (pull, pull_last))

    wide = in_double(leaves)
    truth, truth_last = gated_scan(*wide, **given, backend="reference")
    pulls = pull.double(), pull_last.double()
    expected = torch.autograd.grad((truth, truth_last), [leaf for leaf in wide if leaf is not None], pulls)
    assert_close(h, truth, 2e-6)
    assert_close(last, truth_last, 2e-6, truth)
    for grad, exact in zip(grads, expected, strict=True):
        assert_close(grad, exact, GRADIENT_TOLERANCE)


@pytest.mark.parametrize("lay", [adjacent, channels_apart, part_of_a_wider, transposed])
@pytest.mark.parametrize("options", ["plain", "both"])
@pytest.mark.parametrize("backend", [backend_param("triton")])
def test_a_recurrence_with_bias_and_skip_in_any_layout_agrees_with_the_reference(backend, lay, options):
    shapes = ((3, 21, 5), (10, 5), (10,), (3, 5))
    x, weight, bias, initial = (torch.randn(shape, device=TRITON_DEVICE) for shape in shapes)
    leaves = [tensor.requires_grad_() for tensor in (lay(x), weight, bias, initial)]
    given = scan_options(options, 3, 21, TRITON_DEVICE)
    pulls = lay(torch.randn_like(x)), torch.randn_like(initial)
    results = gated_recurrence(*leaves, **given, skip=True, backend=backend)
    grads = torch.autograd.grad(results, leaves, pulls)
    wide = in_double(leaves)
    truths = gated_recurrence(*wide, **given, skip=True, backend="reference")
    expected = torch.autograd.grad(truths, wide, tuple(pull.double() for pull in pulls))
    for actual, exact in zip((*results, *grads), (*truths, *expected), strict=True):
        assert_close(actual, exact, GRADIENT_TOLERANCE)
