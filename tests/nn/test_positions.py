"""Delays that an optimiser moves out of their range count as the end of that range."""

import copy

import pytest
import torch
from torch.optim.swa_utils import AveragedModel

from helpers import assert_close, model_of, random_input, small
from mgrade import load
from mgrade.deploy import from_model

LAST = small("mgrade").max_delay - 1


@pytest.fixture
def model():
    return model_of(small("mgrade", readout="mean"))


@pytest.fixture
def strayed(model):
    """A model with some delays beyond either end."""
    with torch.no_grad():
        for layer in model.layers:
            layer.conv.position[:, 0] = -3.0
            layer.conv.position[:, 1] = LAST + 2.0
    return model


def positions(model):
    return torch.stack([layer.conv.position.detach().clone() for layer in model.layers])


def constrained(model):
    other = copy.deepcopy(model)
    other.constrain_()
    return other


def learn(model, optimiser, steps=3):
    torch.manual_seed(0)
    x = random_input(model.config, 2, 9)
    for _ in range(steps):
        optimiser.zero_grad()
        model(x)[0].square().sum().backward()
        optimiser.step()
    return x


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("optimiser", "options"),
    [
        (torch.optim.Adam, {}),
        (torch.optim.SGD, {}),
        (torch.optim.SGD, {"foreach": True}),
        (torch.optim.AdamW, {"fused": True}),
    ],
)
def test_a_training_loop_needs_nothing_but_an_optimiser(model, optimiser, options, training):
    x = learn(model.train(training), optimiser(model.parameters(), lr=0.1, **options))
    assert positions(model).min() < 0
    assert_close(model(x)[0], constrained(model)(x)[0], 0)
    average, other = AveragedModel(model), model_of(model.config)
    average.update_parameters(model)
    other.load_state_dict(model.state_dict())
    assert_close(average(x)[0], model(x)[0], 0)
    assert_close(other(x)[0], model(x)[0], 0)


def test_a_tap_beyond_the_end_learns_as_one_at_the_end(strayed):
    x, inside = random_input(strayed.config, 2, 9), constrained(strayed)
    for one in (strayed, inside):
        one(x)[0].square().sum().backward()
    for mine, theirs in zip(strayed.layers, inside.layers, strict=True):
        assert theirs.conv.position.grad.abs().min() > 0
        assert_close(mine.conv.position.grad, theirs.conv.position.grad, 0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_way_to_run_a_model_sees_the_same_delays(strayed):
    x = random_input(strayed.config, 2, 9)
    expected = constrained(strayed)(x)[0]
    assert_close(strayed(x)[0], expected, 0)
    with torch.inference_mode():
        assert_close(strayed(x)[0], expected, 1e-12)
    assert_close(torch.export.export(strayed, (x,)).module()(x)[0], expected, 1e-12)
    assert_close(torch.compile(strayed, backend="aot_eager")(x)[0], expected, 1e-12)
    assert_close(torch.func.vmap(lambda row: strayed(row[None])[0][0])(x), expected, 1e-12)


def test_running_a_model_leaves_the_parameters_alone(strayed):
    x, before = random_input(strayed.config, 2, 9), positions(strayed)
    strayed(x)[0].sum().backward()
    with torch.no_grad():
        strayed(x)
    moved = {"layers.0.conv.position": torch.full_like(before[0], 20.0)}
    torch.func.functional_call(strayed, moved, (x,))
    assert moved["layers.0.conv.position"].unique().tolist() == [20.0]
    assert positions(strayed).equal(before)


def test_what_is_saved_and_exported_lies_within(strayed, tmp_path):
    x, before = random_input(strayed.config, 2, 9), positions(strayed)
    strayed.layers[1].conv = strayed.layers[0].conv  # shared, so stored twice
    strayed.save(tmp_path)
    assert positions(strayed)[0].equal(before[0])
    saved = load(tmp_path)
    assert 0 == positions(saved).min() < positions(saved).max() == LAST
    assert_close(saved(x)[0], strayed(x)[0], 0)
    for op, other in zip(from_model(strayed).ops, from_model(saved).ops, strict=True):
        assert all((op.arrays[name] == other.arrays[name]).all() for name in op.arrays)


def test_wrapped_parts_are_constrained_too(strayed):
    for layer in strayed.layers:
        layer.conv = torch.compile(layer.conv, backend="eager")
    strayed.constrain_()
    assert 0 == positions(strayed).min() < positions(strayed).max() == LAST


def test_files_with_delays_beyond_the_range_are_refused(strayed, tmp_path):
    from mgrade.nn.storage import check_tensors

    with pytest.raises(ValueError, match=r"tensor 'layers\.0\.conv\.position' must lie within 0 and max_delay - 1 = 8"):
        check_tensors(tmp_path, strayed.config, strayed.state_dict())
