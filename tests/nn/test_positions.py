"""Delays that an optimiser moves out of their range are brought back when they are next used."""

import pytest
import torch

from helpers import assert_close, model_of, random_input, small
from mgrade import load
from mgrade.deploy import from_model


@pytest.fixture
def model():
    return model_of(small("mgrade", readout="mean"))


def positions(model):
    return torch.stack([layer.conv.position.detach() for layer in model.layers])


def learn(model, optimiser, steps=3):
    torch.manual_seed(0)
    x = random_input(model.config, 2, 9)
    for _ in range(steps):
        optimiser.zero_grad()
        model(x)[0].square().sum().backward()
        optimiser.step()
    return x


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("optimiser", [torch.optim.Adam, torch.optim.SGD])
def test_a_training_loop_needs_nothing_but_an_optimiser(model, optimiser, foreach):
    x = learn(model, optimiser(model.parameters(), lr=0.1, foreach=foreach))
    assert positions(model).min() < 0
    with torch.inference_mode():
        y, _ = model.eval()(x)
    assert 0 <= positions(model).min() <= positions(model).max() <= model.config.max_delay - 1
    assert_close(model(x)[0], y, 0)


def test_it_ends_where_one_does_that_constrains_after_every_update(model):
    other = model_of(small("mgrade", readout="mean"))
    other.load_state_dict(model.state_dict())
    learn(model, torch.optim.SGD(model.parameters(), lr=0.1))
    optimiser = torch.optim.SGD(other.parameters(), lr=0.1)
    for _ in range(3):
        learn(other, optimiser, steps=1)
        other.constrain_()
    model.constrain_()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert one.equal(two)


def test_passes_that_share_a_gradient_are_left_alone(model):
    x = learn(model, torch.optim.SGD(model.parameters(), lr=0.1))
    first, state = model(x)
    (first.sum() + model(x, state)[0].sum()).backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("use", [lambda model, _: from_model(model), lambda model, folder: model.save(folder)])
def test_so_they_are_before_an_export_and_before_they_are_saved(model, tmp_path, use):
    learn(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert positions(model).min() < 0
    use(model, tmp_path)
    assert positions(model).min() == 0


def test_positions_that_were_set_or_loaded_are_checked(model, tmp_path):
    with torch.no_grad():
        model.layers[0].conv.position[0, 0] = -3.0
    with pytest.raises(ValueError, match=r"tensor 'layers\.0\.conv\.position' must lie within 0 and max_delay - 1 = 8"):
        model.save(tmp_path)
    model.constrain_()
    model.save(tmp_path)
    assert load(tmp_path).layers[0].conv.position[0, 0] == 0.0
