"""Lorenz trajectories solve their equations; naive predictions score 1; neighbours are counted as defined."""

import json
import math

import pytest
import torch
from torch import nn

from mgrade import Model, ModelConfig
from mgrade.tasks import lorenz
from mgrade.tasks.lorenz import Lorenz
from mgrade.tasks.task import generator

CPU = torch.device("cpu")
SMALL = Lorenz(trajectories=6, validation=5, test=4, length=30, burn_in=20, overlap_trajectories=3)


class Naive(nn.Module):
    """Predicts that all stays as it is."""

    def forward(self, x):
        return x, None


def model(**fields):
    torch.manual_seed(0)
    return Model(ModelConfig.mgrade(**SMALL.model_fields(), **{"dim": 6, "depth": 2, "max_delay": 8, **fields}))


def runge_kutta(state, step):
    def slope(state):
        x, y, z = state
        return torch.stack([10 * (y - x), x * (28 - z) - y, x * y - 2.667 * z])

    a = slope(state)
    b = slope(state + step / 2 * a)
    c = slope(state + step / 2 * b)
    d = slope(state + step * c)
    return state + step / 6 * (a + 2 * b + 2 * c + d)


def test_a_time_unit_agrees_with_fine_runge_kutta_steps():
    states = lorenz.trajectories(5, 101, generator(0), burn_in=0)
    state = states[:, 0].T
    for step in range(1, 101):
        for _ in range(80):
            state = runge_kutta(state, 0.01 / 80)
        assert (states[:, step].T - state).abs().max() < 1e-8


def test_finer_steps_give_the_same_trajectories():
    coarse = lorenz.trajectories(50, 101, generator(0), burn_in=0)
    fine = lorenz.trajectories(50, 401, generator(0), dt=0.0025, burn_in=0)[:, ::4]
    assert (coarse - fine).abs().max() < 1e-9
    sparse = lorenz.trajectories(50, 41, generator(0), dt=0.025, burn_in=0)
    assert (sparse[:, ::2] - coarse[:, ::5]).abs().max() < 1e-9


def test_trajectories_start_on_a_ray_and_lose_their_transient():
    states = lorenz.trajectories(500, 50, generator(0), burn_in=0)
    assert states.shape == (500, 50, 3)
    assert states.dtype == torch.float64
    scale = states[:, 0] / torch.tensor(lorenz.START)
    assert torch.allclose(scale, scale[:, :1].expand(-1, 3), rtol=1e-6)
    assert scale.min() > 0
    assert scale.max() < 5
    assert abs(scale.mean() - 2.5) < 0.2
    assert torch.equal(lorenz.trajectories(500, 30, generator(0), burn_in=20), states[:, 20:])


def test_examples_are_one_coordinate_its_next_value_and_the_whole_state():
    for split, count in (("train", 6), ("validation", 5), ("test", 4)):
        x, target, full = SMALL.examples(split, 0, CPU)
        assert x.shape == target.shape == (count, 29, 1)
        assert full.shape == (count, 30, 3)
        assert {part.dtype for part in (x, target, full)} == {torch.float32}
        assert torch.equal(x, full[:, :-1, :1])
        assert torch.equal(target, full[:, 1:, :1])


def test_seeds_and_splits_settle_the_set():
    def first(split, seed):
        return SMALL.examples(split, seed, CPU)[2][:4]

    assert torch.equal(first("train", 0), first("train", 0))
    assert not torch.equal(first("train", 0), first("train", 1))
    assert not torch.equal(first("train", 0), first("test", 0))
    assert not torch.equal(first("validation", 0), first("test", 0))


@pytest.mark.parametrize("kind", ["absolute", "relative"])
def test_noise_has_the_asked_size(kind):
    def states(noise):
        return Lorenz(noise=noise, noise_kind=kind, length=200).draw("train", 100, generator(0))[2].double()

    clean = states(0.0)
    deviation = (states(0.05) - clean).std((0, 1))
    expected = 0.05 * (clean.std((0, 1)) if kind == "relative" else torch.ones(3))
    assert torch.allclose(deviation, expected.double(), rtol=0.03)


def test_the_naive_prediction_has_a_mase_of_1():
    batch = SMALL.examples("train", 0, CPU)
    error, scale = SMALL.loss(Naive(), *batch)
    assert error == scale
    figures = SMALL.judge(Naive(), *batch)
    assert figures.keys() == {"mase_observed", "mase_unobserved", "mase_y", "mase_z"}
    for error, scale in figures.values():
        assert error == scale


def test_each_coordinate_is_judged_on_its_own_next_value():
    net, (x, target, full) = model(), SMALL.examples("test", 0, CPU)
    with torch.no_grad():
        figures = SMALL.judge(net, x, target, full)
        for coordinate, name in enumerate(("mase_observed", "mase_y", "mase_z")):
            value = full[:, :, coordinate : coordinate + 1]
            error = (net(value[:, :-1])[0] - value[:, 1:]).abs().sum()
            assert torch.allclose(figures[name][0], error)
            assert torch.allclose(figures[name][1], value.diff(dim=1).abs().sum())
        assert torch.equal(figures["mase_observed"][1], SMALL.loss(net, x, target, full)[1])
    for part in (0, 1):
        assert torch.allclose(figures["mase_unobserved"][part], figures["mase_y"][part] + figures["mase_z"][part])


def test_the_other_objective_is_the_mean_squared_error():
    task = Lorenz(objective="mse", length=30)
    net, batch = model(), SMALL.examples("train", 0, CPU)
    error, count = task.loss(net, *batch)
    assert torch.allclose(error / count, nn.functional.mse_loss(net(batch[0])[0], batch[1]))


def test_overlap_is_1_between_a_space_and_its_likeness():
    points = torch.randn(700, 3)
    turn, _ = torch.linalg.qr(torch.randn(3, 3))
    assert lorenz.overlap(points, points) == 1
    assert lorenz.overlap(points, 5 * points @ turn + 1, chunk=100) > 0.999


def test_overlap_of_independent_spaces_is_that_of_chance():
    overlap = lorenz.overlap(torch.randn(1000, 3), torch.randn(1000, 8))
    assert abs(overlap - (1 + 19 * 19 / 999) / 20) < 0.01
    assert lorenz.overlap(torch.randn(500, 3), torch.zeros(500, 2), 1) == 1


def test_overlap_matches_the_definition():
    true, embedded = torch.randn(60, 3), torch.randn(60, 3)
    embedded[:, 0] = true[:, 0]

    def neighbours(space, point):
        return set((space - space[point]).norm(dim=1).argsort()[:20].tolist())

    shares = [len(neighbours(true, point) & neighbours(embedded, point)) / 20 for point in range(60)]
    assert math.isclose(lorenz.overlap(true, embedded, 20, chunk=7), sum(shares) / 60)


def test_overlap_refuses_what_it_cannot_count():
    with pytest.raises(ValueError, match="k must be from 1 to the number of points, 5, got 20"):
        lorenz.overlap(torch.zeros(5, 3), torch.zeros(5, 2))
    with pytest.raises(ValueError, match="embedded must have as many points as true, 50, got 40"):
        lorenz.overlap(torch.zeros(50, 3), torch.zeros(40, 2))


@pytest.mark.parametrize("fields", [{}, {"skips": ()}, {"expansion": 2.0, "projection": True}])
def test_hidden_states_end_in_the_state_of_the_last_layer(fields):
    net, x = model(**fields), SMALL.examples("test", 0, CPU)[0]
    hidden = lorenz.hidden_states(net, x)
    assert hidden.shape == (4, 29, net.config.hidden)
    assert torch.allclose(hidden[:, -1], net(x)[1].hidden[-1], atol=1e-6)
    assert torch.allclose(hidden[:, 9], net(x[:, :10])[1].hidden[-1], atol=1e-6)
    assert not net.layers[-1].recurrence._forward_pre_hooks


def test_hidden_states_of_another_recurrence_are_refused():
    net = Model(ModelConfig.lru(**SMALL.model_fields(), dim=4, depth=1))
    with pytest.raises(ValueError, match="recurrence must be mingru to read hidden states, got 'lru'"):
        lorenz.hidden_states(net, torch.zeros(1, 5, 1))
    assert SMALL.examine(net, 0, CPU).keys() == {"trajectories"}


def test_principal_components_hold_the_variance_in_order():
    points = torch.randn(400, 6, dtype=torch.float64) * torch.tensor([1.0, 9, 2, 0.1, 5, 0.1])
    components, share = lorenz.principal_components(points)
    assert torch.allclose(components.var(0, correction=0) / points.var(0, correction=0).sum(), share)
    assert share[0] > share[1] > share[2] > 0.03
    covariance = components.T @ components
    assert torch.allclose(covariance, covariance.diagonal().diag(), atol=1e-8)


def test_the_overlap_is_that_of_the_first_trajectories_of_a_set():
    network, examples = model(), SMALL.examples("validation", 0, CPU)
    x, _, full = (part[:3] for part in examples)
    hidden = lorenz.hidden_states(network, x)
    found = SMALL.watch(network, *examples)
    assert found == {"neighbour_overlap": lorenz.overlap(full[:, :-1].flatten(0, 1), hidden.flatten(0, 1))}
    assert 0.05 <= found["neighbour_overlap"] <= 1


def test_what_is_examined_can_be_written_as_json():
    found = json.loads(json.dumps(SMALL.examine(model(), 0, CPU), allow_nan=False))
    shown = torch.tensor(found["trajectories"])
    assert shown.shape == torch.tensor(found["principal_components"]).shape == (3, 29, 3)
    assert torch.allclose(shown, SMALL.examples("test", 0, CPU)[2][:3, :-1], atol=1e-3)
    assert len(found["explained_variance"]) == 3
    assert sum(found["explained_variance"]) <= 1.0001


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trajectories": 0}, "trajectories must be a whole number of at least 1, got 0"),
        ({"validation": 0}, "validation must be a whole number of at least 1, got 0"),
        ({"length": 1}, "length must be a whole number of at least 2, got 1"),
        ({"burn_in": -1}, "burn_in must be a whole number of at least 0, got -1"),
        ({"noise": -0.1}, r"noise must be a number of at least 0, got -0\.1"),
        ({"noise": -(10**400)}, r"noise must be a number of at least 0, got -1000"),
        ({"noise": math.nan}, "noise must be a number of at least 0, got nan"),
        ({"dt": 0.0}, r"dt must be above 0 and at most 100\.0, got 0\.0"),
        ({"dt": 1e9}, r"dt must be above 0 and at most 100\.0, got 1000000000\.0"),
        ({"noise_kind": "loud"}, "noise_kind must be one of absolute, relative, got 'loud'"),
        ({"objective": "mae"}, "objective must be one of mase, mse, got 'mae'"),
        ({"overlap_trajectories": 9, "test": 8}, "overlap_trajectories must be at most test = 8, got 9"),
        ({"overlap_trajectories": 9, "validation": 8}, "overlap_trajectories must be at most validation = 8, got 9"),
        ({"overlap_trajectories": 1, "length": 9}, "overlap_trajectories must give at least 20 points of 8 per"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Lorenz(**options)
