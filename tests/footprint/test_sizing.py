"""Configurations that fit: they do, none larger does, and a step keeps up."""

import pytest

from mgrade import ModelConfig
from mgrade.footprint import Limits, exact, find_chip, measure, operations, parse_bytes, sizes
from mgrade.footprint.sizing import grid


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("instantiated", [False, True])
@pytest.mark.parametrize(("ram", "flash"), [(65_536, 262_144), (65_536, 0)])
def test_all_fit_and_the_first_is_the_largest_that_does(precision, instantiated, ram, flash):
    found = sizes(Limits(ram=ram, flash=flash), precision=precision, instantiated=instantiated)
    counts = [one.parameters for one in found]
    assert counts == sorted(counts, reverse=True)

    def fit(config):
        stored, kept = measure(config, precision).needs(instantiated)
        return stored <= flash and kept <= ram if flash else stored + kept <= ram

    tried = list(grid(1, 10))
    fitting = [config for config in tried if fit(config)]
    assert {one.config for one in found} == set(fitting)
    assert 0 < len(fitting) < len(tried)
    assert counts[0] == max(one.parameters for one in found) == exact(found[0].config)["parameters"]


def test_the_model_itself_fits():
    best = sizes(Limits(ram=65_536, flash=262_144), inputs=5, outputs=3)[0]
    truth = exact(best.config)
    assert (best.config.inputs, best.config.outputs) == (5, 3)
    assert truth["parameter_bytes"] <= 262_144
    assert truth["state_bytes"] <= 65_536


def test_a_rate_leaves_fewer_and_all_of_them_keep_up():
    chip = find_chip("STM32F446")
    budget = chip.capacity("float32") / 16_000
    every = sizes(Limits(ram=chip.ram, flash=chip.flash))
    fast = sizes(Limits(ram=chip.ram, flash=chip.flash, operations=budget))
    assert {one.config for one in fast} == {one.config for one in every if one.operations <= budget}
    assert 0 < len(fast) < len(every)
    assert find_chip("SiMa MLSoC").capacity("float32") is None
    assert find_chip("RP2040").capacity("int8") is None


def test_operations_of_a_step():
    c = ModelConfig.mgrade(inputs=2, outputs=3, dim=8, depth=2, taps=2, max_delay=16)
    assert operations(c) == {"encoder": 16, "conv": 256, "recurrence": 288, "mlp": 512, "decoder": 24}
    tokens = ModelConfig.lru(inputs=100, outputs=3, dim=8, depth=1, tokens=True, expansion=0.5)
    assert operations(tokens) == {"encoder": 8, "conv": 0, "recurrence": 128 + 16 + 8, "mlp": 128, "decoder": 24}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("65536", 65_536), ("64K", 65_536), ("64 kB", 65_536), ("64KiB", 65_536), ("1.5M", 1_572_864), ("0", 0)],
)
def test_sizes_of_memory(text, expected):
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "K", "-1K", "64 tons", "1e5", "nan"])
def test_other_sizes_are_refused(text):
    with pytest.raises(ValueError, match="a size of memory is a number of bytes"):
        parse_bytes(text)


@pytest.mark.parametrize("text", [pytest.param("9" * 400, id="long"), "8388609G"])
def test_more_memory_than_there_can_be_is_refused(text):
    with pytest.raises(ValueError, match="a size of memory is at most 9007199254740992 bytes, got"):
        parse_bytes(text)


def test_limits_are_checked():
    with pytest.raises(ValueError, match="ram must be at least 1 byte, got 0"):
        Limits(ram=0, flash=1)
    with pytest.raises(ValueError, match="flash must be at least 0 bytes, got -1"):
        Limits(ram=1, flash=-1)


def test_in_whole_numbers_layers_are_as_wide_as_can_be_exported():
    limits = Limits(ram=2**24, flash=2**24)
    widths = {precision: sizes(limits, precision=precision)[0].config.dim for precision in ("float32", "int8")}
    assert widths["float32"] > widths["int8"] == 256
