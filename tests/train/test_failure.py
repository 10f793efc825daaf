"""The first tensor that is not finite is named."""

import pytest
import torch

from mgrade.nn import Model, ModelConfig
from mgrade.train.failure import offender


@pytest.fixture
def model():
    return Model(ModelConfig(inputs=2, outputs=1, dim=4, depth=2, taps=1, max_delay=2))


def loss(model, x):
    return model(x)[0].square().sum(), torch.tensor(1.0)


def test_a_parameter(model):
    with torch.no_grad():
        model.layers[1].recurrence.bias[0] = float("inf")
    assert offender(model, loss, (torch.ones(1, 3, 2),)) == "parameter layers.1.recurrence.bias"


def test_an_input(model):
    assert offender(model, loss, (torch.tensor([[[1.0, float("nan")]]]),)) == "input 0 of the batch"


def test_an_output(model):
    with torch.no_grad():
        model.encoder.weight.fill_(3e38)
    assert offender(model, loss, (torch.full((1, 3, 2), 3.0),)) == "output of encoder"


def test_the_loss_itself(model):
    def broken(model, x):
        total, weight = loss(model, x)
        return total, weight * 0

    assert offender(model, broken, (torch.ones(1, 3, 2),)) == "loss"


def test_a_gradient(model):
    def steep(model, x):
        total = torch.sqrt(model.encoder.weight.sum() - model.encoder.weight.sum().detach())
        return total + 0 * loss(model, x)[0], torch.tensor(1.0)

    assert offender(model, steep, (torch.ones(1, 3, 2),)) == "gradient of encoder.weight"
