"""Flip-Flop strings follow the rules of the language."""

import pytest
import torch

from mgrade.tasks import flipflop
from mgrade.tasks.flipflop import IGNORE, READ, SYMBOLS, WRITE, ZERO
from prediction import PREDICTION_SETS, prediction_set


def draw(count, length=512, ignore=0.8, seed=0):
    return flipflop.strings(count, length, ignore=ignore, generator=torch.Generator().manual_seed(seed))


def test_every_read_returns_the_last_written_bit():
    for string in draw(20, 64, 0.5):
        text = "".join(SYMBOLS[token] for token in string)
        assert text[0] == "w"
        assert text[-2] == "r"
        written = None
        for instruction, bit in zip(text[::2], text[1::2], strict=True):
            assert instruction in "wri"
            assert bit in "01"
            if instruction == "w":
                written = bit
            if instruction == "r":
                assert bit == written


def test_instructions_have_the_asked_shares_and_bits_are_fair():
    tokens = draw(2000, ignore=0.8)
    inner = tokens[:, 2:-2:2]
    for symbol, share in ((IGNORE, 0.8), (WRITE, 0.1), (READ, 0.1)):
        assert abs((inner == symbol).double().mean() - share) < 0.005
    assert abs((tokens[:, 1::2] - ZERO).double().mean() - 0.5) < 0.01


def test_the_same_seed_gives_the_same_strings():
    assert torch.equal(draw(5), draw(5))
    assert not torch.equal(draw(5), draw(5, seed=1))


def test_prediction_sets_match_the_definition():
    tokens = torch.tensor([[SYMBOLS.index(symbol) for symbol in "w1i0r1w0r0"]])
    names = [PREDICTION_SETS[index] for index in prediction_set(tokens)[0]]
    choice, instruction = "{0,1}", "{w,r,i}"
    expected = [
        choice,
        instruction,
        choice,
        instruction,
        "{1}",
        instruction,
        choice,
        instruction,
        "{0}",
        instruction,
    ]
    assert names == expected


def test_recall_counts_only_the_answers_to_reads():
    tokens = draw(10, 64, 0.5)
    perfect = torch.nn.functional.one_hot(tokens[:, 1:], 5).float()
    assert flipflop.recall(perfect, tokens) == 1
    wrong_elsewhere = perfect.roll(1, -1)
    wrong_elsewhere[flipflop.reads(tokens)] = perfect[flipflop.reads(tokens)]
    assert flipflop.recall(wrong_elsewhere, tokens) == 1
    assert flipflop.recall(perfect.roll(1, -1), tokens) == 0


def test_a_recall_string_writes_once_and_reads_at_the_end():
    for string in flipflop.recall_strings(8, 50, generator=torch.Generator().manual_seed(0)):
        text = "".join(SYMBOLS[token] for token in string)
        assert len(text) == 104
        assert text[0] == "w"
        assert text[-2:] == "r" + text[1]
        assert text[2:-2:2] == "i" * 50


@pytest.mark.parametrize("length", [0, 2, 511])
def test_bad_lengths_are_refused(length):
    with pytest.raises(ValueError, match=f"length must be an even number of at least 4, got {length}"):
        draw(1, length)


def test_bad_probabilities_are_refused():
    with pytest.raises(ValueError, match=r"ignore must be a probability from 0 to 1, got 1\.5"):
        draw(1, 8, 1.5)
