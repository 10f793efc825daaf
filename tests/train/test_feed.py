"""Batches are a function of the seed and the step."""

import pytest
import torch

from mgrade.tasks import Lorenz
from mgrade.train import load_recipe
from mgrade.train.feed import Feed
from mgrade.train.processes import Processes
from small import small

CPU = torch.device("cpu")


def lorenz():
    few = ["task.trajectories=23", "task.length=12", "task.validation=3", "task.overlap_trajectories=2"]
    return load_recipe("lorenz/mgrade", few).task


def feed(task, batch=5, seed=0, processes=None):
    return Feed(task, seed, batch, CPU, processes or Processes())


@pytest.mark.parametrize("task", [small().task, lorenz()], ids=["endless", "fixed"])
def test_any_step_can_be_asked_for_at_any_time(task):
    forward = feed(task)
    batches = [forward(step) for step in range(12)]
    backward = feed(task)
    for step in reversed(range(12)):
        for ours, theirs in zip(backward(step), batches[step], strict=True):
            assert torch.equal(ours, theirs)
    assert not torch.equal(batches[0][0], batches[1][0])
    assert not torch.equal(batches[0][0], feed(task, seed=1)(0)[0])


@pytest.mark.parametrize("task", [small().task, lorenz()], ids=["endless", "fixed"])
def test_processes_share_every_batch(task):
    whole = feed(task)
    shares = [feed(task, processes=Processes(rank, 2)) for rank in range(2)]
    for step in (0, 3, 9):
        for index, tensor in enumerate(whole(step)):
            assert torch.equal(torch.cat([share(step)[index] for share in shares]), tensor)


def test_an_epoch_goes_through_the_set_once_in_a_new_order():
    batches = feed(lorenz())
    assert batches.steps_per_epoch == 4
    seen = [torch.cat([batches(4 * epoch + i)[0] for i in range(4)])[:, 0, 0] for epoch in range(2)]
    for values in seen:
        assert len(values.unique()) == 20
        assert torch.isin(values, batches.examples[0][:, 0, 0]).all()
    assert not torch.equal(seen[0], seen[1])


def test_a_batch_larger_than_the_set_is_refused():
    with pytest.raises(ValueError, match=r"train\.batch must be at most the 23 training examples, got 24"):
        feed(lorenz(), batch=24)


def test_classes_count_as_they_are_said_to(monkeypatch):
    monkeypatch.setattr(Lorenz, "classes", 4)
    batches = feed(lorenz())
    batches.examples = (torch.zeros(8), torch.tensor([0, 0, 0, 0, 2, 2, 1, 2]))
    assert batches.class_weights("inverse").tolist() == pytest.approx([1 / 2, 1 / 0.5, 1 / 1.5, 0.0])
    assert batches.class_weights((0.5, 0.0, 2.0, 1.0)).tolist() == [0.5, 0.0, 2.0, 1.0]
    assert batches.class_weights("none") is None
    monkeypatch.setattr(Lorenz, "classes", None)
    assert batches.class_weights("inverse") is None
