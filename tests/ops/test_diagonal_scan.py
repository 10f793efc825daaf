"""`diagonal_scan`: h_t = decay h_{t-1} + drive_t, complex, one decay per channel."""

import math

import pytest
import torch

from helpers import (
    DIAGONAL,
    GRADIENT_TOLERANCE,
    INTERPRETED,
    TRITON_DEVICE,
    assert_agrees,
    assert_close,
    backend_param,
    gradients,
    place,
    some,
)
from mgrade.ops import diagonal_scan, diagonal_scan_pairs

every_backend = pytest.mark.parametrize("backend", [backend_param(b) for b in ("reference", "c", "triton")])
with_triton = pytest.mark.parametrize("backend", [backend_param("triton")])


def pairs(numbers):
    """Real and imaginary parts side by side, as the last axis."""
    return torch.view_as_real(numbers.resolve_conj()).flatten(-2)


@every_backend
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_it_is_the_recurrence_written_out(backend, dtype):
    if (backend, dtype) == ("triton", torch.complex128):
        pytest.skip("Triton has it in complex64 only")
    tensors = DIAGONAL.sample(2, 9, 3, dtype, place(backend)["device"])
    decay, drive, state = tensors["decay"], tensors["drive"], tensors["initial"]
    h, last = diagonal_scan(decay, drive, state, backend=backend)
    assert h.dtype == last.dtype == dtype
    for t in range(9):
        state = decay * state + drive[:, t]
        assert_close(h[:, t], state, 1e-6 if dtype == torch.complex64 else 1e-14)
    assert torch.equal(last, h[:, -1])


@every_backend
def test_a_quarter_turn_per_step_comes_back_after_four(backend):
    decay = torch.tensor([complex(0, 1)], device=place(backend)["device"])
    drive = torch.zeros(1, 5, 1, dtype=torch.complex64, device=decay.device)
    drive[0, 0] = 1
    h, _ = diagonal_scan(decay, drive, backend=backend)
    assert h.flatten().tolist() == [1, 1j, -1, -1j, 1]


@pytest.mark.parametrize("backend", [backend_param("c"), backend_param("triton")])
def test_slow_decays_stay_accurate_over_long_sequences(backend):
    time = 70 if backend == "triton" and INTERPRETED else 16384
    decay = torch.polar(torch.tensor([0.9999, 0.999, 0.99, 0.5]), torch.tensor([1.234, math.pi / 7, 0.0, 3.0]))
    decay = decay.to(place(backend)["device"])
    drive = torch.ones(1, time, 4, dtype=torch.complex64, device=decay.device)
    tensors = {"decay": decay, "drive": drive, "initial": drive[:, 0].clone()}
    actual = gradients(DIAGONAL, tensors, (drive, drive[:, 0]), backend=backend)
    wide = {name: tensor.to(torch.complex128) for name, tensor in tensors.items()}
    expected = gradients(DIAGONAL, wide, (drive, drive[:, 0]), backend="reference")
    for name in ("output", "state", "drive", "initial"):
        for channel in range(4):
            assert_close(actual[name][..., channel], expected[name][..., channel], 1e-5, what=f"{name} {channel}")
    assert_close(actual["decay"], expected["decay"], GRADIENT_TOLERANCE)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 7, 5), (3, 1000, 130), (64, 100, 64)])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("backend", [backend_param("c")])
def test_c_agrees_with_the_reference(backend, shape, restarts):
    tensors = DIAGONAL.sample(*shape, torch.float32)
    assert_agrees(DIAGONAL, tensors, some(*shape[:2]) if restarts else None, backend)


@every_backend
@pytest.mark.parametrize("options", ["plain", "resets", "lengths", "both"])
def test_pairs_of_real_numbers_do_as_well_as_complex_ones(backend, options):
    tensors = DIAGONAL.sample(3, 18, 4, torch.float32, place(backend)["device"])
    device = tensors["decay"].device
    given = {"reset": some(3, 18, device=str(device))} if options in ("resets", "both") else {}
    if options in ("lengths", "both"):
        given["lengths"] = torch.tensor([18, 0, 17], device=device)
    pulls = DIAGONAL.pulls(tensors)
    expected = gradients(DIAGONAL, tensors, pulls, **given, backend="reference")
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in tensors.items()}
    h, last = diagonal_scan_pairs(leaves["decay"], pairs(leaves["drive"]), leaves["initial"], **given, backend=backend)
    grads = torch.autograd.grad((h, last), list(leaves.values()), (pairs(pulls[0]), pulls[1]))
    assert_close(h, pairs(expected["output"]), 2e-6)
    assert_close(last, expected["state"], 2e-6)
    for (name, leaf), grad in zip(leaves.items(), grads, strict=True):
        assert grad.dtype == leaf.dtype
        assert_close(grad, expected[name], GRADIENT_TOLERANCE, what=name)


@every_backend
def test_half_precision_is_computed_in_complex64_and_rounded_once(backend):
    tensors = {
        name: t.detach() for name, t in DIAGONAL.sample(2, 33, 3, torch.float32, place(backend)["device"]).items()
    }
    drive, others = pairs(tensors.pop("drive")).half().requires_grad_(), tensors
    h, last = diagonal_scan_pairs(drive=drive, **others, backend=backend)
    wide, wide_last = diagonal_scan_pairs(drive=drive.float(), **others, backend=backend)
    assert h.dtype == torch.float16
    assert last.dtype == torch.complex64
    assert torch.equal(h, wide.half())
    assert torch.equal(last, wide_last)
    short = torch.tensor([5, 33], device=h.device)
    _, cut = diagonal_scan_pairs(drive=drive, **others, lengths=short, backend=backend)
    assert_close(cut, torch.stack([torch.view_as_complex(wide[0, 4].contiguous().view(3, 2)), wide_last[1]]), 1e-6)
    assert torch.autograd.grad(h.float().sum(), drive)[0].dtype == torch.float16


def test_pairs_are_refused_where_they_do_not_fit():
    decay, drive = torch.zeros(3).cfloat(), torch.zeros(2, 5, 6)
    with pytest.raises(ValueError, match=r"^drive must have pairs of channels, real and imaginary, got 5 channels$"):
        diagonal_scan_pairs(decay, drive[..., :5])
    with pytest.raises(ValueError, match=r"^drive must be a floating-point tensor, got torch.complex64$"):
        diagonal_scan_pairs(decay, drive.cfloat())
    with pytest.raises(
        ValueError, match=r"^decay must have the dtype of drive, torch.complex64, got torch.complex128$"
    ):
        diagonal_scan_pairs(decay.cdouble(), drive)
    with pytest.raises(ValueError, match=r"^initial must be a complex tensor, got torch.float32$"):
        diagonal_scan_pairs(decay, drive, torch.zeros(2, 3))


@pytest.fixture
def few_programs(monkeypatch):
    """Triton with spans of several tiles, as long sequences have them; returns the steps of eight tiles."""
    triton = pytest.importorskip("mgrade.ops.diagonal_scan.triton", exc_type=ImportError)
    monkeypatch.setattr(triton, "_ENOUGH", 2)
    return 8 * triton._TIME - 3


@with_triton
@pytest.mark.parametrize("restarts", [0.0, 0.02])
def test_spans_of_several_tiles_agree_with_the_reference(backend, few_programs, restarts):
    tensors = DIAGONAL.sample(1, few_programs, 2, torch.float32, TRITON_DEVICE)
    reset = some(1, few_programs, restarts, TRITON_DEVICE) if restarts else None
    with torch.no_grad():
        tensors["decay"].mul_(1.1)  # a long memory, so that spans matter to each other
    assert_agrees(DIAGONAL, tensors, reset, backend)


@with_triton
def test_no_number_that_is_none_passes_a_restart_in_a_span_of_several_tiles(backend, few_programs):
    tensors = {key: t.detach() for key, t in DIAGONAL.sample(1, few_programs, 1, torch.float32, TRITON_DEVICE).items()}
    restart = few_programs // 7  # in the second tile
    tensors["drive"][:, 2] = float("nan")
    reset = torch.zeros(1, few_programs, dtype=torch.bool, device=TRITON_DEVICE)
    reset[:, restart] = True
    h, last = diagonal_scan(**tensors, reset=reset, backend=backend)
    assert h[:, 2:restart].isnan().all()
    assert h[:, restart:].isfinite().all()
    assert last.isfinite().all()
