"""Features differ, change as often as asked, and are asked for at the markers."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mgrade import Model, ModelConfig
from mgrade.tasks.highfreq import HighFrequency, feature_table
from mgrade.tasks.task import generator

FREQUENCIES = {0.07: 14, 0.17: 6, 0.33: 3, 1.0: 1}


class Oracle(nn.Module):
    """Knows the labels and gives their logits at the markers, `shift` steps late."""

    def __init__(self, labels, shift=0, dtype=torch.float32):
        super().__init__()
        self.labels, self.shift, self.dtype = labels, shift, dtype

    def forward(self, tokens):
        logits = torch.zeros(*tokens.shape, 16)
        logits[tokens == 16] = 100 * F.one_hot(self.labels.flatten(), 16).float()
        return logits.roll(self.shift, 1).to(self.dtype), None


def table(repeats=3, seed=0):
    return feature_table(16, 32, symbols=16, repeats=repeats, seed=seed)


@pytest.mark.parametrize(("frequency", "repeats"), FREQUENCIES.items())
def test_symbols_stay_as_long_as_the_frequency_says(frequency, repeats):
    assert HighFrequency(frequency=frequency).repeats == repeats
    features = table(repeats)
    assert features.shape == (16, 32)
    assert features.min() >= 0
    assert features.max() <= 15
    assert len(features.unique(dim=0)) == 16
    changes = features.diff(dim=1) != 0
    expected = torch.arange(1, 32) % repeats == 0
    assert torch.equal(changes, expected.expand(16, -1))


def test_symbols_are_drawn_evenly():
    for order, count in (("free", 3000), ("shuffled", 1000)):
        symbols = feature_table(count, 32, symbols=8, repeats=4, seed=0, order=order)[:, ::4]
        for step in range(8):
            assert (symbols[:, step].bincount(minlength=8) / count - 0.125).abs().max() < 0.04


def test_shuffled_features_hold_the_whole_alphabet_as_often_as_it_fits():
    for feature in feature_table(16, 32, symbols=16, repeats=1, seed=0):
        assert feature[:16].sort().values.tolist() == feature[16:].sort().values.tolist() == list(range(16))
    assert all(len(feature.unique()) == 11 for feature in feature_table(16, 32, symbols=16, repeats=3, seed=0))


def test_levels_are_the_symbols_on_a_line():
    symbols, levels = HighFrequency(), HighFrequency(encoding="level")
    tokens, labels = symbols.draw("train", 4, generator(0))
    signal, same = levels.draw("train", 4, generator(0))
    assert torch.equal(labels, same)
    assert torch.allclose(signal[..., 0], tokens / 8 - 1)
    assert levels.model_fields()["inputs"] == 1


def test_features_are_redrawn_until_all_differ():
    features = feature_table(12, 4, symbols=4, repeats=2, seed=0)
    assert len(features.unique(dim=0)) == 12


def test_the_features_depend_on_their_own_seed_alone():
    assert torch.equal(table(), table())
    assert not torch.equal(table(), table(seed=1))
    task = HighFrequency()
    for seed in (0, 1):
        tokens, labels = task.draw("train", 20, generator(seed))
        assert torch.equal(tokens.unflatten(1, (5, 33))[..., :32], table()[labels])


@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_a_sequence_is_five_different_features_with_markers(frequency):
    task = HighFrequency(frequency=frequency)
    tokens, labels = task.draw("train", 50, generator(0))
    assert tokens.shape == (50, 165)
    assert labels.shape == (50, 5)
    assert tokens.dtype == labels.dtype == torch.int64
    marked = (tokens == 16).nonzero()[:, 1].reshape(50, 5)
    assert torch.equal(marked, torch.tensor([32, 65, 98, 131, 164]).expand(50, -1))
    assert all(len(row.unique()) == 5 for row in labels)


def test_classes_are_as_likely_in_every_place():
    _, labels = HighFrequency().draw("train", 8000, generator(0))
    for place in range(5):
        assert (labels[:, place].bincount(minlength=16) / 8000 - 1 / 16).abs().max() < 0.012


def test_seeds_and_splits_settle_the_set():
    task = HighFrequency(validation=20, test=20)

    def labels(split, seed):
        return task.examples(split, seed, torch.device("cpu"))[1]

    assert torch.equal(labels("test", 0), labels("test", 0))
    assert not torch.equal(labels("test", 0), labels("test", 1))
    assert not torch.equal(labels("test", 0), labels("validation", 0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_right_answers_at_the_markers_are_all_that_counts(dtype):
    task = HighFrequency()
    tokens, labels = task.draw("train", 10, generator(0))
    oracle = Oracle(labels, dtype=dtype)
    assert [int(part) for part in task.judge(oracle, tokens, labels)["accuracy"]] == [50, 50]
    loss, count = task.loss(oracle, tokens, labels)
    assert loss.dtype == torch.float32
    assert loss < 1e-6
    assert count == 50
    late = Oracle(labels, shift=1, dtype=dtype)
    loss, count = task.loss(late, tokens, labels)
    assert math.isclose(loss / count, math.log(16), rel_tol=1e-5)


def test_the_loss_is_the_cross_entropy_and_follows_weights():
    task = HighFrequency()
    tokens, labels = task.draw("train", 4, generator(0))
    net = Model(ModelConfig.mgrade(**task.model_fields(), dim=8, depth=1, max_delay=16))
    logits = net(tokens)[0][:, 32::33].flatten(0, 1)
    loss, count = task.loss(net, tokens, labels)
    assert torch.allclose(loss / count, F.cross_entropy(logits, labels.flatten()))
    weight = torch.rand(task.classes)
    loss, count = task.loss(net, tokens, labels, weight=weight)
    assert torch.allclose(loss / count, F.cross_entropy(logits, labels.flatten(), weight))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frequency": 0.0}, r"frequency must be above 0 and at most 1, got 0\.0"),
        ({"frequency": 2.0}, r"frequency must be above 0 and at most 1, got 2\.0"),
        ({"symbols": 1}, "symbols must be a whole number of at least 2, got 1"),
        ({"features": 0}, "features must be a whole number of at least 1, got 0"),
        ({"feature_length": 0}, "feature_length must be a whole number of at least 1, got 0"),
        ({"features_seed": "a"}, "features_seed must be a whole number, got 'a'"),
        ({"per_sequence": 17}, "per_sequence must be at most features = 16, got 17"),
        ({"symbols": 2}, r"features must be at most 2 at frequency 0\.33, got 16"),
        ({"test": 0}, "test must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        HighFrequency(**options)


def test_features_may_be_long():
    assert HighFrequency(order="free", feature_length=20_000_000, frequency=1.0).features == 16
