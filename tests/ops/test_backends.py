"""Which implementation serves a call: the fastest that fits, or the one asked for."""

import pytest
import torch

from helpers import GATED, backend_param, delay
from mgrade.ops import BACKENDS, _backend, available, delay_conv, diagonal_scan, gated_scan


@pytest.fixture
def no_c(monkeypatch):
    monkeypatch.setattr(_backend, "HAS_C", False)


def test_the_reference_is_always_there_and_comes_first():
    assert available()[0] == "reference"
    assert set(available()) <= set(BACKENDS)


@pytest.mark.parametrize("backend", [backend_param("c")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64])
def test_on_the_cpu_auto_is_c_wherever_it_was_built(backend, dtype):
    assert _backend.choose("auto", torch.zeros(1, dtype=dtype)) == backend


def test_without_c_the_reference_serves(no_c):
    assert _backend.choose("auto", torch.zeros(1)) == "reference"
    assert "c" not in available()


def test_without_c_results_are_the_same_to_rounding(no_c):
    for operator in (GATED, delay(9)):
        tensors = operator.sample(2, 20, 3)
        for actual, expected in zip(operator(tensors), operator(tensors, backend="reference"), strict=True):
            assert torch.equal(actual, expected)


@pytest.mark.parametrize("backend", ["cuda", "", "C", "Reference"])
def test_an_unknown_backend_is_refused_with_those_that_exist(backend):
    x = torch.zeros(1, 2, 3)
    calls = (
        lambda: gated_scan(x, x, backend=backend),
        lambda: delay_conv(x, torch.ones(3, 1), torch.zeros(3, 1), length=2, backend=backend),
        lambda: diagonal_scan(torch.ones(3).cfloat(), x.cfloat(), backend=backend),
    )
    for call in calls:
        with pytest.raises(ValueError, match=r"^backend must be one of auto, reference, c, triton, got '.*'$"):
            call()


def test_a_backend_that_is_not_here_is_refused_with_those_that_are(no_c):
    x = torch.zeros(1, 2, 3)
    with pytest.raises(ValueError, match=r"^backend 'c' cannot run torch.float32 tensors on cpu here; available: ref"):
        gated_scan(x, x, backend="c")


def test_triton_refuses_what_it_has_no_kernel_for():
    wide = torch.zeros(1, 2, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"^backend 'triton' cannot run torch.float64 tensors on cpu here"):
        gated_scan(wide, wide, backend="triton")
    with pytest.raises(ValueError, match=r"^backend 'triton' cannot run torch.complex128 tensors on cpu here"):
        diagonal_scan(torch.ones(3).cdouble(), wide.cdouble(), backend="triton")


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_sums_are_kept_in_float32_at_least(dtype, wide):
    assert _backend.accumulator(dtype) == wide
