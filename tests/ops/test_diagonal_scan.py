"""`diagonal_scan`: h_t = decay h_{t-1} + drive_t, complex, one decay per channel."""

import math

import pytest
import torch

from helpers import DIAGONAL, assert_agrees, assert_close, backend_param, some
from mgrade.ops import diagonal_scan

on_the_cpu = pytest.mark.parametrize("backend", [backend_param(b) for b in ("reference", "c")])


@on_the_cpu
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_it_is_the_recurrence_written_out(backend, dtype):
    tensors = DIAGONAL.sample(2, 9, 3, dtype)
    decay, drive, state = tensors["decay"], tensors["drive"], tensors["initial"]
    h, last = diagonal_scan(decay, drive, state, backend=backend)
    assert h.dtype == last.dtype == dtype
    for t in range(9):
        state = decay * state + drive[:, t]
        assert_close(h[:, t], state, 1e-6 if dtype == torch.complex64 else 1e-14)
    assert torch.equal(last, h[:, -1])


@on_the_cpu
def test_a_quarter_turn_per_step_comes_back_after_four(backend):
    decay = torch.tensor([complex(0, 1)])
    drive = torch.zeros(1, 5, 1, dtype=torch.complex64)
    drive[0, 0] = 1
    h, _ = diagonal_scan(decay, drive, backend=backend)
    assert h.flatten().tolist() == [1, 1j, -1, -1j, 1]


@on_the_cpu
def test_slow_decays_stay_accurate_over_long_sequences(backend):
    decay = torch.polar(torch.tensor([0.999, 0.99, 0.5]), torch.tensor([math.pi / 7, 0.0, 3.0]))
    drive = torch.ones(1, 4000, 3, dtype=torch.complex64)
    h, _ = diagonal_scan(decay, drive, backend=backend)
    wide = decay.to(torch.complex128)
    limit = (1 - wide**4000) / (1 - wide)
    assert_close(h[0, -1], limit, 1e-5)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 7, 5), (3, 1000, 130), (64, 100, 64)])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("backend", [backend_param("c")])
def test_c_agrees_with_the_reference(backend, shape, restarts):
    tensors = DIAGONAL.sample(*shape, torch.float32)
    assert_agrees(DIAGONAL, tensors, some(*shape[:2]) if restarts else None, backend)
