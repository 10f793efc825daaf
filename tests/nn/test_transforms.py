"""Derivatives of every kind, function transforms and hooks: what others do to a module, a model bears."""

import copy

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils import prune

from helpers import PRESETS, assert_close, leaves, model_of, random_input, small, steps_of
from mgrade.nn import DelayConv, MinGRU, Model, State
from mgrade.ops import gated_scan, plain

# PyTorch's own, on the first use of forward-mode differentiation
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")


def scene(preset, **options):
    model = model_of(small(preset, depth=1, **options))
    x = random_input(model.config, 2, 6)
    return model, x, lambda z: model(z)[0].square().sum()


@pytest.mark.parametrize("preset", PRESETS)
def test_second_derivatives_are_right_within_plain_and_refused_elsewhere(preset):
    _, x, loss = scene(preset)
    x.requires_grad_()
    with plain():
        assert torch.autograd.gradgradcheck(loss, (x,))
    (slope,) = torch.autograd.grad(loss(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"has no derivative of its own: .* mgrade\.ops\.plain\(\)"):
        slope.square().sum().backward()


def test_plain_ends_where_it_ends():
    gate = torch.randn(1, 3, 2, dtype=torch.float64, requires_grad=True)
    with plain():
        within = gated_scan(gate, gate)[0]
    beyond = gated_scan(gate, gate)[0]
    assert_close(within, beyond, 1e-12)
    assert ("mgrade" in beyond.grad_fn.name(), "mgrade" in within.grad_fn.name()) == (True, False)


@pytest.mark.parametrize("preset", PRESETS)
def test_torch_func_takes_a_model(preset):
    model, x, loss = scene(preset)
    slope = torch.autograd.functional.jacobian(loss, x)
    assert_close(torch.func.grad(loss)(x), slope, 1e-12)
    assert_close(torch.func.jacfwd(loss)(x), slope, 1e-12)
    several = {name: torch.stack([p, p]).detach() for name, p in model.named_parameters()}
    y = torch.func.vmap(lambda weights: torch.func.functional_call(model, weights, (x,))[0])(several)
    assert_close(y[1], model(x)[0], 1e-12)
    with torch.no_grad():  # where a kernel is kept from call to call
        one = torch.func.vmap(lambda weights: torch.func.functional_call(model, weights, (x[:, :1],))[0])(several)
    assert_close(one[1], model(x[:, :1])[0], 1e-12)


@pytest.mark.parametrize("preset", PRESETS)
def test_forward_mode_is_the_derivative(preset):
    _, x, loss = scene(preset)
    along = torch.randn_like(x)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(loss(forward_ad.make_dual(x, along))).tangent
    assert_close(tangent, (torch.autograd.functional.jacobian(loss, x) * along).sum(), 1e-12)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_layer_can_be_pruned(preset):
    model, x, loss = scene(preset)
    linears = [part for part in model.layers.modules() if isinstance(part, torch.nn.Linear)]
    for part in linears:
        prune.l1_unstructured(part, "weight", amount=0.5)
    for _ in range(3):  # the second time over weights that a hook makes anew
        loss(x).backward()
    whole = model(x)[0]
    for part in linears:
        prune.remove(part, "weight")
        assert (part.weight == 0).sum() >= part.weight.numel() // 2
    assert_close(model(x)[0], whole, 1e-12)


@pytest.mark.parametrize("part", ["conv", "recurrence", "mlp", "mlp.input", "norm"])
def test_hooks_of_every_part_are_called(part):
    model = model_of(small("mgrade", depth=1))
    x, called = random_input(model.config, 1, 4), []
    model.layers[0].get_submodule(part).register_forward_hook(lambda *_: called.append(part))
    whole = model(x)[0]
    with torch.no_grad():
        y, _ = model.step(x[:, 0], model.initial_state(1))
    assert called == [part, part]
    assert_close(y, whole[:, 0], 1e-12)


@pytest.mark.parametrize("inputs", [5, 300])
@pytest.mark.parametrize("readout", ["sum", "mean"])
def test_encoder_and_head_may_be_hooked_pruned_or_replaced(readout, inputs):
    class Doubled(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return 2 * self.inner(x)

    model = model_of(small("mgrade", depth=1, tokens=True, inputs=inputs, readout=readout))
    x, called = random_input(model.config, 2, 7), []
    plain = model(x)[0]
    for name in ("encoder", "readout.head"):
        model.get_submodule(name).register_forward_hook(lambda *_, name=name: called.append(name))
    assert_close(model(x)[0], plain, 1e-12)
    assert set(called) == {"encoder", "readout.head"}
    model.encoder, model.readout.head = Doubled(model.encoder), Doubled(model.readout.head)
    whole = model(x)[0]
    _, state = model(x[:, :3])
    assert_close(model(x[:, 3:], state)[0], whole, 1e-12)
    model.encoder = model.encoder.inner
    assert_close(model(x)[0], 2 * plain, 1e-12)
    model.readout.head = model.readout.head.inner
    prune.l1_unstructured(model.readout.head, "weight", amount=0.5)
    for _ in range(2):
        model(x)[0].sum().backward()


def test_a_model_runs_on_the_meta_device():
    with torch.device("meta"):
        model = Model(small("mgrade"))
        y, _ = model(torch.empty(2, 7, model.config.inputs))
    assert y.shape == (2, 7, model.config.outputs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_without_values_takes_another_dtype(dtype):
    with torch.device("meta"):
        model = Model(small("mgrade")).to(dtype)
    assert model.layers[0].conv.position.dtype == dtype


def test_taps_start_within_their_range_in_a_default_dtype_of_few_digits():
    torch.set_default_dtype(torch.bfloat16)
    try:
        conv = DelayConv(1, 512, 512, 0.8)
    finally:
        torch.set_default_dtype(torch.float32)
    assert conv.position.max() <= 511
    assert conv(torch.ones(1, 2, 1, dtype=torch.bfloat16))[0].isfinite().all()


class Steps(torch.nn.Module):
    """A model's step as a function of tensors alone."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, *state):
        depth = self.model.config.depth
        y, after = self.model(x, State(state[:depth], state[depth : 2 * depth], *state[2 * depth :]))
        return y, *after.history, *after.hidden


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("tracer", ["jit", "fx"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_what_is_traced_of_a_step_holds_for_any_other(preset, grad, tracer):
    model, x, _ = scene(preset)
    steps = Steps(model)
    with torch.set_grad_enabled(grad):
        first, other = (leaves(model(x[:, at : at + 4])[1]).values() for at in (0, 2))
        if tracer == "jit":
            traced = torch.jit.trace(steps, (x[:, 4:5], *first), check_trace=False)
        else:
            traced = make_fx(steps)(x[:, 4:5], *first)
        for actual, expected in zip(traced(x[:, 5:], *other), steps(x[:, 5:], *other), strict=True):
            assert_close(actual, expected, 1e-12)


@pytest.mark.parametrize("preset", PRESETS)
def test_shapes_are_known_without_values(preset):
    model = Model(small(preset))
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        y, state = model(torch.empty(2, 7, model.config.inputs), lengths=torch.tensor([3, 7]))
        assert model.step(torch.empty(2, model.config.inputs), state)[0].shape == (2, model.config.outputs)
    assert y.shape == (2, 7, model.config.outputs)


def test_a_step_gives_memory_of_its_own():
    recurrence = MinGRU(3, 3)
    x = torch.randn(1, 6, 3)
    with torch.no_grad():
        whole, state, steps = recurrence(x)[0].relu_(), None, []
        for t in range(6):
            h, state = recurrence(x[:, t : t + 1], state)
            steps.append(h.relu_())
    assert_close(torch.cat(steps, 1), whole, 1e-6)


def test_a_kernel_may_be_written_to_and_follows_its_length():
    conv = DelayConv(3, 2, 5, 0.5)
    x = torch.randn(1, 9, 3)
    with torch.no_grad():
        before = conv(x)[0]
        conv.kernel().zero_()
        assert_close(conv(x)[0], before, 0)
        conv.length = 8
        assert conv.kernel().shape == (3, 8)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_positions_stay_within_their_range_in_every_dtype(dtype):
    conv = DelayConv(2, 2, 2300, 0.8).to(dtype)
    with torch.no_grad():
        conv.position.fill_(1e4)
    assert 2280 < conv.within().max() <= 2299
    assert conv(torch.zeros(1, 3, 2, dtype=dtype))[0].dtype == dtype
    conv.constrain_()
    assert 2280 < conv.position.max() <= 2299
    model = model_of(small("mgrade", max_delay=300), dtype)
    with torch.no_grad():
        model.layers[0].conv.position.fill_(300)
    model.constrain_()
    assert copy.deepcopy(model)(random_input(model.config, 1, 3, dtype))[0].isfinite().all()


class Adapted(torch.nn.Module):
    """A linear layer and something of low rank beside it, with the attributes of the former: as adapters are."""

    def __init__(self, base):
        super().__init__()
        self.base = base
        self.down = torch.nn.Parameter(torch.randn(2, base.in_features, dtype=base.weight.dtype))
        self.up = torch.nn.Parameter(torch.randn(base.out_features, 2, dtype=base.weight.dtype))

    weight = property(lambda self: self.base.weight)
    bias = property(lambda self: self.base.bias)

    def forward(self, x, *base):
        return self.base(x, *base) + x @ self.down.T @ self.up.T


@pytest.mark.parametrize(("mlp", "part"), [("gelu", "input"), ("gelu", "output"), ("glu", "value"), ("glu", "gate")])
def test_a_part_that_was_replaced_is_what_runs(mlp, part):
    model, x, loss = scene("mgrade", mlp=mlp)
    before, layer = model(x)[0], model.layers[0]
    setattr(layer.mlp, part, Adapted(getattr(layer.mlp, part)))
    loss(x).backward()
    assert getattr(layer.mlp, part).up.grad.abs().sum() > 0
    assert not torch.allclose(model(x)[0], before)
    assert_close(steps_of(model, x), model(x)[0], 1e-12)


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"projection": True}, "projection"),
        ({"branch_norms": ("conv",)}, "branch_norms.conv"),
        ({"branch_norms": ("recurrence",)}, "branch_norms.recurrence"),
        ({"branch_norms": ("mlp",)}, "branch_norms.mlp"),
    ],
)
def test_a_part_of_pytorch_itself_takes_the_place_of_ours(fields, part):
    model, x, _ = scene("mgrade", **fields)
    whole, layer, dim = model(x)[0], model.layers[0], model.config.dim
    ours = layer.get_submodule(part)
    other = torch.nn.Linear(dim, dim) if part == "projection" else torch.nn.LayerNorm(dim)
    layer.set_submodule(part, other.double())
    layer.get_submodule(part).load_state_dict(ours.state_dict())
    assert_close(model(x)[0], whole, 1e-12)
    assert_close(steps_of(model, x), whole, 1e-12)


@pytest.mark.parametrize("part", ["norm", "mlp.input", "mlp.output"])
def test_a_part_without_a_bias_is_one_with_a_bias_of_zero(part):
    model, x, _ = scene("mgrade")
    torch.nn.init.zeros_(model.layers[0].get_submodule(part).bias)
    whole = model(x)[0]
    model.layers[0].get_submodule(part).bias = None
    assert_close(model(x)[0], whole, 1e-12)
    assert_close(steps_of(model, x), whole, 1e-12)


def test_a_part_of_ones_own_runs_step_by_step_too():
    class Halved(MinGRU):
        def forward(self, x, *rest, skip=False):
            h, state = super().forward(x, *rest)
            return x + h / 2 if skip else h / 2, state

    model, x, _ = scene("mgrade")
    dim = model.config.dim
    model.layers[0].recurrence = Halved(dim, dim).double()
    assert_close(steps_of(model, x), model(x)[0], 1e-12)


def test_a_norm_without_weights_is_a_norm():
    model, x, _ = scene("mgrade")
    whole = model(x)[0]
    model.layers[0].norm = torch.nn.LayerNorm(model.config.dim, elementwise_affine=False)  # as the other starts
    assert_close(model(x)[0], whole, 1e-12)
    assert_close(steps_of(model, x), whole, 1e-12)


def test_tangents_of_the_taps_are_not_remembered():
    conv = DelayConv(3, 2, 5, 0.8).double().requires_grad_(False)
    x, weight, found = torch.randn(1, 6, 3, dtype=torch.float64), conv.weight.detach().clone(), []
    conv(x)
    del conv.weight
    with torch.no_grad(), forward_ad.dual_level():
        for size in (1.0, 10.0):
            conv.weight = forward_ad.make_dual(weight, torch.full_like(weight, size))
            found.append(forward_ad.unpack_dual(conv(x)[0]).tangent)
    assert_close(10 * found[0], found[1], 1e-12)
    assert found[0].abs().sum() > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_taps_at_the_end_of_their_range_can_be_rounded(dtype):
    conv = DelayConv(2, 3, 4092, 0.8)
    with torch.no_grad():
        conv.position[0, 0] = conv.last_position
    conv = conv.to(dtype)
    assert 4000 < conv.position[0, 0] <= 4091
    assert conv(torch.ones(1, 4, 2, dtype=dtype))[0].isfinite().all()
