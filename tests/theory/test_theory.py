"""The theorems hold for the models that the proofs construct."""

import pytest
import torch

from mgrade import Model, ModelConfig
from mgrade.tasks import flipflop
from mgrade.theory import flipflop_model, takens_model, twin_histories, window
from prediction import prediction_set


@pytest.mark.parametrize(("delays", "spacing"), [(1, 1), (7, 1), (7, 3), (5, 20)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_hidden_state_is_exactly_the_delay_vector(delays, spacing, dtype):
    signal = torch.randn(2, 200, 1, dtype=dtype)
    signal[0, 50:60] = 0
    hidden, _ = takens_model(delays, spacing).to(dtype)(signal)
    for q in range(delays):
        expected = torch.zeros(2, 200, dtype=dtype)
        expected[:, q * spacing :] = signal[:, : 200 - q * spacing, 0]
        assert torch.equal(hidden[..., q], expected)


@pytest.mark.parametrize("ignore", [0.1, 0.8, 0.98])
def test_one_layer_predicts_every_set_of_a_flipflop_string_of_100000_symbols(ignore):
    strings = flipflop.strings(2, 100_000, ignore=ignore, generator=torch.Generator().manual_seed(1))
    expected = prediction_set(strings)
    assert set(expected.unique().tolist()) == {0, 1, 2, 3}
    outputs, _ = flipflop_model()(strings)
    assert torch.equal(outputs.argmax(-1), expected)


def test_the_flipflop_model_streams():
    strings = flipflop.strings(3, 200, ignore=0.5, generator=torch.Generator().manual_seed(2))
    model = flipflop_model()
    state, predicted = model.initial_state(3), []
    for symbol in strings.unbind(1):
        y, state = model.step(symbol, state)
        predicted.append(y.argmax(-1))
    assert torch.equal(torch.stack(predicted, 1), prediction_set(strings))


@pytest.mark.parametrize(
    "config",
    [
        ModelConfig.tcn(inputs=5, outputs=5, tokens=True, dim=8, depth=3, taps=4),
        ModelConfig.dcls(inputs=5, outputs=5, tokens=True, dim=8, depth=2, taps=3, max_delay=16),
        ModelConfig.tcn(inputs=5, outputs=5, tokens=True, dim=8, depth=2, taps=3, dilation=(5, 7), readout="last"),
    ],
)
def test_a_fixed_window_cannot_tell_twin_histories_apart(config):
    size = window(config)
    a, b = twin_histories(size)
    assert torch.equal(a[:, -size:], b[:, -size:])
    assert not torch.equal(a, b)
    assert prediction_set(a)[0, -1] != prediction_set(b)[0, -1]
    model = Model(config)
    y_a, y_b = (model(history)[0].reshape(-1, 5)[-1] for history in (a, b))
    assert torch.equal(y_a, y_b)


def test_the_window_of_dilated_convolutions_is_exact():
    config = ModelConfig.tcn(inputs=5, outputs=5, tokens=True, dim=8, depth=3, taps=4)
    size = window(config)
    # with one distracting symbol less, the bit that differs is the oldest symbol inside the window
    a, b = (torch.cat([history[:, :2], history[:, -size + 1 :]], 1) for history in twin_histories(size))
    model = Model(config)
    assert not torch.equal(model(a)[0][0, -1], model(b)[0][0, -1])


def test_a_recurrence_tells_them_apart_at_any_distance():
    assert window(ModelConfig.mgrade(inputs=5, outputs=5)) is None
    a, b = twin_histories(10_000)
    model = flipflop_model()
    assert model(a)[0][0, -1].argmax() == 2
    assert model(b)[0][0, -1].argmax() == 3


def test_bad_sizes_are_refused_by_name():
    with pytest.raises(ValueError, match="delays must be a whole number of at least 1, got 0"):
        takens_model(0, 1)
    with pytest.raises(ValueError, match="size must be a whole number of at least 1, got 0"):
        twin_histories(0)
