"""`delay_conv` and `dilated_conv`: causal depthwise filters with their past in `history`."""

import pytest
import torch
import torch.nn.functional as F

from helpers import TRITON_DEVICE, assert_close, backend_param
from mgrade.ops import delay_conv, delay_kernel, dilated_conv

every_backend = pytest.mark.parametrize("backend", [backend_param(b) for b in ("reference", "c", "triton")])
on_the_cpu = pytest.mark.parametrize("backend", [backend_param(b) for b in ("reference", "c")])


def device(backend):
    return TRITON_DEVICE if backend == "triton" else "cpu"


def by_torch(x, kernel, history, dilation=1):
    """PyTorch's own convolution over history and input, in float64."""
    rows = torch.cat([history, x], 1).transpose(1, 2).double()
    return F.conv1d(rows, kernel.double().flip(1)[:, None], dilation=dilation, groups=x.shape[2]).transpose(1, 2)


@every_backend
@pytest.mark.parametrize("delay", [0, 1, 4, 5])
def test_an_impulse_comes_out_p_steps_after_it_went_in(backend, delay):
    x = torch.zeros(1, 9, 2, device=device(backend))
    x[0, 2, 0] = 1
    weight, position = torch.full((2, 1), 3.0, device=x.device), torch.full((2, 1), float(delay), device=x.device)
    y, _ = delay_conv(x, weight, position, length=6, sigma=1e-3, backend=backend)
    expected = torch.zeros_like(x)
    expected[0, 2 + delay, 0] = 3
    assert torch.equal(y, expected)


@every_backend
def test_a_tap_between_two_delays_splits_an_impulse(backend):
    x = torch.zeros(1, 6, 1, device=device(backend))
    x[0, 0] = 1
    weight, position = torch.ones(1, 1, device=x.device), torch.full((1, 1), 2.25, device=x.device)
    y, _ = delay_conv(x, weight, position, length=5, sigma=0.5, backend=backend)
    expected = torch.exp(-0.5 * ((torch.arange(5.0) - 2.25) / 0.5) ** 2)
    assert_close(y[0, :5, 0].cpu(), expected, 1e-6)
    assert y[0, 5, 0] == 0


@every_backend
def test_it_is_the_convolution_of_history_and_input_with_the_kernel(backend):
    x, history = torch.randn(2, 13, 3, device=device(backend)), torch.randn(2, 5, 3, device=device(backend))
    weight, position = torch.randn(3, 4, device=x.device), torch.rand(3, 4, device=x.device) * 5
    y, _ = delay_conv(x, weight, position, length=6, history=history, backend=backend)
    kernel = delay_kernel(weight, position, length=6)
    assert_close(y, by_torch(x, kernel, history), 2e-6)


@every_backend
@pytest.mark.parametrize("dilation", [1, 2, 7])
@pytest.mark.parametrize("taps", [1, 2, 3, 20])
def test_a_dilated_filter_is_pytorchs_own(backend, dilation, taps):
    x = torch.randn(2, 13, 3, device=device(backend))
    history = torch.randn(2, (taps - 1) * dilation, 3, device=x.device)
    weight = torch.randn(3, taps, device=x.device)
    y, after = dilated_conv(x, weight, dilation=dilation, history=history, backend=backend)
    assert_close(y, by_torch(x, weight, history, dilation), 2e-6)
    assert torch.equal(after, torch.cat([history, x], 1)[:, x.shape[1] :])


@on_the_cpu
@pytest.mark.parametrize("time", [0, 1, 4, 5, 6, 20])
def test_the_history_after_it_is_the_latest_inputs_oldest_first(backend, time):
    x, history = torch.randn(2, time, 3), torch.randn(2, 5, 3)
    _, after = delay_conv(x, torch.randn(3, 2), torch.zeros(3, 2), length=6, history=history, backend=backend)
    assert torch.equal(after, torch.cat([history, x], 1)[:, time:])


@on_the_cpu
def test_the_history_is_a_copy(backend):
    x = torch.randn(1, 8, 2)
    kept = x.clone()
    _, after = delay_conv(x, torch.randn(2, 2), torch.zeros(2, 2), length=4, backend=backend)
    after.zero_()
    assert torch.equal(x, kept)


@on_the_cpu
def test_a_restart_silences_the_history_before_it(backend):
    x, history = torch.randn(2, 3, 1), torch.randn(2, 5, 1)
    reset = torch.tensor([[False, True, False], [False, False, False]])
    _, after = delay_conv(
        x, torch.ones(1, 1), torch.zeros(1, 1), length=6, history=history, reset=reset, backend=backend
    )
    assert after[0, :, 0].tolist() == [0, 0, 0, *x[0, 1:, 0].tolist()]
    assert torch.equal(after[1], torch.cat([history[1, 3:], x[1]]))


@every_backend
@pytest.mark.parametrize("restarts", [False, True])
def test_a_skip_adds_the_input_itself(backend, restarts):
    x, history = torch.randn(2, 13, 3, device=device(backend)), torch.randn(2, 4, 3, device=device(backend))
    reset = torch.rand(2, 13, device=x.device) < 0.2 if restarts else None
    weight = torch.randn(3, 3, device=x.device)
    options = {"dilation": 2, "history": history, "reset": reset, "backend": backend}
    y, after = dilated_conv(x, weight, **options)
    with_skip, same = dilated_conv(x, weight, skip=True, **options)
    assert_close(with_skip, y + x, 2e-6)
    assert torch.equal(after, same)


@on_the_cpu
def test_length_one_scales_each_channel(backend):
    x, weight = torch.randn(2, 5, 3), torch.randn(3, 1)
    y, after = delay_conv(x, weight, torch.zeros(3, 1), length=1, backend=backend)
    assert_close(y, x * weight[:, 0], 1e-7)
    assert after.shape == (2, 0, 3)


@on_the_cpu
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32_and_rounded_once(backend, dtype, restarts):
    x, history = torch.randn(2, 40, 5).to(dtype), torch.randn(2, 19, 5).to(dtype)
    weight, position = torch.randn(5, 3), torch.rand(5, 3) * 19
    options = {"length": 20, "reset": torch.rand(2, 40) < 0.1 if restarts else None, "backend": backend}
    y, after = delay_conv(x, weight, position, history=history, **options)
    wide, wide_after = delay_conv(x.float(), weight, position, history=history.float(), **options)
    assert y.dtype == after.dtype == dtype
    assert torch.equal(y, wide.to(dtype))
    assert torch.equal(after, wide_after.to(dtype))


@on_the_cpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gradients_are_computed_in_float32_and_rounded_once(backend, dtype):
    x, weight = torch.randn(2, 40, 5).to(dtype).requires_grad_(), torch.randn(5, 3).to(dtype).requires_grad_()
    wide_x, wide_weight = (t.detach().float().requires_grad_() for t in (x, weight))
    pull = torch.randn(2, 40, 5).to(dtype)
    y, _ = dilated_conv(x, weight, dilation=2, backend=backend)
    wide, _ = dilated_conv(wide_x, wide_weight, dilation=2, backend=backend)
    grads = torch.autograd.grad(y, (x, weight), pull)
    for grad, exact in zip(grads, torch.autograd.grad(wide, (wide_x, wide_weight), pull.float()), strict=True):
        assert grad.dtype == dtype
        assert torch.equal(grad, exact.to(dtype))


def test_restarts_far_apart_and_close_together_in_long_series():
    """Longer than what the C version takes at a time, with restarts near its borders."""
    x, kernel = torch.randn(2, 2100, 3, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    reset = torch.zeros(2, 2100, dtype=torch.bool)
    reset[0, [511, 512, 530, 1023, 2099]] = True
    history = torch.randn(2, 600, 3, dtype=torch.float64)
    found = []
    for backend in ("reference", "c"):
        given = [tensor.clone().requires_grad_() for tensor in (x, kernel, history)]
        y, _ = dilated_conv(*given[:2], dilation=200, history=given[2], reset=reset, backend=backend)
        found.append((y, *torch.autograd.grad(y.square().sum(), given)))
    for one, other in zip(*found, strict=True):
        assert_close(one, other, 1e-12)
