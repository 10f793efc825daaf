"""`linear`, `glu` and `feedforward`: the channel mixing, which on CUDA keeps time contiguous."""

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
    from_end_to_end,
    gappy,
    transposed,
)
from mgrade.ops import feedforward, linear
from mgrade.ops.dropout import dropout
from mgrade.ops.glu import glu
from mgrade.ops.linear import add_product, outer_product, product

on_triton = pytest.mark.parametrize("backend", [backend_param("triton")])
SHAPES = [(1, 1, 1, 1), (2, 17, 5, 9), (3, 2, 16, 32), (2, 0, 3, 4), (0, 5, 3, 4), (1, 7, 70, 20)]
if not INTERPRETED:
    SHAPES += [(3, 1000, 64, 128), (64, 1000, 33, 65), (2, 16384, 128, 256), (1, 7, 100, 260)]


def by_torch(x, w_in, b_in, w_out, b_out, scale=None, shift=None, base=None, factor=1.0):
    z = (x if base is None else base) + factor * F.linear(
        F.gelu(F.linear(x, w_in, b_in), approximate="tanh"), w_out, b_out
    )
    return z if scale is None else F.layer_norm(z, (x.shape[-1],), scale, shift)


def parameters(dim, inner, norm, dtype=torch.float32, device="cpu"):
    shapes = [(inner, dim), (inner,), (dim, inner), (dim,), *([(dim,), (dim,)] if norm else [])]
    drawn = [torch.randn(shape, dtype=dtype, device=device) for shape in shapes]
    return [(p / p.shape[1] ** 0.5 if p.dim() == 2 else p).requires_grad_() for p in drawn]


def assert_same(call, truth, tensors):
    """Outputs and all gradients against the truth in float64."""
    wide = [tensor.detach().double().requires_grad_() for tensor in tensors]
    y, exact = call(*tensors), truth(*wide)
    assert_close(y, exact, TOLERANCE[torch.float32], what="output")
    pull = torch.randn_like(y)
    grads = torch.autograd.grad(y, tensors, pull)
    for index, (grad, wanted) in enumerate(zip(grads, torch.autograd.grad(exact, wide, pull.double()), strict=True)):
        assert_close(grad, wanted, GRADIENT_TOLERANCE, what=f"gradient {index}")


@on_triton
@pytest.mark.parametrize("apart", [False, True], ids=["x", "base"])
@pytest.mark.parametrize("drops", ["nothing", "values", "channels"])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(("batch", "time", "dim", "inner"), SHAPES)
def test_the_fused_end_of_a_layer_is_pytorchs(backend, batch, time, dim, inner, norm, drops, apart):
    if dim == 1 and norm:
        pytest.skip("one channel has no variance: its norm is the rounding of zero")
    x = torch.randn(batch, time, dim, device=TRITON_DEVICE, requires_grad=True)
    base = torch.randn(batch, time, dim, device=TRITON_DEVICE, requires_grad=True)
    tensors = [x, *parameters(dim, inner, norm, device=TRITON_DEVICE), *[base] * apart]
    none, last = [] if norm else [None, None], len(tensors) - apart
    masks = {"nothing": None, "values": (batch, time, dim), "channels": (batch, 1, dim)}
    shape = masks[drops]
    keep = None if shape is None else torch.randint(2, shape, dtype=torch.uint8, device=TRITON_DEVICE)
    rest = (keep, 1.25, 1e-5, backend)
    factor = 1.0 if keep is None else 1.25 * keep
    given = lambda t: (*t[:last], *none, *(t[last:] or [None]))  # noqa: E731
    assert_same(
        lambda *t: torch.ops.mgrade.feedforward(*given(t), *rest)[0],
        lambda *t: by_torch(*given(t), factor=factor),
        tensors,
    )


ROWS = [(1, 5, 7, 3), (1, 97, 6, 18), (5, 77, 33, 65)]  # beside SHAPES: ends of tiles, of blocks of rows and of panels


@pytest.mark.parametrize("backend", [backend_param("c")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("batch", "time", "dim", "inner"), SHAPES + ROWS)
def test_the_end_of_a_layer_in_c_is_pytorchs(backend, batch, time, dim, inner, dtype):
    tensors = [torch.randn(batch, time, dim, dtype=dtype, requires_grad=True), *parameters(dim, inner, False, dtype)]
    assert_same(
        lambda *t: torch.ops.mgrade.feedforward(*t, None, None, None, None, 1.0, 1e-5, backend)[0], by_torch, tensors
    )


@pytest.mark.parametrize("backend", [backend_param("c")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("batch", "time", "inputs", "outputs"), SHAPES + ROWS)
def test_products_in_c_are_pytorchs(backend, batch, time, inputs, outputs, dtype):
    x, grad = (torch.randn(batch, time, width, dtype=dtype) for width in (inputs, outputs))
    weight, base = torch.randn(outputs, inputs, dtype=dtype), gappy(torch.randn(batch, time, inputs, dtype=dtype))
    wide = [tensor.double() for tensor in (x, grad, weight, base)]
    tolerance = TOLERANCE[dtype]
    assert_close(product(x, weight, backend), wide[0] @ wide[2].t(), tolerance, what="product")
    assert_close(add_product(base, grad, weight, backend), wide[3] + wide[1] @ wide[2], tolerance, what="way back")
    outer = torch.einsum("bto,bti->oi", wide[1], wide[0])
    assert_close(outer_product(transposed(grad), x, backend), outer, tolerance, what="outer product")


@pytest.mark.parametrize("backend", [backend_param("c")])
def test_neighbours_and_threads_change_no_bit_in_c(backend):
    tensors = [torch.randn(2, 500, 20), *parameters(20, 37, False)]

    def run(x, *weights):
        x = x.detach().requires_grad_()
        y = torch.ops.mgrade.feedforward(x, *weights, None, None, None, None, 1.0, 1e-5, backend)[0]
        return y, *torch.autograd.grad(y, [x, *weights], torch.ones_like(y))

    whole, threads = run(*tensors), torch.get_num_threads()
    part = run(tensors[0][1:, 11:18], *tensors[1:])
    assert all(torch.equal(some, all_[1:, 11:18]) for some, all_ in zip(part[:2], whole[:2], strict=True))
    try:
        torch.set_num_threads(1 if threads > 1 else 2)
        assert all(torch.equal(one, other) for one, other in zip(run(*tensors), whole, strict=True))
    finally:
        torch.set_num_threads(threads)


def add_linear(x, weight, bias, base, gain):
    """gain * base + weight @ x + bias by PyTorch, of what is there."""
    y = F.linear(x, weight, bias)
    return y if base is None else y + (base if gain is None else gain * base)


ADDED = [(), ("base",), ("base", "gain")]


@on_triton
@pytest.mark.parametrize("added", ADDED)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("batch", "time", "inputs", "outputs"), SHAPES)
def test_the_product_with_time_contiguous_is_pytorchs(backend, batch, time, inputs, outputs, bias, added):
    shapes = {"x": (batch, time, inputs), "weight": (outputs, inputs)}
    more = {"bias": (outputs,), "base": (batch, time, outputs), "gain": (outputs,)}
    shapes |= {name: shape for name, shape in more.items() if name in (*added, *["bias"] * bias)}
    tensors = [torch.randn(shape, device=TRITON_DEVICE, requires_grad=True) for shape in shapes.values()]

    def called(function):
        return lambda *t: function(**dict.fromkeys(more) | dict(zip(shapes, t, strict=True)))

    assert_same(called(torch.ops.mgrade.linear), called(add_linear), tensors)


@on_triton
@pytest.mark.parametrize("layout", [gappy, transposed])
def test_the_layout_of_the_inputs_makes_no_difference(backend, layout):
    x, *weights = [torch.randn(2, 9, 5, device=TRITON_DEVICE), *parameters(5, 7, True, device=TRITON_DEVICE)]
    for call, tensors in (
        (
            torch.ops.mgrade.linear,
            [x, weights[0], weights[1], torch.randn(2, 9, 7, device=TRITON_DEVICE), weights[1].exp()],
        ),
        (lambda *t: torch.ops.mgrade.glu(*t)[0], [x, weights[0], weights[1], weights[0] + 1, weights[1] + 1]),
        (lambda *t: torch.ops.mgrade.feedforward(*t, None, None, 1.0, 1e-5, backend)[0], [x, *weights]),
    ):
        results = []
        for lay in (torch.Tensor.contiguous, layout):
            laid = [lay(tensor.detach()).requires_grad_() for tensor in tensors]
            y = call(*laid)
            results.append((y, *torch.autograd.grad(y, laid, lay(torch.ones_like(y)))))
        for one, other in zip(*results, strict=True):
            assert_close(one, other, 1e-6)


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if TRITON_DEVICE == "cuda" else [])])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [5, 128, 129])
@pytest.mark.parametrize("norm", [False, True])
def test_the_public_functions_are_pytorchs_on_every_device_width_and_dtype(device, dtype, dim, norm):
    x = torch.randn(2, 9, dim, dtype=dtype, device=device, requires_grad=True)
    weights = parameters(dim, 2 * dim, norm, dtype, device)
    assert_same(feedforward, by_torch, [x, *weights])
    assert_same(linear, F.linear, [x, *weights[:2]])
    assert_close(linear(x, weights[0]), F.linear(x, weights[0]), 1e-6)
    base, gain = (torch.randn(*shape, 2 * dim, dtype=dtype, device=device).requires_grad_() for shape in ((2, 9), ()))
    assert_same(linear, add_linear, [x, *weights[:2], base, gain])
    assert_same(glu, gated, [x, *weights[:2], *(-p.detach().requires_grad_() for p in weights[:2])])
    assert_same(glu, gated, [x, *weights[:2], *(-p.detach().requires_grad_() for p in weights[:2]), base])


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if TRITON_DEVICE == "cuda" else [])])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("norm", [False, True])
def test_dropout_leaves_its_share_of_the_branch_out_and_scales_the_rest(device, norm, whole):
    x, *weights = torch.randn(40, 50, 16, device=device), *parameters(16, 32, norm, device=device)
    branch = by_torch(x, *weights[:4]) - x
    for base in (None, torch.randn_like(x)):
        added = feedforward(x, *weights[:4], dropout=0.25, whole=whole, base=base) - (x if base is None else base)
        gone = added.abs() < 1e-6
        assert 0.2 < gone.float().mean() < 0.3
        assert_close(added[~gone], branch[~gone] / 0.75, 1e-5)
        assert whole == from_end_to_end(gone)
    torch.manual_seed(7)
    first = feedforward(x, *weights, dropout=0.25, whole=whole)
    torch.manual_seed(7)
    assert torch.equal(feedforward(x, *weights, dropout=0.25, whole=whole), first)
    assert not torch.equal(feedforward(x, *weights, dropout=0.25, whole=whole), first)


@pytest.mark.parametrize("lay", [torch.Tensor.contiguous, lambda x: transposed(x)], ids=["channels", "time"])
def test_dropout_of_whole_channels_or_single_values_in_any_layout(lay):
    x = lay(torch.ones(40, 30, 20))
    for whole in (False, True):
        y = dropout(x, 0.4, whole)
        assert sorted(y.unique().tolist()) == pytest.approx([0, 1 / 0.6])
        assert 0.35 < (y == 0).float().mean() < 0.45
        assert whole == bool((y == y[:, :1]).all())


def gated(x, value, value_bias, gate, gate_bias, base=0):
    x = F.gelu(x, approximate="tanh")
    return base + F.linear(x, value, value_bias) * torch.sigmoid(F.linear(x, gate, gate_bias))


@on_triton
@pytest.mark.parametrize("added", [False, True], ids=["alone", "base"])
@pytest.mark.parametrize(("batch", "time", "inputs", "outputs"), SHAPES)
def test_the_gated_unit_with_time_contiguous_is_pytorchs(backend, batch, time, inputs, outputs, added):
    x = torch.randn(batch, time, inputs, device=TRITON_DEVICE, requires_grad=True)
    weights = [p for _ in range(2) for p in parameters(inputs, outputs, False, device=TRITON_DEVICE)[:2]]
    base = [torch.randn(batch, time, outputs, device=TRITON_DEVICE, requires_grad=True)] * added
    assert_same(lambda *t: torch.ops.mgrade.glu(*t)[0], gated, [x, *weights, *base])


@on_triton
@pytest.mark.parametrize(("batch", "time", "inputs", "outputs"), SHAPES)
def test_the_gated_unit_and_gains_train_in_bfloat16(backend, batch, time, inputs, outputs):
    x, base = (torch.randn(batch, time, width, device=TRITON_DEVICE).bfloat16() for width in (inputs, outputs))
    weights = [p for _ in range(2) for p in parameters(inputs, outputs, False, device=TRITON_DEVICE)[:2]]
    for call, truth, tensors in (
        (lambda *t: torch.ops.mgrade.glu(*t)[0], gated, [x, *weights, base]),
        (torch.ops.mgrade.linear, add_linear, [x, *weights[:2], base, weights[3]]),
    ):
        given = [tensor.detach().requires_grad_() for tensor in tensors]
        wide = [tensor.detach().double().requires_grad_() for tensor in tensors]
        y, exact = call(*given), truth(*wide)
        assert y.dtype == torch.bfloat16
        assert_close(y, exact, 2**-6, what="output")
        pull = torch.randn_like(y)
        wanted = torch.autograd.grad(exact, wide, pull.double())
        for one, tensor, other in zip(torch.autograd.grad(y, given, pull), given, wanted, strict=True):
            assert one.dtype == tensor.dtype
            assert_close(one, other, 2**-5, what="gradient")


@on_triton
def test_pytorch_finds_the_operators_well_formed(backend):
    x = torch.randn(2, 5, 3, device=TRITON_DEVICE, requires_grad=True)
    weights = parameters(3, 4, True, device=TRITON_DEVICE)
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    base = torch.randn(2, 5, 4, device=TRITON_DEVICE, requires_grad=True)
    gain = torch.randn(4, device=TRITON_DEVICE, requires_grad=True)
    for added in ((weights[1], None, None), (None, base, None), (weights[1], base, None), (None, base, gain)):
        torch.library.opcheck(torch.ops.mgrade.linear.default, (x, weights[0], *added), test_utils=checks)
    for more in ((), (base,)):
        torch.library.opcheck(torch.ops.mgrade.glu.default, (x, *weights[:2], *weights[:2], *more), test_utils=checks)
    keep = torch.ones(2, 5, 3, dtype=torch.uint8, device=TRITON_DEVICE)
    stream, without = torch.randn_like(x, requires_grad=True), [None, None]
    for norm, *given in (
        (weights[4:], None, None),
        (without, None, None),
        (weights[4:], stream, keep),
        (without, x, None),
    ):
        arguments = (x, *weights[:4], *norm, *given, 1.25, 1e-5, backend)
        torch.library.opcheck(torch.ops.mgrade.feedforward.default, arguments, test_utils=checks)


@pytest.mark.parametrize("backend", [backend_param("c")])
@pytest.mark.parametrize(("batch", "time", "dim", "inner"), [*SHAPES, (3, 700, 33, 65)])
def test_the_c_version_is_pytorchs(backend, batch, time, dim, inner):
    tensors = [torch.randn(batch, time, dim, requires_grad=True), *parameters(dim, inner, False)]
    by_c = lambda *t: torch.ops.mgrade.feedforward(*t, None, None, None, None, 1.0, 1e-5, backend)[0]  # noqa: E731
    assert_same(by_c, by_torch, tensors)
    if batch and time and dim < 33:
        wide = [tensor.detach().double().requires_grad_() for tensor in tensors]
        assert torch.autograd.gradcheck(by_c, wide)
        checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
        arguments = (*tensors, None, None, None, None, 1.0, 1e-5, backend)
        torch.library.opcheck(torch.ops.mgrade.feedforward.default, arguments, test_utils=checks)


@on_triton
@pytest.mark.parametrize("added", ADDED)
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(("batch", "time", "inputs", "outputs"), SHAPES)
def test_products_of_narrow_layers_in_bfloat16(backend, batch, time, inputs, outputs, added, with_bias, monkeypatch):
    from mgrade.ops.linear.triton import product

    if not INTERPRETED:  # whose products of bfloat16 are wrong
        monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    x = torch.randn(batch, time, inputs, device=TRITON_DEVICE).bfloat16()
    weight = torch.randn(outputs, inputs, device=TRITON_DEVICE)
    base = torch.randn(batch, time, outputs, device=TRITON_DEVICE).bfloat16() if "base" in added else None
    gain = torch.randn(outputs, device=TRITON_DEVICE) if "gain" in added else None
    bias = torch.randn(outputs, device=TRITON_DEVICE) if with_bias else None
    wide = [None if tensor is None else tensor.double() for tensor in (x, weight.bfloat16(), bias, base, gain)]
    exact = add_linear(*wide)
    y = product(x, weight, base, bias, gain)
    assert y.dtype == torch.bfloat16
    assert y.shape == exact.shape
    assert torch.allclose(y.double(), exact, rtol=2**-6, atol=2**-5)
