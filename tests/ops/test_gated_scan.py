"""`gated_scan`: h_t = (1 - s(gate_t)) h_{t-1} + s(gate_t) candidate_t."""

import subprocess
import sys

import pytest
import torch

from helpers import GATED, GATED_ALONG_TIME, TRITON_DEVICE, assert_agrees, assert_close, backend_param, some
from mgrade.ops import gated_recurrence, gated_scan

every_backend = pytest.mark.parametrize("backend", [backend_param(b) for b in ("reference", "c", "triton")])
on_the_cpu = pytest.mark.parametrize("backend", [backend_param(b) for b in ("reference", "c")])


def on(backend, *values):
    device = TRITON_DEVICE if backend == "triton" else "cpu"
    return tuple(torch.as_tensor(value, dtype=torch.float32, device=device) for value in values)


@every_backend
def test_it_is_the_recurrence_written_out(backend):
    gate, candidate, state = on(backend, torch.randn(2, 9, 3), torch.randn(2, 9, 3), torch.randn(2, 3))
    h, last = gated_scan(gate, candidate, state, backend=backend)
    for t in range(9):
        opening = 1 / (1 + torch.exp(-gate[:, t]))
        state = (1 - opening) * state + opening * candidate[:, t]
        assert_close(h[:, t], state, 2e-6)
    assert_close(last, h[:, -1], 1e-7 if backend == "triton" else 0.0)  # in parallel it comes by another order of sums


@every_backend
def test_a_shut_gate_keeps_the_state_and_an_open_one_replaces_it(backend):
    infinity = float("inf")
    gate, candidate, initial = on(backend, [[[-infinity], [infinity], [-infinity]]], [[[2.0], [3.0], [4.0]]], [[1.0]])
    h, last = gated_scan(gate, candidate, initial, backend=backend)
    assert h.flatten().tolist() == [1.0, 3.0, 3.0]
    assert last.tolist() == [[3.0]]


@every_backend
@pytest.mark.parametrize("logit", [-80.0, -20.0, -1e-3, 0.0, 20.0, 80.0])
def test_what_is_kept_and_what_is_let_in_are_exact_at_both_ends(backend, logit):
    gate, one, zero = on(backend, [[[logit]]], [[[1.0]]], [[0.0]])
    let_in, _ = gated_scan(gate, one, zero, backend=backend)
    kept, _ = gated_scan(gate, zero[:, None], one[:, 0], backend=backend)
    exact = torch.tensor([[[logit]]], dtype=torch.float64)
    assert_close(let_in.cpu(), torch.sigmoid(exact), 1e-6)
    assert_close(kept.cpu(), torch.sigmoid(-exact), 1e-6)


@on_the_cpu
def test_numbers_that_are_not_stay_in_their_channel(backend):
    gate, candidate = torch.randn(1, 4, 37), torch.randn(1, 4, 37)
    clean, _ = gated_scan(gate, candidate, backend=backend)
    gate[0, 1, 5] = float("nan")
    h, last = gated_scan(gate, candidate, backend=backend)
    assert h[0, 1:, 5].isnan().all()
    assert last[0, 5].isnan()
    others = torch.arange(37) != 5
    assert torch.equal(h[..., others], clean[..., others])


@every_backend
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32_and_rounded_once(backend, dtype):
    if (backend, dtype, TRITON_DEVICE) == ("triton", torch.bfloat16, "cpu"):
        pytest.skip("Triton's interpreter cuts bfloat16 off instead of rounding it")
    gate, candidate = (t.to(dtype) for t in on(backend, torch.randn(2, 33, 5), torch.randn(2, 33, 5)))
    (initial,) = on(backend, torch.randn(2, 5))
    h, last = gated_scan(gate, candidate, initial, backend=backend)
    wide, wide_last = gated_scan(gate.float(), candidate.float(), initial, backend=backend)
    assert h.dtype == dtype
    assert torch.equal(h, wide.to(dtype))
    assert last.dtype == torch.float32
    assert torch.equal(last, wide_last)


@every_backend
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gradients_come_in_the_dtype_of_their_inputs(backend, dtype):
    tensors = [t.to(dtype).requires_grad_() for t in on(backend, torch.randn(2, 7, 5), torch.randn(2, 7, 5))]
    (initial,) = (t.requires_grad_() for t in on(backend, torch.randn(2, 5)))
    wide = [t.detach().float().requires_grad_() for t in (*tensors, initial)]
    grads = torch.autograd.grad(gated_scan(*tensors, initial, backend=backend)[0].float().sum(), [*tensors, initial])
    expected = torch.autograd.grad(gated_scan(*wide, backend=backend)[0].sum(), wide)
    assert [grad.dtype for grad in grads] == [dtype, dtype, torch.float32]
    for grad, exact in zip(grads, expected, strict=True):  # h was rounded on its way to the backward pass
        assert_close(grad, exact, 4 * torch.finfo(dtype).eps)


def test_streaming_in_half_precision_loses_nothing_between_chunks():
    gate, candidate = torch.randn(2, 50, 5).bfloat16(), torch.randn(2, 50, 5).bfloat16()
    whole, last = gated_scan(gate, candidate)
    state, pieces = None, []
    for t in range(50):
        h, state = gated_scan(gate[:, t : t + 1], candidate[:, t : t + 1], state)
        pieces.append(h)
    assert torch.equal(torch.cat(pieces, 1), whole)
    assert torch.equal(state, last)


@every_backend
@pytest.mark.parametrize("logit", [-10.0, -4.0, 4.0, 10.0])
def test_gradients_are_as_accurate_for_gates_that_are_all_but_shut_or_open(backend, logit):
    device = TRITON_DEVICE if backend == "triton" else "cpu"
    tensors = GATED.sample(2, 17, 3, torch.float32, device)
    with torch.no_grad():
        tensors["gate"].add_(logit)
    assert_agrees(GATED, tensors, None, backend)


@every_backend
@pytest.mark.parametrize(("hidden", "skip"), [(3, False), (3, True), (5, False), (2, False)])
def test_the_recurrence_with_its_linear_layer_is_the_scan_of_what_the_layer_makes(backend, hidden, skip):
    shapes = ((2, 9, 3), (2 * hidden, 3), (2 * hidden,), (2, hidden))
    x, weight, bias, initial = on(backend, *map(torch.randn, shapes))
    y, last = gated_recurrence(x, weight, bias, initial, skip=skip, backend=backend)
    gate, candidate = torch.nn.functional.linear(x, weight, bias).chunk(2, -1)
    h, expected = gated_scan(gate, candidate, initial, backend=backend)
    assert_close(y, h + x if skip else h, 2e-6)
    assert_close(last, expected, 2e-6)


@pytest.mark.parametrize("backend", [backend_param("reference"), backend_param("c")])
def test_lengths_that_nobody_checked_do_not_break_the_process(backend):
    """Compiled code cannot look at values: lengths then reach the kernels as they are."""
    code = f"""
import torch, mgrade.ops
from mgrade.ops import _check
_check.values_visible = lambda tensor: False
x = torch.randn(2, 5, 3, requires_grad=True)
for length in (6, -1, 10**6, -(10**6)):
    h, last = mgrade.ops.gated_scan(x, x, lengths=torch.tensor([length, 3]), backend="{backend}")
    (h.sum() + last.sum()).backward()
    print(length, flush=True)
"""
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert run.stdout.split() == ["6", "-1", "1000000", "-1000000"]
    assert run.returncode == 0


@pytest.fixture(params=["time", "channels"])
def few_programs(monkeypatch, request):
    """Triton with spans of several tiles, as long sequences have them, in either layout; and the steps of 8 tiles."""
    along = pytest.importorskip("mgrade.ops.gated_scan.triton", exc_type=ImportError)
    across = pytest.importorskip("mgrade.ops.gated_scan.triton_across", exc_type=ImportError)
    for module in (along, across):
        monkeypatch.setattr(module, "_ENOUGH", 2)
    if request.param == "time":
        return GATED_ALONG_TIME, 8 * along._TIME - 3
    return GATED, 8 * across.FORWARD.runs * across.FORWARD.steps - 3


@pytest.mark.parametrize("backend", [backend_param("triton")])
@pytest.mark.parametrize("restarts", [0.0, 0.02])
def test_spans_of_several_tiles_agree_with_the_reference(backend, few_programs, restarts):
    operator, time = few_programs
    tensors = operator.sample(1, time, 2, torch.float32, TRITON_DEVICE)
    reset = some(1, time, restarts, TRITON_DEVICE) if restarts else None
    with torch.no_grad():
        tensors["gate"].sub_(4)  # a long memory, so that spans matter to each other
    assert_agrees(operator, tensors, reset, backend)


@pytest.mark.parametrize("backend", [backend_param("triton")])
@pytest.mark.parametrize("name", ["gate", "candidate"])
def test_no_number_that_is_none_passes_a_restart_in_a_span_of_several_tiles(backend, few_programs, name):
    operator, time = few_programs
    tensors = {key: tensor.detach() for key, tensor in operator.sample(1, time, 1, torch.float32).items()}
    tensors = {key: tensor.to(TRITON_DEVICE) for key, tensor in tensors.items()}
    restart = time // 7  # in the second tile
    tensors[name][:, 2] = float("nan")
    reset = torch.zeros(1, time, dtype=torch.bool, device=TRITON_DEVICE)
    reset[:, restart] = True
    h, last = operator(tensors, reset=reset, backend=backend)
    assert h[:, 2:restart].isnan().all()
    assert h[:, restart:].isfinite().all()
    assert last.isfinite().all()


@pytest.mark.parametrize("backend", [backend_param("triton")])
@pytest.mark.parametrize("name", ["gate", "candidate"])
def test_no_number_that_is_none_goes_back_past_a_restart(backend, few_programs, name):
    operator, time = few_programs
    tensors = operator.sample(1, time, 1, torch.float32, TRITON_DEVICE)
    restart = time // 2
    with torch.no_grad():
        tensors[name][:, restart + 1 :: 5] = float("nan")
    reset = torch.zeros(1, time, dtype=torch.bool, device=TRITON_DEVICE)
    reset[:, restart] = True
    h, _ = operator(tensors, reset=reset, backend=backend)
    grads = torch.autograd.grad(h.sum(), [tensors["gate"], tensors["candidate"], tensors["initial"]])
    assert grads[0][:, restart + 1 :].isnan().any()
    assert all(grad[:, :restart].isfinite().all() for grad in grads)


@pytest.mark.parametrize("backend", [backend_param("triton")])
def test_both_directions_cut_time_into_the_same_tiles(backend):
    from mgrade.ops.gated_scan import triton_across as across

    assert across.FORWARD.runs * across.FORWARD.steps == across.BACKWARD.runs * across.BACKWARD.steps


def test_under_autocast_the_wider_of_two_types_is_taken():
    layer, x = torch.nn.Linear(3, 3), torch.randn(2, 7, 3)
    with torch.autocast("cpu", torch.bfloat16):
        gate = layer(x)
        assert gate.dtype == torch.bfloat16
        h, last = gated_scan(gate, x)
        assert (h.dtype, last.dtype) == (torch.float32, torch.float32)
        assert h.equal(gated_scan(gate.float(), x)[0])
    with pytest.raises(ValueError, match=r"candidate must have the dtype of gate"):
        gated_scan(gate, x)
