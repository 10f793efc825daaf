"""One layer: convolution -> recurrence -> MLP, with the skips and norms of its configuration."""

import dataclasses
import importlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import (
    PRESETS,
    TRITON_DEVICE,
    assert_close,
    backend_param,
    in_pieces,
    leaves,
    model_of,
    random_input,
    small,
)
from mgrade.nn import GLU, LRU, MLP, Block, MinGRU
from mgrade.ops import gated_scan


def block_of(preset="mgrade", **fields):
    return Block(small(preset, **fields), 0).double()


def run(block, x):
    return block(x, block.initial_state(len(x)))[0]


def silenced(block):
    """All weights zero: whatever comes out came through a skip."""
    for parameter in block.parameters():
        torch.nn.init.zeros_(parameter)
    return block


@pytest.fixture
def x():
    return torch.randn(2, 12, 6, dtype=torch.float64)


@pytest.mark.parametrize("preset", ["mgrade", "mingru", "dcls", "tcn", "lru_dcls"])
@pytest.mark.parametrize("skips", [("conv", "recurrence", "mlp"), ("recurrence", "mlp"), ("mlp",), ()])
@pytest.mark.parametrize("norm", ["post", "pre", "none"])
def test_a_layer_is_its_parts_one_after_the_other(x, preset, skips, norm):
    block = block_of(preset, skips=skips, norm=norm)
    y = block.norm(x) if norm == "pre" else x
    for name in ("conv", "recurrence", "mlp"):
        part = getattr(block, name)
        if part is not None:
            branch = part(y) if name == "mlp" else part(y, part.initial_state(2))[0]
            y = y + branch if name in skips else branch
    assert_close(run(block, x), block.norm(y) if norm == "post" else y, 1e-13)


def test_the_layer_of_the_lru_has_one_skip_around_all_of_it(x):
    block = block_of("lru")
    y, _ = block.recurrence(block.norm(x), block.recurrence.initial_state(2))
    assert_close(run(block, x), x + block.mlp(y), 1e-13)


@pytest.mark.parametrize(
    ("skips", "passes"),
    [
        (("conv", "recurrence", "mlp"), True),
        (("recurrence", "mlp"), False),
        (("conv", "mlp"), False),
        (("conv", "recurrence"), False),
        (("layer",), True),
        ((), False),
    ],
)
def test_an_input_passes_a_silent_layer_only_through_skips(x, skips, passes):
    block = silenced(block_of(norm="none", skips=skips))
    assert torch.equal(run(block, x), x if passes else torch.zeros_like(x))


@pytest.mark.parametrize(("branch", "preset"), [("conv", "dcls"), ("conv", "tcn"), ("recurrence", "mingru")])
def test_a_branch_norm_brings_the_branch_to_zero_mean_and_unit_variance(x, branch, preset):
    y = run(block_of(preset, mlp="none", norm="none", skips=(), branch_norms=(branch,)), x)
    assert y.mean(-1).abs().max() < 1e-12
    assert_close(y.var(-1, unbiased=False)[:, 4:], torch.ones(2, 8, dtype=y.dtype), 1e-2)
    plain = run(block_of(preset, mlp="none", norm="none", skips=()), x)
    assert plain.mean(-1).abs().max() > 1e-3


@pytest.mark.parametrize(("branch", "preset"), [("conv", "dcls"), ("conv", "tcn"), ("recurrence", "mingru")])
@pytest.mark.parametrize("skips", [(), ("conv", "recurrence")])
def test_an_activation_stands_after_its_branch_and_before_its_skip(x, branch, preset, skips):
    fields = {"mlp": "none", "norm": "none", "skips": skips}
    active, plain = block_of(preset, **fields, activations=(branch,)), block_of(preset, **fields)
    plain.load_state_dict(active.state_dict())
    branch_alone = run(plain, x) - x if skips else run(plain, x)
    expected = F.gelu(branch_alone, approximate="tanh")
    assert_close(run(active, x), x + expected if skips else expected, 1e-12)


@pytest.mark.parametrize("norms", [(), ("recurrence",)])
def test_a_projection_and_then_a_norm_come_after_the_activation(x, norms):
    fields = {"mlp": "none", "norm": "none", "skips": ()}
    whole = block_of("mingru", **fields, activations=("recurrence",), projection=True, branch_norms=norms)
    plain = block_of("mingru", **fields)
    plain.recurrence = whole.recurrence
    expected = whole.projection(F.gelu(run(plain, x), approximate="tanh"))
    assert_close(run(whole, x), whole.branch_norms["recurrence"](expected) if norms else expected, 1e-12)


@pytest.mark.parametrize("readout", ["every", "last", "mean", "sum"])
def test_an_activation_before_the_head_is_that_of_every_step(readout):
    config = small("mgrade", activations=("head",), readout=readout, outputs=6)
    model, plain = model_of(config), model_of(dataclasses.replace(config, activations=(), readout="every"))
    plain.load_state_dict(model.state_dict())
    nn.init.eye_(plain.readout.head.weight)
    nn.init.zeros_(plain.readout.head.bias)
    x = random_input(config, 2, 9)
    steps = model.readout.head(F.gelu(plain(x)[0], approximate="tanh"))
    pooled = {"every": steps, "last": steps[:, -1], "mean": steps.mean(1), "sum": steps.sum(1)}
    assert_close(model(x)[0], pooled[readout], 1e-12)


def test_a_norm_before_the_mlp_makes_it_blind_to_scale(x):
    fields = {"conv": "none", "recurrence": "none", "norm": "none", "skips": ()}
    normed, plain = block_of(**fields, branch_norms=("mlp",)), block_of(**fields)
    assert_close(run(normed, 100 * x), run(normed, 1000 * x), 1e-6)
    assert not torch.allclose(run(plain, 100 * x), run(plain, 1000 * x))


def test_norms_stand_where_the_configuration_puts_them(x):
    assert run(block_of(norm="post"), x).mean(-1).abs().max() < 1e-12
    assert run(block_of(norm="pre"), x).mean(-1).abs().max() > 1e-3
    assert not any("norm" in name for name, _ in block_of(norm="none").named_parameters())


def test_the_mlp_is_two_layers_with_a_gelu_between(x):
    mlp = MLP(6, 4).double()
    hidden = F.gelu(x @ mlp.input.weight.T + mlp.input.bias, approximate="tanh")
    assert hidden.shape[-1] == 8
    assert_close(mlp(x), hidden @ mlp.output.weight.T + mlp.output.bias, 1e-14)


def test_the_glu_gates_a_linear_layer_by_another(x):
    glu = GLU(6, 4).double()
    h = F.gelu(x, approximate="tanh")
    gate = torch.sigmoid(h @ glu.gate.weight.T + glu.gate.bias)
    assert_close(glu(x), (h @ glu.value.weight.T + glu.value.bias) * gate, 1e-14)


def test_the_first_half_of_a_mingru_is_the_gate_and_the_second_the_candidate(x):
    recurrence = MinGRU(6, 5, "uniform").double()
    mixed = x @ recurrence.weight.T + recurrence.bias
    expected, last = gated_scan(mixed[..., :5].contiguous(), mixed[..., 5:].contiguous())
    h, state = recurrence(x)
    assert_close(h, expected, 1e-13)
    assert_close(state, last, 1e-13)


def test_an_lru_is_its_recurrence_written_out(x):
    lru = LRU(6, 5, (0.5, 0.9)).double()
    a = torch.exp(torch.complex(-torch.exp(lru.log_rate), torch.exp(lru.log_phase)))
    b, c = torch.complex(*lru.input), torch.complex(*lru.output)
    h, y = lru.initial_state(2), []
    for x_t in x.unbind(1):
        h = a * h + torch.exp(lru.log_gain) * (x_t.to(a.dtype) @ b.T)
        y.append((h @ c.T).real + lru.skip * x_t)
    out, last = lru(x)
    assert_close(out, torch.stack(y, 1), 1e-12)
    assert_close(last, h, 1e-12)


@pytest.mark.parametrize("expansion", [0.5, 1.5, 2])
@pytest.mark.parametrize(
    "fields",
    [
        {"preset": "mgrade", "projection": True},
        {"preset": "mgrade", "projection": True, "branch_norms": ("recurrence", "mlp")},
        {"preset": "mgrade", "projection": True, "branch_norms": ("conv", "recurrence"), "norm": "none"},
        {"preset": "mgrade", "skips": ("conv",)},
        {"preset": "mgrade", "skips": ("conv", "layer"), "branch_norms": ("recurrence", "mlp")},
        {"preset": "mgrade", "projection": True, "mlp": "none"},
        {"preset": "lru"},
        {"preset": "lru_dcls"},
    ],
)
def test_a_wider_or_narrower_recurrence_runs_and_streams(expansion, fields):
    model = model_of(small(**fields, expansion=expansion))
    x = random_input(model.config, 2, 15)
    (y, state), (pieces, last) = model(x), in_pieces(model, x, None, (0, 1, 7, 15))
    assert [tuple(hidden.shape) for hidden in state.hidden] == [(2, round(6 * expansion))] * 2
    assert_close(pieces, y, 1e-12)
    for name, tensor in leaves(state).items():
        assert_close(leaves(last)[name], tensor, 1e-12, what=name)


@pytest.mark.parametrize("spans", ["step", "sequence"])
@pytest.mark.parametrize("preset", PRESETS)
def test_dropout_acts_only_while_training(preset, spans):
    model = model_of(small(preset, dropout=0.5, dropout_spans=spans))
    x = torch.randn(2, 12, 3, dtype=torch.float64)
    plain = model_of(small(preset))
    plain.load_state_dict(model.state_dict())
    assert not torch.equal(model(x)[0], model(x)[0])
    model.eval()
    assert torch.equal(model(x)[0], plain(x)[0])


@pytest.mark.parametrize("preset", ["mgrade", "mingru", "dcls", "tcn"])
def test_dropout_spares_the_skips(preset):
    block = silenced(block_of(preset, norm="none", dropout=0.5))
    x = torch.randn(2, 12, 6, dtype=torch.float64)
    assert torch.equal(run(block, x), x)


def test_positions_are_brought_back_into_range():
    model = model_of(small("mgrade"))
    with torch.no_grad():
        model.layers[0].conv.position.add_(100)
        model.layers[1].conv.position.sub_(100)
    model.constrain_()
    assert model.layers[0].conv.position.unique().tolist() == [8.0]
    assert model.layers[1].conv.position.unique().tolist() == [0.0]


@pytest.mark.parametrize("preset", PRESETS)
def test_every_parameter_has_a_gradient(preset):
    model = model_of(small(preset, readout="mean"))
    y, _ = model(random_input(model.config, 4, 12))
    y.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


@pytest.mark.parametrize("backend", [backend_param("triton")])
def test_the_layers_of_an_lru_keep_time_contiguous_there_and_back(backend, monkeypatch):
    for room in ("diagonal_scan", "glu", "layer_norm", "linear"):
        monkeypatch.setattr(importlib.import_module(f"mgrade.ops.{room}"), "choose", lambda *_: backend)
    model = model_of(small("lru", readout="mean"), torch.float32).to(TRITON_DEVICE)
    x = random_input(model.config, 2, 20, torch.float32).to(TRITON_DEVICE)
    strides = []

    def note(_, inputs, outputs):
        strides.append(outputs[0].stride(1))
        outputs[0].register_hook(lambda grad: strides.append(grad.stride(1)))

    for layer in model.layers:
        layer.register_forward_hook(note)
    y, _ = model(x)
    y.square().sum().backward()
    assert len(strides) == 2 * len(model.layers)
    assert set(strides) <= {0, 1}  # 0: the gradient of a mean is the same at all steps
    monkeypatch.undo()
    twin = model_of(model.config).to(TRITON_DEVICE)
    twin.load_state_dict(model.state_dict())
    exact, _ = twin(x.double())
    assert_close(y, exact, 1e-5)
    wanted = torch.autograd.grad(exact.square().sum(), list(twin.parameters()))
    for (name, parameter), grad in zip(model.named_parameters(), wanted, strict=True):
        assert_close(parameter.grad, grad, 1e-4, what=name)
