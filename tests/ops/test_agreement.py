"""Every fast version gives what the float64 reference gives: outputs, final states and all gradients."""

import itertools

import pytest
import torch

from helpers import (
    DIAGONAL,
    GATED,
    GATED_ALONG_TIME,
    INTERPRETED,
    RECURRENCE,
    TRITON_DEVICE,
    assert_agrees,
    backend_param,
    delay,
    dilated,
    each_operator,
    gradients,
    some,
)

GRID = list(itertools.product((1, 3, 64), (1, 2, 7, 1000, 16384), (1, 5, 64, 130)))
# On the CPU the reference takes too long for the largest shapes: there the C version in float64, which the others
# hold to the reference, stands in for it; and what is larger still is left to the GPU.
REFERENCE_UP_TO, CPU_UP_TO, RESETS_UP_TO = 4_200_000, 9_000_000, 400_000
# Triton's interpreter takes seconds for what a GPU does in microseconds: small shapes, beside and across tiles.
SMALL = [(1, 1, 1), (3, 2, 5), (2, 7, 9), (2, 16, 8), (1, 35, 3)]

SCANS_AND_FILTERS = {"gated_scan": GATED, "delay_conv": delay(20)}
ON_TRITON = SCANS_AND_FILTERS | {"gated_scan_along_time": GATED_ALONG_TIME, "diagonal_scan": DIAGONAL}


def size(shape: tuple[int, int, int]) -> int:
    return shape[0] * shape[1] * shape[2]


def share(shape: tuple[int, int, int]) -> float:
    """How often a sequence restarts: now and then, in short ones more often."""
    return 0.2 if shape[1] < 10 else 0.005


def cells(shapes, limit=CPU_UP_TO):
    """Every shape without restarts and, unless it is one of the largest, with some."""
    return [
        pytest.param(shape, restarts, id=f"{'x'.join(map(str, shape))}-{'resets' if restarts else 'plain'}")
        for shape in shapes
        if size(shape) <= limit
        for restarts in (False, True)
        if not restarts or size(shape) <= RESETS_UP_TO
    ]


@pytest.mark.parametrize(("shape", "restarts"), cells(GRID))
@pytest.mark.parametrize(("name", "backend"), [backend_param("c", name, name=name) for name in SCANS_AND_FILTERS])
def test_c_agrees_with_the_reference_on_every_shape(name, backend, shape, restarts):
    operator = SCANS_AND_FILTERS[name]
    tensors = operator.sample(*shape, torch.float32)
    reset = some(*shape[:2], share(shape)) if restarts else None
    truth = "reference" if size(shape) <= REFERENCE_UP_TO else "c"
    assert_agrees(operator, tensors, reset, backend, truth)


@pytest.mark.parametrize(("shape", "restarts"), cells(SMALL) if INTERPRETED else cells(GRID, limit=10**9))
@pytest.mark.parametrize(("name", "backend"), [backend_param("triton", name, name=name) for name in ON_TRITON])
def test_triton_agrees_with_the_reference_on_every_shape(name, backend, shape, restarts):
    operator = ON_TRITON[name]
    tensors = operator.sample(*shape, torch.float32, TRITON_DEVICE)
    reset = some(*shape[:2], share(shape), TRITON_DEVICE) if restarts else None
    assert_agrees(operator, tensors, reset, backend)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("operator", "backend"),
    [
        backend_param("c", RECURRENCE, name="gated_recurrence"),
        backend_param("triton", RECURRENCE, name="gated_recurrence"),
        backend_param("c", delay(9, skip=True), name="delay_conv_skip"),
        backend_param("triton", delay(9, skip=True), name="delay_conv_skip"),
        *(backend_param("c", dilated(n), name=f"dilated_conv-{n}") for n in (1, 3, 40)),
        *(
            backend_param("triton", dilated(n, taps, skip=taps == 2), name=f"dilated_conv-{n}-{taps}")
            for n, taps in ((1, 3), (3, 1), (3, 2), (3, 3), (2, 20))
        ),
        backend_param("c", DIAGONAL, name="diagonal_scan"),
    ],
)
def test_the_other_operators_agree_as_well(operator, backend, restarts):
    device = TRITON_DEVICE if backend == "triton" else "cpu"
    shape = (2, 20, 9) if backend == "triton" else (3, 1000, 33)
    tensors = operator.sample(*shape, torch.float32, device)
    assert_agrees(operator, tensors, some(*shape[:2], device=device) if restarts else None, backend)


@pytest.mark.parametrize("backend", [backend_param("c"), backend_param("triton")])
@pytest.mark.parametrize("sigma", [0.05, 3.0, 500.0])
def test_narrow_and_wide_taps_agree(backend, sigma):
    device = TRITON_DEVICE if backend == "triton" else "cpu"
    operator = delay(length=30, taps=4, sigma=sigma)
    tensors = operator.sample(2, 12, 5, torch.float32, device)
    with torch.no_grad():
        tensors["position"][:, 0].round_()  # a narrow tap between two delays is as good as none
    assert_agrees(operator, tensors, None, backend)


@each_operator("c", mixing=False)
def test_c_gives_the_same_bits_on_any_number_of_threads(operator, backend):
    tensors, reset = operator.sample(9, 300, 40, torch.float32), some(9, 300, 0.01)
    pulls = operator.pulls(tensors)
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(gradients(operator, tensors, pulls, reset=reset, backend=backend))
    finally:
        torch.set_num_threads(1)
    for name, result in results[0].items():
        assert all(torch.equal(result, other[name]) for other in results[1:]), name
