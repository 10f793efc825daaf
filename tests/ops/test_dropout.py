"""`dropout`: what is left out, and the skip after it, in one pass on CUDA."""

import pytest
import torch

from helpers import INTERPRETED, TRITON_DEVICE, assert_close, backend_param, compiled, gappy, transposed
from mgrade.ops.dropout import dropout

on_triton = pytest.mark.parametrize("backend", [backend_param("triton")])
SHAPES = [(2, 17, 5), (1, 1, 7), (3, 40, 16), (2, 0, 3), (0, 5, 3), (2, 5, 0)]
SHAPES += [] if INTERPRETED else [(64, 1024, 160), (2, 16385, 33), (7, 1000, 500)]


def masked(x, keep, base, gain=1.25):
    return x * keep * gain + (0 if base is None else base)


@on_triton
@pytest.mark.parametrize("lay", [torch.clone, transposed, gappy])
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_kept_is_scaled_and_added_with_its_gradient(backend, shape, dtype, whole, skip, lay):
    x, base, pull = (lay(torch.randn(shape, device=TRITON_DEVICE).to(dtype)) for _ in range(3))
    keep = torch.randint(2, (shape[0], 1 if whole else shape[1], shape[2]), dtype=torch.uint8, device=TRITON_DEVICE)
    inputs = [x.detach().requires_grad_(), *([base.detach().requires_grad_()] if skip else [])]
    y = torch.ops.mgrade.dropout(inputs[0], keep, inputs[1] if skip else None, 1.25)
    assert y.dtype == dtype
    assert y.stride(1) == 1 or not y.numel()
    grads = torch.autograd.grad(y, inputs, pull)
    tolerance = 2**-7 if dtype == torch.bfloat16 else 2**-22
    assert_close(y, masked(x.double(), keep, base.double() if skip else None), tolerance)
    assert_close(grads[0], masked(pull.double(), keep, None), tolerance)
    if skip:
        assert torch.equal(grads[1], pull)


@on_triton
def test_nothing_enters_from_where_it_is_left_out(backend):
    x = torch.full((2, 9, 4), torch.nan, device=TRITON_DEVICE)
    keep = torch.zeros(2, 1, 4, dtype=torch.uint8, device=TRITON_DEVICE)
    assert torch.ops.mgrade.dropout(x, keep, torch.ones_like(x), 2.0).eq(1).all()


@on_triton
def test_second_derivatives_are_those_of_a_product(backend):
    x = torch.randn(2, 7, 3, device=TRITON_DEVICE, requires_grad=True)
    keep = torch.randint(2, x.shape, dtype=torch.uint8, device=TRITON_DEVICE)
    pull = torch.randn_like(x, requires_grad=True)
    (first,) = torch.autograd.grad(torch.ops.mgrade.dropout(x, keep, x, 1.5), x, pull, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), pull)
    assert_close(second, 1 + 1.5 * keep.double(), 2**-22)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("whole", [True, False])
def test_a_share_is_left_out_on_cuda_and_compiles(whole):
    x = torch.ones(64, 128, 64, device="cuda", requires_grad=True)
    base = 2 * torch.ones_like(x)
    y = compiled(dropout)(x, 0.25, whole, base)
    added = y.detach() - base
    assert added.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert added.eq(0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert not whole or added.eq(added[:, :1]).all()
    y.sum().backward()
    assert_close(x.grad, added, 2**-20)
