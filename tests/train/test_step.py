"""A training step learns, follows its schedule, bounds gradients, and gives the same weights captured or not."""

import math

import pytest
import torch
import torch.nn.functional as F

from helpers import DEVICES
from mgrade import Model, ModelConfig
from mgrade.train import TrainingStep, cosine, cross_entropy


def loss(model, x, target):
    return cross_entropy(model(x)[0], target)


def setting(device, batch=8, seed=0):
    torch.manual_seed(seed)
    config = ModelConfig.mgrade(inputs=4, outputs=3, tokens=True, dim=8, depth=2, taps=2, max_delay=5, readout="mean")
    model = Model(config).to(device)
    x = torch.randint(4, (batch, 20), device=device)
    return model, x, x[:, 0] % 3


@pytest.mark.parametrize("device", DEVICES)
def test_it_learns(device):
    model, x, target = setting(device)
    step = TrainingStep(model, loss, rate=1e-2, clip=("norm", 1.0))
    first = float(step(x, target))
    for _ in range(150):
        last = step(x, target)
    assert float(last) < 0.2 * first


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
@pytest.mark.parametrize("int8", [False, True], ids=["exact", "int8"])
@pytest.mark.parametrize("most", [1, 2, 40], ids="at most {} graphs".format)
def test_a_captured_step_gives_the_weights_of_a_plain_one(int8, most, monkeypatch):
    monkeypatch.setattr("mgrade.train.step._MOST_GRAPHS", most)
    results = []
    for capture in (True, False):
        model, x, target = setting("cuda")
        options = {"schedule": cosine(10, 2), "clip": ("value", 0.1), "int8": int8}
        step = TrainingStep(model, loss, rate=1e-2, capture=capture, **options)
        shown = []
        for rows, steps in ((8, 20), (8, 20), (5, 20), (8, 16), (8, 20), (5, 20), (8, 16)):  # shapes in turn
            shown.append(float(step(x[:rows, :steps], target[:rows])))
        results.append([torch.tensor(shown), *(parameter.detach().clone() for parameter in model.parameters())])
    for captured, plain in zip(*results, strict=True):
        assert torch.allclose(captured, plain, rtol=1e-5, atol=1e-7)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
def test_dropout_draws_the_same_whether_a_step_is_captured_or_replayed():
    def steps(first, state=None):
        torch.manual_seed(0)
        config = ModelConfig.mgrade(inputs=4, outputs=3, tokens=True, dim=8, depth=1, dropout=0.5, readout="mean")
        model = Model(config).to("cuda")
        step = TrainingStep(model, loss, rate=1e-2)
        if state is not None:
            model.load_state_dict(state[0])
            step.load_state(state[1])
        x = torch.arange(8 * 20, device="cuda").view(8, 20) % 4
        for number in range(first, 6):
            if number == 3 and state is None:
                state = {n: t.clone() for n, t in model.state_dict().items()}, step.state()
                state = state[0], {n: t.clone() for n, t in state[1].items()}
            torch.manual_seed(number)
            step(x[:, : 20 if number % 2 else 16], x[:, 0] % 3)
        return state, list(model.parameters())

    state, whole = steps(0)
    for ours, theirs in zip(steps(3, state)[1], whole, strict=True):
        assert torch.equal(ours, theirs)


def test_a_batch_in_which_nothing_counts_changes_nothing():
    model, x, target = setting("cpu")
    before = [parameter.detach().clone() for parameter in model.parameters()]
    step = TrainingStep(model, lambda model, x, target: (0 * model(x)[0].sum(), torch.tensor(0)), rate=1e-2)
    assert float(step(x, target)) == 0
    assert not step.failed()
    for parameter, value in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, value)


@pytest.mark.parametrize("device", DEVICES)
def test_a_parameter_at_rest_stays_as_it_is_whatever_its_gradient_and_its_momentum(device):
    model, x, target = setting(device)
    step = TrainingStep(model, loss, rate=1e-2, average=0.5)
    position, other = model.layers[0].conv.position, model.layers[1].conv.position
    step(x, target)
    step.rest(position)
    kept, moving = position.detach().clone(), other.detach().clone()
    for _ in range(3):
        step(x, target)
    assert torch.equal(position, kept)
    assert not torch.equal(other, moving)
    with step.averaged():
        assert torch.equal(position, kept)


@pytest.mark.parametrize("device", DEVICES)
def test_one_autocast_around_many_steps_learns_with_the_weights_there_are(device):
    model, x, target = setting(device)
    step = TrainingStep(model, loss, rate=3e-2)
    shown, judged = [], []
    with torch.autocast(device, torch.bfloat16):
        for _ in range(20):
            with torch.no_grad(), torch.autocast(device, torch.bfloat16, cache_enabled=False):
                judged.append(float(loss(model, x, target)))
            shown.append(float(step(x, target)))
    assert shown[-1] < 0.5 * shown[0]
    assert shown == pytest.approx(judged, rel=0.02)


@pytest.mark.parametrize("device", DEVICES)
def test_the_average_is_that_of_the_weights_after_every_step(device):
    model, x, target = setting(device)
    step = TrainingStep(model, loss, rate=1e-2, average=0.75)
    expected = [parameter.detach().clone() for parameter in model.parameters()]
    for _ in range(5):
        step(x, target)
        expected = [0.75 * old + 0.25 * now.detach() for old, now in zip(expected, model.parameters(), strict=True)]
    own = [parameter.detach().clone() for parameter in model.parameters()]
    with step.averaged():
        inside = [parameter.detach().clone() for parameter in model.parameters()]
    for average, value, parameter, before in zip(inside, expected, model.parameters(), own, strict=True):
        assert torch.allclose(average, value, rtol=1e-5, atol=1e-7)
        assert torch.equal(parameter, before)


@pytest.mark.parametrize("device", DEVICES)
def test_nothing_moves_from_a_loss_on_that_is_not_finite(device):
    model, x, target = setting(device)
    factor = torch.ones((), device=device)
    step = TrainingStep(model, lambda *batch: factor * loss(*batch), rate=1e-2, schedule=cosine(9), average=0.5)
    for _ in range(3):
        step(x, target)
    before = {**step.state(), **model.state_dict()}
    before = {name: tensor.clone() for name, tensor in before.items()}
    for value in (math.nan, 1.0, math.inf):
        factor.fill_(value)
        step(x, target)
    assert step.failed()
    for name, tensor in {**step.state(), **model.state_dict()}.items():
        assert torch.equal(tensor, before[name]), name


@pytest.mark.parametrize("steps_before", [0, 3])
def test_what_a_warm_up_changes_is_put_back(steps_before):
    ways = []
    for warm_up in (0, 2):
        model, x, target = setting("cpu")
        step = TrainingStep(model, loss, rate=1e-2, schedule=cosine(20), average=0.5)
        for _ in range(steps_before):
            step(x, target)
        before = step._snapshot()
        for _ in range(warm_up):
            step(x, target)
        step._restore(before)
        for _ in range(3):
            step(x, target)
        ways.append([*(parameter.detach().clone() for parameter in model.parameters()), *step.averages.values()])
    for plain, restored in zip(*ways, strict=True):
        assert torch.equal(plain, restored)


def test_rates_follow_the_schedule_and_the_groups():
    model, x, target = setting("cpu")
    step = TrainingStep(model, loss, rate=1e-2, schedule=[0.5, 0.25])
    for factor in (0.5, 0.25, 0.25):
        step(x, target)
        rates = {p: group["lr"] for group in step.optimiser.param_groups for p in group["params"]}
        for name, parameter in model.named_parameters():
            assert rates[parameter] == pytest.approx(factor * (5e-2 if name.endswith("position") else 1e-2)), name


@pytest.mark.parametrize(("kind", "limit"), [("value", 1e-3), ("norm", 1e-3)])
def test_gradients_are_bounded(kind, limit):
    model, x, target = setting("cpu")
    TrainingStep(model, loss, rate=1e-2, clip=(kind, limit))(x, target)
    grads = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    size = grads.abs().max() if kind == "value" else grads.norm()
    assert size == pytest.approx(limit, rel=1e-3)


def test_cosine_rises_linearly_and_falls_to_zero():
    factors = cosine(10, 4)
    assert factors[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert factors[4] == 1.0
    assert factors[7] == pytest.approx(0.5 * (1 + math.cos(math.pi / 2)))
    assert len(factors) == 10
    with pytest.raises(ValueError, match="warmup must be from 0 to steps = 3, got 4"):
        cosine(3, 4)


@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_is_that_of_pytorch(weighted):
    logits, target = torch.randn(4, 7, 5, dtype=torch.float64), torch.randint(5, (4, 7))
    weight = torch.rand(5, dtype=torch.float64) if weighted else None
    expected = F.cross_entropy(logits.flatten(0, 1), target.flatten(), weight)
    assert torch.allclose(cross_entropy(logits, target, weight), expected)


def test_a_bad_clip_is_refused():
    model, _, _ = setting("cpu")
    with pytest.raises(ValueError, match="clip must be"):
        TrainingStep(model, loss, rate=1e-2, clip=("value", 0.0))
