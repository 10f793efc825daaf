"""Each parameter is in exactly one group, and learns and decays as the paper says."""

import pytest
import torch

from mgrade import Model, ModelConfig
from mgrade.train import parameter_groups


@pytest.mark.parametrize("preset", ["mgrade", "mingru", "dcls", "tcn", "lru", "lru_dcls"])
def test_every_parameter_is_in_one_group(preset):
    model = Model(getattr(ModelConfig, preset)(inputs=2, outputs=2, dim=4, depth=2))
    grouped = [id(p) for group in parameter_groups(model, 1e-3, 0.1) for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())


def test_positions_learn_five_times_as_fast_and_nothing_but_weights_decays():
    model = Model(ModelConfig.mgrade(inputs=2, outputs=2, dim=4, depth=1, taps=2, max_delay=8))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for group in parameter_groups(model, 1e-3, 0.1):
        for parameter in group["params"]:
            name = names[id(parameter)]
            assert group["lr"] == (5e-3 if name.endswith("position") else 1e-3)
            decays = name.endswith("weight") and "norm" not in name
            assert group["weight_decay"] == (0.1 if decays else 0.0), name


def test_recurrent_parameters_of_an_lru_have_their_own_rate_and_decay():
    model = Model(ModelConfig.lru(inputs=2, outputs=2, dim=4, depth=1))
    lru = model.layers[0].recurrence
    recurrent = {id(p) for p in (lru.log_rate, lru.log_phase, lru.log_gain, lru.input)}
    for group in parameter_groups(model, 1e-2, 0.1, recurrence_rate=0.5, recurrence_decay=0.3):
        special = [id(parameter) in recurrent for parameter in group["params"]]
        assert all(special) or not any(special)
        assert group["lr"] == (5e-3 if all(special) else 1e-2)
        assert (group["weight_decay"] == 0.3) == all(special)


def test_gates_and_candidates_have_their_own_rate():
    model = Model(ModelConfig.mgrade(inputs=2, outputs=2, dim=4, depth=2, taps=2, max_delay=8))
    names = {parameter: name for name, parameter in model.named_parameters()}
    for group in parameter_groups(model, 1e-2, 0.1, recurrence_rate=0.5):
        for parameter in group["params"]:
            name = names[parameter]
            factor = 0.5 if ".recurrence." in name else 5.0 if name.endswith("position") else 1.0
            assert group["lr"] == pytest.approx(1e-2 * factor), name
            decays = name.endswith("weight") and "norm" not in name
            assert group["weight_decay"] == (0.1 if decays else 0.0), name


def test_positions_are_kept_in_range_after_an_update():
    model = Model(ModelConfig.mgrade(inputs=1, outputs=1, dim=3, depth=2, taps=2, max_delay=4))
    positions = [layer.conv.position for layer in model.layers]
    with torch.no_grad():
        for position in positions:
            position.copy_(torch.tensor([-3.0, 9.0]).expand(3, 2))
    model.constrain_()
    for position in positions:
        assert position.tolist() == [[0.0, 3.0]] * 3
