"""Symbols stand at evenly drawn steps among distractors and are asked for in order at the end."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mgrade import Model, ModelConfig
from mgrade.tasks.selective_copying import SelectiveCopying, positions
from mgrade.tasks.task import generator

SMALL = SelectiveCopying(length=40, values=4, symbols=6)


class Oracle(nn.Module):
    """Reads the symbols off the tokens and gives their logits at the markers."""

    def __init__(self, symbols, dtype=torch.float32):
        super().__init__()
        self.symbols, self.dtype = symbols, dtype

    def forward(self, tokens, last):
        logits = torch.zeros(*tokens.shape, self.symbols)
        values = tokens[tokens < self.symbols].long()
        logits[tokens == self.symbols + 1] = 100 * F.one_hot(values, self.symbols).float()
        return logits[:, -last:].to(self.dtype), None


@pytest.mark.parametrize(("size", "among"), [(3, 6), (1, 4), (5, 5), (4, 5)])
def test_every_set_of_positions_is_as_likely(size, among):
    rows = positions(20000, size, among, generator=generator(0))
    sets = list(itertools.combinations(range(among), size))
    found, counts = rows.unique(dim=0, return_counts=True)
    assert [tuple(row) for row in found.tolist()] == sets
    expected = 20000 / len(sets)
    assert ((counts - expected) ** 2 / expected).sum() < 2.5 * len(sets)


def test_positions_are_spread_evenly():
    rows = positions(20000, 16, 4080, generator=generator(0))
    assert (rows.diff(dim=1) > 0).all()
    assert rows.min() >= 0
    assert rows.max() < 4080
    share = torch.histc(rows.float(), bins=10, min=0, max=4080) / rows.numel()
    assert (share - 0.1).abs().max() < 0.003


@pytest.mark.parametrize(("within", "content"), [(True, 36), (False, 40)])
def test_a_sequence_is_symbols_among_distractors_then_markers(within, content):
    task = SelectiveCopying(length=40, values=4, symbols=6, markers_within=within)
    tokens, labels = task.draw("train", 200, generator(0))
    assert tokens.shape == (200, content + 4)
    assert tokens.dtype == torch.int32
    assert labels.dtype == torch.int64
    assert (tokens[:, content:] == 7).all()
    assert (tokens[:, :content] <= 6).all()
    assert torch.equal(tokens[tokens < 6].reshape(200, 4).long(), labels)


def test_the_default_is_the_papers():
    tokens, labels = SelectiveCopying().draw("train", 2, generator(0))
    assert tokens.shape == (2, 4096)
    assert labels.shape == (2, 16)
    assert SelectiveCopying().model_fields() == {"inputs": 18, "outputs": 16, "tokens": True, "readout": "every"}


def test_symbols_are_drawn_evenly():
    _, labels = SMALL.draw("train", 6000, generator(0))
    for place in range(4):
        assert (labels[:, place].bincount(minlength=6) / 6000 - 1 / 6).abs().max() < 0.02


def test_seeds_and_splits_settle_the_set():
    task = SelectiveCopying(length=40, values=4, validation=20, test=20)

    def tokens(split, seed):
        return task.examples(split, seed, torch.device("cpu"))[0]

    assert torch.equal(tokens("test", 0), tokens("test", 0))
    assert not torch.equal(tokens("test", 0), tokens("test", 1))
    assert not torch.equal(tokens("test", 0), tokens("validation", 0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_right_answers_are_counted_by_symbol_and_by_sequence(dtype):
    tokens, labels = SMALL.draw("train", 10, generator(0))
    oracle = Oracle(6, dtype)

    def figures(labels):
        return {name: [int(part) for part in parts] for name, parts in SMALL.judge(oracle, tokens, labels).items()}

    assert figures(labels) == {"accuracy": [40, 40], "sequences": [10, 10]}
    loss, count = SMALL.loss(oracle, tokens, labels)
    assert loss.dtype == torch.float32
    assert loss < 1e-6
    assert count == 40
    wrong = labels.clone()
    wrong[0, 2] = (wrong[0, 2] + 1) % 6
    wrong[3] = (wrong[3] + 1) % 6
    assert figures(wrong) == {"accuracy": [35, 40], "sequences": [8, 10]}


def test_the_loss_is_the_cross_entropy_and_follows_weights():
    tokens, labels = SMALL.draw("train", 8, generator(0))
    net = Model(ModelConfig.mgrade(**SMALL.model_fields(), dim=8, depth=1, max_delay=16))
    logits = net(tokens)[0][:, -4:].flatten(0, 1)
    loss, count = SMALL.loss(net, tokens, labels)
    assert torch.allclose(loss / count, F.cross_entropy(logits, labels.flatten()))
    weight = torch.rand(SMALL.classes)
    loss, count = SMALL.loss(net, tokens, labels, weight=weight)
    assert torch.allclose(loss / count, F.cross_entropy(logits, labels.flatten(), weight))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"values": 0}, "values must be a whole number of at least 1, got 0"),
        ({"symbols": 0}, "symbols must be a whole number of at least 1, got 0"),
        ({"length": 31}, "length must be at least 32 for values = 16, got 31"),
        ({"length": 15, "markers_within": False}, "length must be at least 16 for values = 16, got 15"),
        ({"markers_within": "yes"}, "markers_within must be true or false, got 'yes'"),
        ({"validation": 0}, "validation must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SelectiveCopying(**options)
