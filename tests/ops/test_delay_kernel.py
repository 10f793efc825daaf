"""`delay_kernel`: Gaussian taps at fractional positions, drawn into a kernel over delays."""

import math
import subprocess
import sys

import pytest
import torch

from helpers import TRITON_DEVICE, assert_close, backend_param
from mgrade.ops import delay_kernel

every_backend = pytest.mark.parametrize("backend", [backend_param(b) for b in ("reference", "c", "triton")])


def draw(backend, weight, position, **options):
    device = TRITON_DEVICE if backend == "triton" else "cpu"
    weight, position = (torch.as_tensor(t, dtype=torch.float32, device=device) for t in (weight, position))
    return delay_kernel(weight, position, backend=backend, **options).cpu()


@every_backend
@pytest.mark.parametrize("sigma", [0.1, 0.8, 2.5, 40.0, 1e6])
@pytest.mark.parametrize(("length", "taps"), [(1, 1), (2, 3), (13, 2), (300, 4)])
def test_it_is_the_sum_of_gaussians_written_out(backend, sigma, length, taps):
    weight, position = torch.randn(3, taps), torch.rand(3, taps) * (length - 1)
    position[0, 0], position[-1, -1] = 0, length - 1
    expected = torch.tensor(
        [
            [
                sum(w * math.exp(-(((n - p) / sigma) ** 2) / 2) for w, p in zip(ws, ps, strict=True))
                for n in range(length)
            ]
            for ws, ps in zip(weight.tolist(), position.tolist(), strict=True)
        ]
    )
    assert_close(draw(backend, weight, position, length=length, sigma=sigma), expected, 2e-6)


@every_backend
@pytest.mark.parametrize("position", [0, 1, 4])
def test_a_narrow_tap_at_position_p_is_the_weight_of_delay_p(backend, position):
    kernel = draw(backend, [[2.5]], [[position]], length=5, sigma=1e-3)
    assert kernel.tolist() == [[2.5 if n == position else 0.0 for n in range(5)]]


@every_backend
def test_a_tap_half_way_is_shared_by_its_neighbours(backend):
    kernel = draw(backend, [[1.0]], [[1.5]], length=4, sigma=0.5)
    inner, outer = math.exp(-0.5), math.exp(-4.5)
    assert_close(kernel, torch.tensor([[outer, inner, inner, outer]]), 1e-6)


@every_backend
def test_a_very_wide_tap_weighs_all_delays_alike(backend):
    assert_close(draw(backend, [[3.0]], [[2.0]], length=50, sigma=1e5), torch.full((1, 50), 3.0), 1e-6)


@every_backend
def test_taps_at_one_position_add_up(backend):
    both = draw(backend, [[1.0, 2.0]], [[3.25, 3.25]], length=8)
    assert_close(both, draw(backend, [[3.0]], [[3.25]], length=8), 1e-6)


@every_backend
def test_no_channels_are_no_kernel(backend):
    assert draw(backend, torch.ones(0, 2), torch.ones(0, 2), length=4).shape == (0, 4)


@pytest.mark.parametrize("backend", [backend_param("reference"), backend_param("c")])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32_and_rounded_once(backend, dtype):
    weight, position = torch.randn(3, 4).to(dtype), (torch.rand(3, 4) * 8).to(dtype)
    kernel = delay_kernel(weight, position, length=9, backend=backend)
    assert kernel.dtype == dtype
    assert torch.equal(kernel, delay_kernel(weight.float(), position.float(), length=9, backend=backend).to(dtype))


@pytest.mark.parametrize("backend", [backend_param("reference"), backend_param("c")])
def test_positions_that_nobody_checked_do_not_break_the_process(backend):
    """Compiled code cannot look at values: a diverged position then reaches the kernels as it is."""
    code = f"""
import torch, mgrade.ops
weight = torch.ones(2, 1)
for value in ("-3", "7.5", "nan", "-inf", "-1e30", "1e30", "inf"):
    position = torch.full((2, 1), float(value))
    kernel = torch.ops.mgrade.delay_kernel(weight, position, 5, 0.8, "{backend}")
    torch.ops.mgrade.delay_kernel_backward(torch.ones(2, 5), weight, position, 0.8, "{backend}")
    print(value, bool(kernel.isnan().any()), flush=True)
"""
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert run.stdout.splitlines() == [
        "-3 False", "7.5 False", "nan True", "-inf False", "-1e30 False", "1e30 False", "inf False"
    ]  # fmt: skip
    assert run.returncode == 0
