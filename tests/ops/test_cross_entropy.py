"""The loss by the kernel: labels that are none, and derivatives that it does not have."""

import pytest
import torch

from helpers import INTERPRETER_WARNINGS, TRITON_DEVICE
from mgrade.ops import available, cross_entropy

pytestmark = [
    pytest.mark.skipif("triton" not in available(), reason="Triton is not installed"),
    *(pytest.mark.filterwarnings(warning) for warning in INTERPRETER_WARNINGS),
]


def scene():
    return torch.randn(2, 5, 3, device=TRITON_DEVICE), torch.randint(3, (2, 5), device=TRITON_DEVICE)


@pytest.mark.parametrize("label", [-100, -1, 3, 7])
def test_a_label_outside_the_classes_is_no_number_from_a_kernel_and_an_error_elsewhere(label):
    logits, target = scene()
    assert torch.ops.mgrade.cross_entropy(logits, target)[0].isfinite()
    target[1, 2] = label
    assert torch.ops.mgrade.cross_entropy(logits, target)[0].isnan()
    with pytest.raises((IndexError, RuntimeError)):
        cross_entropy(logits.cpu(), target.cpu())


def test_its_second_derivative_is_refused():
    logits, target = scene()
    logits.requires_grad_()
    loss = torch.ops.mgrade.cross_entropy(logits, target)[0]
    (slope,) = torch.autograd.grad(loss, logits, create_graph=True)
    with pytest.raises(RuntimeError, match=r"mgrade\.ops\.plain"):
        slope.square().sum().backward()
