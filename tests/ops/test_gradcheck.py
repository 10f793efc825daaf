"""Every gradient is the derivative: compared with finite differences in float64."""

import pytest
import torch

from helpers import DIAGONAL, GATED, RECURRENCE, backend_param, delay, dilated, some
from mgrade.ops import delay_kernel

OPERATORS = {
    "gated_scan": GATED,
    "gated_recurrence": RECURRENCE,
    "diagonal_scan": DIAGONAL,
    "delay_conv": delay(4),
    "delay_conv_skip": delay(4, skip=True),
    "dilated_conv-1": dilated(1),
    "dilated_conv-2": dilated(2),
    "dilated_conv-5": dilated(5),
    "dilated_conv_skip": dilated(2, skip=True),
}


@pytest.mark.parametrize("restarts", [False, True], ids=["plain", "resets"])
@pytest.mark.parametrize("stateful", [False, True], ids=["fresh", "state"])
@pytest.mark.parametrize(
    ("name", "backend"), [backend_param(b, name, name=name) for name in OPERATORS for b in ("reference", "c")]
)
def test_gradients_are_derivatives(name, backend, stateful, restarts):
    operator = OPERATORS[name]
    tensors = operator.sample(2, 6, 3)
    tensors = tensors if stateful else operator.without_state(tensors)
    reset = some(2, 6, 0.3) if restarts else None

    def run(*values):
        return operator(dict(zip(tensors, values, strict=True)), reset=reset, backend=backend)

    assert torch.autograd.gradcheck(run, tuple(tensors.values()))


@pytest.mark.parametrize(
    ("name", "backend"), [backend_param(b, n, name=n) for n in OPERATORS for b in ("reference", "c")]
)
def test_gradients_are_derivatives_in_a_padded_batch(name, backend):
    operator = OPERATORS[name]
    tensors, lengths = operator.sample(3, 5, 2), torch.tensor([5, 0, 3])
    valid = torch.arange(5) < lengths[:, None]

    def run(*values):
        y, state = operator(dict(zip(tensors, values, strict=True)), lengths=lengths, backend=backend)
        return y[valid], state

    assert torch.autograd.gradcheck(run, tuple(tensors.values()))


@pytest.mark.parametrize("backend", [backend_param("reference"), backend_param("c")])
@pytest.mark.parametrize(("length", "sigma"), [(1, 0.8), (4, 0.8), (9, 0.3), (9, 20.0)])
def test_gradients_of_the_kernel_are_derivatives(backend, length, sigma):
    weight = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    position = (torch.rand(3, 2, dtype=torch.float64) * (length - 1) * 0.9).requires_grad_()

    def run(weight, position):
        # the smallest step to the left of 0 would be out of range
        return delay_kernel(weight, position.clamp(0, length - 1), length=length, sigma=sigma, backend=backend)

    if length == 1:
        assert torch.autograd.gradcheck(lambda weight: run(weight, position), (weight,))
    else:
        assert torch.autograd.gradcheck(run, (weight, position))
