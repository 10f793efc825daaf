"""Batches of about equally long examples: every example once, little padding, and the same gradients."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mgrade.nn import Model, ModelConfig
from mgrade.tasks.labelled import HeldOut, Labelled, Sequences
from mgrade.tasks.retrieval import Retrieval
from mgrade.train.evaluate import evaluate
from mgrade.train.feed import Feed
from mgrade.train.lengths import alike, width
from mgrade.train.processes import Processes
from small import small

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Unequal(Labelled):
    """Sequences of 1 to `longest` steps, numbered in their first step."""

    count: int = 1000
    longest: int = 600
    padded: bool = True

    @property
    def classes(self):
        return 3

    def model_fields(self):
        return {"inputs": 1, "outputs": 3, "readout": "mean"}

    def read(self, split, folder):
        source = np.random.default_rng(0)
        lengths = source.integers(1, self.longest + 1, self.count)
        values = source.standard_normal((self.count, 700, 1), np.float32)  # what lies behind the end is not zero
        values[:, 0, 0] = np.arange(self.count)
        return Sequences(values, source.integers(0, 3, self.count), lengths if self.padded else None)


@dataclass(frozen=True, kw_only=True)
class Held(Unequal, HeldOut):
    """The same without a validation set of its own."""

    examples = HeldOut.examples


def feed(task=None, batch=16, seed=0, processes=None, by_length=True):
    return Feed(task or Unequal(), seed, batch, CPU, processes or Processes(), by_length)


def model():
    torch.manual_seed(0)
    return Model(ModelConfig(inputs=1, outputs=3, dim=4, depth=1, taps=2, max_delay=8, readout="mean"))


def test_an_epoch_has_every_example_once_in_new_company():
    batches = feed()
    assert batches.steps_per_epoch == 62
    epochs = [[batches(62 * epoch + index)[0][:, 0, 0] for index in range(62)] for epoch in range(2)]
    for epoch in epochs:
        assert len(torch.cat(epoch).unique()) == 62 * 16
    assert {frozenset(batch.tolist()) for batch in epochs[0]}.isdisjoint(
        frozenset(batch.tolist()) for batch in epochs[1]
    )


def test_a_batch_is_as_long_as_its_longest_example_and_hardly_longer_than_the_others():
    batches, steps, valid = feed(), [], 0
    for index in range(62):
        values, _, lengths = batches(index)
        steps.append(values.shape[1])
        assert lengths.max() <= steps[-1] < lengths.max() + 32
        valid += int(lengths.sum())
    assert steps != sorted(steps)  # short and long ones in turn
    assert valid / (16 * sum(steps)) > 0.9
    assert len(set(steps)) <= 32


def test_batches_are_a_function_of_the_seed_and_the_step():
    batches = feed()
    expected = [batches(index) for index in range(80)]
    again = feed()
    for index in reversed(range(80)):
        for ours, theirs in zip(again(index), expected[index], strict=True):
            assert torch.equal(ours, theirs)
    assert not torch.equal(feed(seed=1)(0)[1], expected[0][1])


def test_processes_share_every_batch():
    shares = [feed(processes=Processes(rank, 2)) for rank in range(2)]
    for index in (0, 61, 62):
        for part, tensor in enumerate(feed()(index)):
            assert torch.equal(torch.cat([share(index)[part] for share in shares]), tensor)


def test_what_is_cut_off_changes_neither_the_loss_nor_a_gradient():
    task, batches = Unequal(), feed()
    short = next(batch for batch in map(batches, range(62)) if batch[0].shape[1] < 300)
    rows = short[0][:, 0, 0].long()
    long = tuple(tensor[rows] for tensor in batches.examples)
    gradients = []
    for batch in (short, long):
        learner = model().double()
        total, weight = task.loss(learner, batch[0].double(), *batch[1:])
        (total / weight).backward()
        gradients.append([total.detach(), *(parameter.grad for parameter in learner.parameters())])
    for ours, theirs in zip(*gradients, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_evaluation_counts_every_example_whatever_its_length():
    task, learner = Unequal(count=45), model()
    examples = task.examples("test", 0, CPU)
    learner.eval()
    with torch.no_grad():
        expected = {name: float(total / weight) for name, (total, weight) in task.judge(learner, *examples).items()}
    for batch in (1, 7, 45, 100):
        assert evaluate(learner, task, examples, batch, Processes()) == pytest.approx(expected, rel=1e-5)


def test_the_longer_document_of_a_pair_decides():
    task = Retrieval(max_length=64)
    values, lengths = torch.arange(2 * 2 * 64).view(2, 2, 64), torch.tensor([[3, 20], [40, 5]])
    batch = values, torch.tensor([0, 1]), lengths
    assert task.lengths(*batch).tolist() == [20, 40]
    cut = task.cut(48, *batch)
    assert torch.equal(cut[0], values[:, :, :48])
    assert all(ours is theirs for ours, theirs in zip(cut[1:], batch[1:], strict=True))


@given(st.integers(1, 5000), st.data())
def test_widths_are_few_and_no_shorter_than_they_must_be(longest, data):
    steps = data.draw(st.integers(1, longest))
    assert steps <= width(steps, longest)
    assert width(steps, longest) % 16 == 0
    assert width(steps, longest) - steps < max(16, longest / 32 + 16)
    assert len({width(steps, longest) for steps in range(1, longest + 1)}) <= 32


def test_fewer_batches_than_are_sorted_at_a_time():
    lengths = torch.tensor([5, 40, 6, 41, 7, 42])
    batches = alike(torch.arange(6), lengths, 3, 32, torch.Generator().manual_seed(0))
    assert sorted(sorted(rows.tolist()) for rows in batches) == [[0, 2, 4], [1, 3, 5]]


def test_the_last_batch_of_a_pool_may_be_smaller():
    batches = alike(torch.arange(7), torch.arange(7), 2, 2)
    assert sorted(map(len, batches)) == [1, 2, 2, 2]
    assert sorted(torch.cat(batches).tolist()) == list(range(7))


@pytest.mark.parametrize("task", [Unequal(padded=False), Unequal(longest=1)], ids=["no lengths", "one length"])
def test_where_nothing_differs_in_length_it_changes_nothing(task):
    for step in (0, 1, 70):
        for some, others in zip(feed(task)(step), feed(task, by_length=False)(step), strict=True):
            assert some.equal(others)


def test_for_examples_without_end_it_is_refused():
    with pytest.raises(ValueError, match=r"train\.by_length must be false for a task whose examples are drawn"):
        small("flipflop/mgrade", "train.by_length=true")


def test_something_is_left_to_train_on():
    with pytest.raises(ValueError, match=r"task\.held_out must leave some of 3 examples for training, got 0\.99"):
        Held(count=3, held_out=0.99).examples("train", 0, CPU)
