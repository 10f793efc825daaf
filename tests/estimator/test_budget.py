"""A budget is an upper bound: no weights that training may find take more bytes than were counted."""

import pytest
import torch

from mgrade import Model, ModelConfig
from mgrade.deploy import from_model, quantise
from mgrade.estimator.budget import _unit_ranges, most_bytes, within


@pytest.mark.parametrize("precision", ["int8", "float32"])
@pytest.mark.parametrize("depth", [1, 2])
def test_trained_weights_take_no_more_than_was_counted(precision, depth):
    config = ModelConfig.mgrade(inputs=3, outputs=3, dim=12, depth=depth, taps=4, max_delay=16, readout="mean")
    model = Model(config)
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, 0, 2)
    program = from_model(model)
    program = program if precision == "float32" else quantise(program, _unit_ranges(program))
    assert program.parameter_bytes + program.state_bytes <= most_bytes(config, precision)


def test_large_budgets_stop_where_whole_numbers_do():
    """Sums of more than 512 products could overflow: a wider model is float32 alone."""
    config = ModelConfig(inputs=2, outputs=3, dim=8, depth=1, taps=2, max_delay=8)
    assert within(config, "64MB", "int8").dim <= 256
    assert within(config, "64MB", "float32").dim > 256
