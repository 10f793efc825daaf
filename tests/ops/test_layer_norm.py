"""`layer_norm`: over the channels, which on CUDA keeps time contiguous."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from helpers import (
    GRADIENT_TOLERANCE,
    INTERPRETED,
    TOLERANCE,
    TRITON_DEVICE,
    assert_close,
    backend_param,
    compiled,
    from_end_to_end,
    gappy,
    transposed,
)
from mgrade.ops.layer_norm import MAX_FUSED, layer_norm

on_triton = pytest.mark.parametrize("backend", [backend_param("triton")])
EPS = 1e-5
SHAPES = [(2, 17, 5), (3, 2, 16), (1, 40, 33), (1, 1, 7), (5, 16, 3), (2, 0, 3), (0, 5, 3), (1, 3, 160)]
SHAPES += (
    [(1, 2, 512)] if INTERPRETED else [(64, 1024, 160), (3, 1000, 64), (2, 16385, 128), (7, 99, 512), (2, 65, 500)]
)
PARAMETERS = [("scale", "shift"), ("scale",), ("shift",), ()]


def by_torch(x, scale=None, shift=None, base=0, keep=None):
    y = F.layer_norm(x, x.shape[-1:], scale, shift, EPS)
    return base + (y if keep is None else 1.25 * keep * y)


def on_device(x, scale=None, shift=None, base=None, keep=None):
    return torch.ops.mgrade.layer_norm(x, scale, shift, base, keep, 1.25, EPS)


def results(call, x, parameters, pull, **more):
    """Output and all gradients, by name."""
    tensors = {"x": x, **parameters}
    y = call(**tensors, **more)
    grads = torch.autograd.grad(y, list(tensors.values()), pull.to(y.dtype))
    return {"output": y, **dict(zip(tensors, grads, strict=True))}


def exactly(x, parameters, pull, **more):
    wide = {name: tensor.detach().double().requires_grad_() for name, tensor in {"x": x, **parameters}.items()}
    return results(by_torch, wide.pop("x"), wide, pull, **more)


def sample(shape, names=("scale", "shift"), dtype=torch.float32, device=TRITON_DEVICE):
    x, pull = (torch.randn(shape, device=device).to(dtype) for _ in range(2))
    x = (3 * x + 2).requires_grad_()  # not normal already
    return x, {name: torch.randn(shape[-1], device=device, requires_grad=True) for name in names}, pull


def wider(tensor):
    """The same tensor as some channels and steps of a larger one, time contiguous."""
    padded = F.pad(tensor, (1, 2) * tensor.dim(), value=float("nan"))
    return transposed(padded)[(slice(1, -2),) * tensor.dim()]


@on_triton
@pytest.mark.parametrize("names", PARAMETERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_outputs_and_gradients_are_pytorchs(backend, shape, names):
    x, parameters, pull = sample(shape, names)
    actual, expected = results(on_device, x, parameters, pull), exactly(x, parameters, pull)
    assert actual["output"].stride(1) == 1
    for name, tensor in expected.items():
        assert_close(actual[name], tensor, TOLERANCE[torch.float32] if name == "output" else GRADIENT_TOLERANCE)


@on_triton
@pytest.mark.parametrize("names", [("scale", "shift"), ()])
@pytest.mark.parametrize("drops", ["nothing", "values", "channels"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_norm_with_dropout_and_a_skip_is_pytorchs(backend, shape, dtype, drops, names):
    x, parameters, pull = sample(shape, names, dtype)
    parameters["base"] = wider(torch.randn_like(x)).detach().requires_grad_()
    some = {"nothing": None, "values": shape, "channels": (shape[0], 1, shape[2])}[drops]
    keep = None if some is None else torch.randint(2, some, dtype=torch.uint8, device=TRITON_DEVICE)
    actual, expected = (call(x, parameters, pull, keep=keep) for call in (partial(results, on_device), exactly))
    assert actual["output"].dtype == dtype
    for name, tensor in expected.items():
        tolerance = 2**-7 if dtype == torch.bfloat16 else TOLERANCE[dtype] if name == "output" else GRADIENT_TOLERANCE
        assert_close(actual[name], tensor, tolerance, what=name)


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if TRITON_DEVICE == "cuda" else [])])
@pytest.mark.parametrize("whole", [False, True])
def test_dropout_leaves_its_share_out_before_the_skip(device, whole):
    x, base = torch.randn(2, 40, 50, 16, device=device)
    normal = layer_norm(x, None, None)
    for autocast in (False, True):
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            added = layer_norm(x, None, None, base=base, dropout=0.25, whole=whole) - base
        gone = added.abs() < 1e-6
        assert 0.2 < gone.float().mean() < 0.3
        assert_close(added[~gone], normal[~gone] / 0.75, 1e-5)
        assert whole == from_end_to_end(gone)


@on_triton
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_half_precision_is_rounded_at_the_ends_alone(backend, shape, dtype):
    x, parameters, pull = sample(shape, dtype=dtype)
    actual, expected = results(on_device, x, parameters, pull), exactly(x, parameters, pull)
    assert actual["output"].dtype == actual["x"].dtype == dtype
    for name, tensor in expected.items():
        in_float32 = name in parameters
        assert not in_float32 or actual[name].dtype == torch.float32
        assert_close(actual[name], tensor, GRADIENT_TOLERANCE if in_float32 else torch.finfo(dtype).eps, what=name)


@on_triton
@pytest.mark.parametrize("layout", [transposed, gappy, wider])
@pytest.mark.parametrize("shape", [(2, 17, 5), (3, 1, 4)])
def test_the_layout_of_the_inputs_makes_no_difference(backend, shape, layout):
    x, parameters, pull = sample(shape)
    expected = results(on_device, x, parameters, pull)
    laid = {name: layout(tensor.detach()).requires_grad_() for name, tensor in {"x": x, **parameters}.items()}
    actual = results(on_device, laid.pop("x"), laid, layout(pull))
    for name, tensor in expected.items():
        assert_close(actual[name], tensor, 1e-6, what=name)


@on_triton
def test_steps_do_not_see_each_other(backend):
    x, parameters, pull = sample((2, 40, 6))
    expected = results(on_device, x, parameters, pull)
    with torch.no_grad():
        x[:, 20] = float("nan")
    actual = results(on_device, x, parameters, pull)
    others = torch.arange(40) != 20
    for name in ("output", "x"):
        assert torch.equal(actual[name][:, others], expected[name][:, others])
        assert actual[name][:, 20].isnan().all()


@on_triton
@pytest.mark.parametrize("frozen", ["x", "scale", "shift"])
def test_gradients_come_for_what_wants_them(backend, frozen):
    x, parameters, pull = sample((2, 9, 5))
    expected = results(on_device, x, parameters, pull)
    tensors = {"x": x, **parameters}
    wanted = [name for name in tensors if name != frozen]
    y = on_device(**{name: tensor.detach() if name == frozen else tensor for name, tensor in tensors.items()})
    for name, grad in zip(wanted, torch.autograd.grad(y, [tensors[name] for name in wanted], pull), strict=True):
        assert torch.equal(grad, expected[name])


@on_triton
def test_pytorch_finds_the_operators_well_formed(backend):
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    for names in PARAMETERS:
        x, parameters, pull = sample((2, 5, 3), names)
        scale, shift = (parameters.get(name) for name in ("scale", "shift"))
        keep, base = (
            torch.ones(2, 5, 3, dtype=torch.uint8, device=TRITON_DEVICE),
            torch.randn_like(x, requires_grad=True),
        )
        for added in ((None, None), (base, keep)):
            arguments = (x, scale, shift, *added, 1.25, EPS)
            torch.library.opcheck(torch.ops.mgrade.layer_norm.default, arguments, test_utils=checks)
            arguments = (pull, x.detach(), None if scale is None else scale.detach(), added[1], 1.25, bool(names), EPS)
            backward = torch.ops.mgrade.layer_norm_backward.default
            torch.library.opcheck(backward, arguments, test_utils=("test_schema", "test_faketensor"))


@on_triton
def test_compiled_it_is_what_it_is_eagerly(backend):
    x, parameters, pull = sample((2, 17, 5))
    expected = results(on_device, x, parameters, pull)
    actual = results(compiled(on_device, backend="aot_eager"), x, parameters, pull)
    for name, tensor in expected.items():
        assert_close(actual[name], tensor, 1e-6, what=name)


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if TRITON_DEVICE == "cuda" else [])])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(2, 9, 5), (3, 4), (1, 2, MAX_FUSED + 1)])
@pytest.mark.parametrize("names", PARAMETERS)
def test_the_public_function_is_pytorchs_on_every_device_shape_and_dtype(device, dtype, shape, names):
    x = (3 * torch.randn(shape, dtype=dtype, device=device) + 2).requires_grad_()
    parameters = dict.fromkeys(("scale", "shift"))
    given = {name: torch.randn(shape[-1], dtype=dtype, device=device, requires_grad=True) for name in names}
    pull = torch.randn_like(x)
    call = lambda x, **given: layer_norm(x, **(parameters | given))  # noqa: E731
    actual, expected = results(call, x, given, pull), exactly(x, given, pull)
    assert actual["output"].dtype == dtype
    for name, tensor in expected.items():
        assert_close(actual[name], tensor, GRADIENT_TOLERANCE, what=name)


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if TRITON_DEVICE == "cuda" else [])])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_norm_keeps_the_type_of_its_input_under_autocast(device, dtype):
    x, scale, shift = torch.randn(2, 5, 16, dtype=dtype), torch.randn(16), torch.randn(16)
    with torch.autocast(device, torch.bfloat16):
        y = layer_norm(x.to(device), scale.to(device), shift.to(device)).cpu()
    assert y.dtype == dtype
    exact = F.layer_norm(x.double(), (16,), scale.double(), shift.double())
    assert_close(y, exact, 1e-6 if dtype == torch.float32 else 1e-2)


@on_triton
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernels_keep_the_type_of_their_input_under_autocast(backend, dtype):
    x, parameters, pull = sample((2, 5, 16), dtype=dtype)
    expected = results(on_device, x, parameters, pull)
    with torch.autocast(TRITON_DEVICE, torch.bfloat16):
        actual = results(on_device, x, parameters, pull)
    for name, tensor in expected.items():
        assert actual[name].dtype == tensor.dtype
        assert torch.equal(actual[name], tensor), name
