"""Training for an export: taps that end on whole delays, weights that end on the grid of int8."""

import json

import numpy as np
import pytest
import torch

from helpers import DEVICES
from mgrade.deploy import Op, Program, calibrate, from_model, quantise
from mgrade.deploy.arithmetic import factor
from mgrade.nn import Model, ModelConfig, load
from mgrade.train import Run, Stopped, TrainingStep, launch, load_recipe
from mgrade.train.rounding import matrices, rounded, rounded_weights

SNAP = (
    "model.taps=3",
    "model.max_delay=9",
    "model.sigma=0.1",
    "train.sigma_from=0.8",
    "train.sigma_until=0.5",
    "train.snap=true",
    "train.int8=true",
    "train.average=0.5",
)


@pytest.fixture
def recipe():
    from small import SETTINGS

    return lambda *more: load_recipe("flipflop/mgrade", (*SETTINGS, *SNAP, *more))


@pytest.mark.parametrize("until", [0.5, 1.0])  # at a look of validation, and at the last one
def test_a_snapped_run_ends_with_whole_delays_which_an_export_keeps(recipe, tmp_path, until):
    launch(recipe(f"train.sigma_until={until}"), seeds=[0], root=tmp_path)
    model = load(tmp_path / "runs/flipflop/mgrade/seed0/model")
    position = model.layers[0].conv.position
    assert torch.equal(position, position.round())
    assert position.max() > 1  # somewhere else than where all would be anyway
    plain, snapped = from_model(model), from_model(model, snap=True)
    kernel = np.zeros_like(plain.ops[1].arrays["weight"])
    for channel, (weights, lags) in enumerate(zip(*(snapped.ops[1].arrays[n] for n in ("weight", "lag")), strict=True)):
        np.add.at(kernel[:, channel], lags, weights)
    np.testing.assert_allclose(kernel, plain.ops[1].arrays["weight"], atol=1e-7)


def test_averages_begin_anew_where_taps_change_places(recipe, tmp_path, monkeypatch):
    kernels = []

    def compare(run):
        exact = run.model.layers[0].conv.kernel()
        with run.training.averaged():
            kernels.append((exact, run.model.layers[0].conv.kernel()))

    def narrow(run):
        snaps = run.step == max(run.sigma)
        if snaps:
            compare(run)
        real(run)
        if snaps:
            compare(run)

    real = Run._narrow
    monkeypatch.setattr(Run, "_narrow", narrow)
    launch(recipe("train.average=0.99", "model.position_init='random'"), seeds=[0], root=tmp_path)
    before, after = kernels
    assert not torch.equal(*before)
    assert torch.equal(*after)


def test_a_saved_model_is_on_the_grid_of_int8_so_that_an_export_rounds_nothing(recipe, tmp_path):
    launch(recipe(), seeds=[0], root=tmp_path)
    model = load(tmp_path / "runs/flipflop/mgrade/seed0/model")
    for name, weight in matrices(model):
        assert torch.equal(rounded(name, weight), weight)
    program = from_model(model, snap=True)
    whole = quantise(program, calibrate(program, [np.zeros((1, 4), np.int64)]))
    for exact, integer in zip(program.ops, whole.ops, strict=True):
        if exact.kind == "linear":
            weight = exact.arrays["weight"]
            np.testing.assert_array_equal(weights_of(integer, torch.from_numpy(weight)), weight)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("spread", [0.0, 4.0], ids=["alike", "unlike"])
@pytest.mark.parametrize("device", DEVICES)
def test_the_grid_is_that_of_an_export_and_what_is_on_it_stays(device, seed, spread):
    torch.manual_seed(seed)
    weight = torch.randn(300, 17) * torch.exp(spread * torch.randn(300, 1))
    weight[7] = 0
    once = rounded("weight", weight.to(device))
    assert torch.equal(rounded("weight", once), once)
    once = once.cpu()
    program = Program(17, False, (Op("linear", (0,), {"weight": once.numpy(), "bias": np.zeros(300, np.float32)}),))
    op = quantise(program, calibrate(program, [np.ones((1, 1, 17))])).ops[0]
    np.testing.assert_array_equal(weights_of(op, once), once.numpy())
    needed = torch.maximum(weight.abs().amax(1, keepdim=True), weight.abs().max() / 2**14) / 127
    assert ((once - weight).abs() <= needed).all()  # half of a scale that is at most twice what is needed


def weights_of(op, weight):
    """The matrix of an integer operation in the units of `weight`: a power of two times its own."""
    products = op.arrays["weight"] * factor(op.arrays["multiplier"])[:, None].astype(np.float32)
    unit = np.abs(weight.numpy()).max() / np.abs(products).max()
    assert np.log2(unit) % 1 == 0
    return products * unit


def test_a_run_stopped_before_or_after_snapping_resumes_to_the_same_weights(recipe, tmp_path, monkeypatch):
    (whole,) = launch(recipe(), seeds=[0], root=tmp_path / "whole")
    for limit in (7, 20, 21, 33):
        with monkeypatch.context() as patch:
            patch.setattr(Run, "_asked_to_stop", lambda self, _, limit=limit: self.step == limit)
            with pytest.raises(Stopped):
                launch(recipe(), seeds=[0], root=tmp_path / str(limit), max_minutes=60)
        (resumed,) = launch(recipe(), seeds=[0], root=tmp_path / str(limit), resume=True)
        assert json.loads(resumed.read_text())["curves"] == json.loads(whole.read_text())["curves"]


def test_weights_are_exact_again_after_a_pass_and_gradients_are_those_of_the_rounded_ones():
    model = Model(ModelConfig(inputs=2, outputs=3, dim=8, depth=1, taps=2, max_delay=5))
    before = [p.detach().clone() for p in model.parameters()]
    x, target = torch.randn(2, 7, 2), torch.randn(2, 7, 3)
    with rounded_weights(model):
        assert not torch.equal(model.encoder.weight, before[0])
        ((model(x)[0] - target) ** 2).mean().backward()
        expected = [p.grad.clone() for p in model.parameters()]
        twin = Model(model.config)
        twin.load_state_dict(model.state_dict())
    ((twin(x)[0] - target) ** 2).mean().backward()
    for now, was, gradient, other in zip(model.parameters(), before, expected, twin.parameters(), strict=True):
        assert torch.equal(now, was)
        assert torch.equal(gradient, other.grad)


def test_a_step_for_int8_learns():
    torch.manual_seed(0)
    model = Model(ModelConfig(inputs=1, outputs=1, dim=8, depth=1, taps=2, max_delay=4))
    x = torch.randn(4, 20, 1)
    target = torch.roll(x, 2, 1)
    step = TrainingStep(model, lambda m, x, y: ((m(x)[0] - y)[:, 2:] ** 2).mean(), rate=0.01, int8=True)
    losses = [float(step(x, target)) for _ in range(300)]
    assert losses[-1] < 0.2 * losses[0]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.snap=1", "snap must be true or false, got 1"),
        ("train.int8=2", "int8 must be true or false, got 2"),
        ("train.average=1", "average must be at least 0 and below 1, got 1"),
    ],
)
def test_what_cannot_be_is_refused(recipe, setting, message):
    with pytest.raises(ValueError, match=message):
        recipe(setting)


def test_snapping_needs_a_width_to_begin_with():
    with pytest.raises(ValueError, match="snap needs sigma_from"):
        load_recipe("flipflop/mgrade", ("train.snap=true",))


def test_snapping_needs_taps_that_end_narrow():
    with pytest.raises(ValueError, match=r"^train\.snap needs a model\.sigma of 0\.1 or less, got 0\.2$"):
        load_recipe("vowels/mgrade", ("model.sigma=0.2",))
