"""Parameters start as the paper says."""

import math

import pytest
import torch

from helpers import PRESETS, small
from mgrade import Model
from mgrade.nn import LRU, DelayConv, DilatedConv, MinGRU, initialise


def test_a_truncated_normal_has_the_asked_spread_and_ends_at_two_of_its_own():
    values = initialise.truncated_normal_(torch.empty(200_000), 0.5)
    edge = 2 * 0.5 / 0.8796
    assert values.mean().abs() < 0.01
    assert values.std() == pytest.approx(0.5, rel=0.01)
    assert 0.99 * edge < values.abs().max() <= edge * 1.0001


@pytest.mark.parametrize(("inputs", "outputs"), [(16, 5000), (400, 300)])
def test_linear_weights_have_variance_one_over_their_inputs(inputs, outputs):
    weight = initialise.fan_in_(torch.empty(outputs, inputs))
    assert weight.std() == pytest.approx(1 / math.sqrt(inputs), rel=0.02)


def test_every_linear_layer_of_a_model_starts_so_with_a_bias_of_zero():
    model = Model(small("mgrade", inputs=64, outputs=128, dim=128, depth=1))
    mlp = model.layers[0].mlp
    for layer in (model.encoder, mlp.input, mlp.output, model.readout.head):
        assert layer.weight.detach().std() == pytest.approx(1 / math.sqrt(layer.in_features), rel=0.05)
        assert not layer.bias.any()


@pytest.mark.parametrize(("taps", "scale"), [(4, 1.0), (16, 1.0), (4, 3.0)])
@pytest.mark.parametrize("kind", ["delay", "dilated"])
def test_convolution_weights_have_variance_scale_over_taps(kind, taps, scale):
    conv = DelayConv(3000, taps, 64, 0.8, scale=scale) if kind == "delay" else DilatedConv(3000, taps, 2, scale)
    assert conv.weight.detach().std() == pytest.approx(math.sqrt(scale / taps), rel=0.03)


@pytest.mark.parametrize(
    ("taps", "length", "expected"),
    [
        (4, 16, [0, 4, 8, 12]),
        (3, 4, [0, 4 / 3, 8 / 3]),
        (1, 9, [0]),
        (4, 2, [0, 0.5, 1, 1]),  # more taps than delays
        (3, 1, [0, 0, 0]),
    ],
)
def test_even_positions_are_evenly_spaced_and_stay_inside(taps, length, expected):
    position = initialise.positions_(torch.empty(5, taps), length, "even")
    assert position.tolist() == [pytest.approx(expected)] * 5


@pytest.mark.parametrize(("taps", "length"), [(4, 100), (6, 3), (2, 1)])
def test_random_positions_are_uniform_over_the_kernel(taps, length):
    position = initialise.positions_(torch.empty(4000, taps), length, "random")
    assert position.min() >= 0
    assert position.max() <= length - 1
    assert position.mean() == pytest.approx((length - 1) / 2, rel=0.05)
    assert position.std() == pytest.approx((length - 1) / math.sqrt(12), rel=0.05)


@pytest.mark.parametrize(("how", "value"), [("zero", 0.0), ("open", 4.0), ("closed", -4.0), (1.5, 1.5), (-2, -2.0)])
def test_a_gate_bias_is_a_number_or_has_a_name(how, value):
    recurrence = MinGRU(3, 7, how)
    assert recurrence.bias.tolist() == [value] * 7 + [0.0] * 7


@pytest.mark.parametrize("hidden", [3, 64, 5000])
def test_a_uniform_gate_bias_spreads_the_openings_evenly(hidden):
    opening = torch.sigmoid(initialise.gate_bias_(torch.empty(hidden), "uniform"))
    assert opening.min() >= 1 / hidden - 1e-6
    assert opening.max() <= 1 - 1 / hidden + 1e-6
    if hidden == 5000:
        share, _ = torch.histc(opening, 10, 0, 1).div(hidden).sort()
        assert share[0] > 0.08
        assert share[-1] < 0.12


@pytest.mark.parametrize("hidden", [1, 2])
def test_a_uniform_gate_bias_of_one_or_two_units_is_half_open(hidden):
    assert initialise.gate_bias_(torch.empty(hidden), "uniform").tolist() == [0.0] * hidden


@pytest.mark.parametrize("ring", [(0.0, 0.99), (0.5, 0.6), (0.9, 0.999)])
def test_the_eigenvalues_of_an_lru_start_uniform_on_a_ring(ring):
    lru = LRU(2, 20_000, ring)
    radius, angle = torch.exp(-torch.exp(lru.log_rate.detach())), torch.exp(lru.log_phase.detach())
    low, high = ring
    assert radius.min() >= low - 1e-5
    assert radius.max() <= high + 1e-5
    share = (radius**2 - low**2) / (high**2 - low**2)  # uniform in area
    assert share.mean() == pytest.approx(0.5, abs=0.02)
    assert share.std() == pytest.approx(1 / math.sqrt(12), rel=0.03)
    assert 0 < angle.min() < 0.01
    assert 6.27 < angle.max() <= 2 * math.pi + 1e-5


def test_the_gain_of_an_lru_keeps_the_variance_of_its_input():
    lru = LRU(4, 2000, (0.9, 0.99))
    state = lru.initial_state(1)
    with torch.no_grad():
        for _ in range(20):
            _, state = lru(torch.randn(1, 50, 4), state)
    # B x has variance 1/2 + 1/2 per unit, and so has the state
    assert state.abs().square().mean() == pytest.approx(1.0, rel=0.25)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_fixed_seed_gives_the_same_model(preset):
    config = small(preset, position_init="random", gate_bias="uniform")
    models = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        models.append(torch.cat([parameter.flatten() for parameter in Model(config).parameters()]))
    assert torch.equal(models[0], models[1])
    assert not torch.equal(models[0], models[2])
    assert models[0].isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"taps": 0}, r"^taps must be a whole number of at least 1, got 0$"),
        ({"length": 2.5}, r"^length must be a whole number of at least 1, got 2\.5$"),
        ({"sigma": 0}, r"^sigma must be a number of at least 1e-30, got 0$"),
        ({"sigma": float("nan")}, r"^sigma must be a number of at least 1e-30, got nan$"),
    ],
)
def test_convolutions_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DelayConv(**{"dim": 3, "taps": 2, "length": 5, "sigma": 0.8, **options})


@pytest.mark.parametrize(
    "layer", [DelayConv(3, 2, 5, 0.8), DilatedConv(3, 2, 1), MinGRU(3, 3), MinGRU(3, 3, candidate="positive")]
)
def test_another_number_of_channels_is_named(layer):
    with pytest.raises(ValueError, match=r"^x must have 3 channels, got 4: shape \(2, 5, 4\)$"):
        layer(torch.ones(2, 5, 4))
