"""Fixed sets of tasks that draw their own examples."""

import pytest
import torch

from mgrade.tasks import FlipFlop, HighFrequency, Lorenz, SelectiveCopying

TASKS = [
    FlipFlop(length=12, validation=3, test=4),
    HighFrequency(validation=3, test=4),
    Lorenz(length=60, trajectories=2, validation=3, test=4, overlap_trajectories=2),
    SelectiveCopying(length=64, validation=3, test=4),
]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
@pytest.mark.parametrize("split", ["validation", "test"])
def test_they_are_the_same_whatever_the_device(task, split, monkeypatch):
    """A model trained on a GPU is judged again on a CPU: generators of the two give different numbers."""
    here = task.examples(split, 5, torch.device("cpu"))
    elsewhere = task.examples(split, 5, torch.device("meta"))  # which has no generator of its own
    assert [part.shape for part in elsewhere] == [part.shape for part in here]
    assert all(part.device.type == "meta" for part in elsewhere)
    again = task.examples(split, 5, torch.device("cpu"))
    assert all(torch.equal(one, other) for one, other in zip(here, again, strict=True))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_an_example_has_as_many_numbers_as_the_task_says(task):
    read = task.examples("validation", 0, torch.device("cpu"))[-1 if isinstance(task, Lorenz) else 0]
    assert read[0].numel() == task.numbers
