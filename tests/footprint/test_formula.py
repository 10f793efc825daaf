"""The paper's parameter formulas, and what a model of this package has beyond them, add up exactly."""

import pytest

from mgrade import Model, ModelConfig
from mgrade.footprint import buffer, left_out, parameters

# The paper's hyperparameter tables: preset, inputs, outputs, settings, formula's parameters, buffer elements.
BARE = {"mlp": "none", "norm": "none"}
ROWS = {
    "listops": ("mgrade", 18, 10, {"dim": 32, "depth": 6, "taps": 2, "max_delay": 16}, 39_872, 3_072 + 192),
    "text": ("mgrade", 135, 2, {"dim": 32, "depth": 6, "taps": 2, "max_delay": 8}, 43_360, 1_536 + 192),
    "retrieval": (
        "mgrade",
        98,
        2,
        {"dim": 64, "depth": 3, "taps": 2, "max_delay": 8, "pair": True, "readout": "mean"},
        98_624,
        1_536 + 192,
    ),
    "image": ("mgrade", 1, 10, {"dim": 128, "depth": 6, "taps": 8, "max_delay": 256}, 608_896, 196_608 + 768),
    "pathfinder": (
        "mgrade",
        1,
        2,
        {"dim": 128, "depth": 6, "taps": 8, "max_delay": 256},
        607_872,
        196_608 + 768,
    ),
    "speech": ("mgrade", 1, 35, {"dim": 64, "depth": 6, "taps": 16, "max_delay": 64}, 164_736, 24_576 + 384),
    "lorenz": ("mgrade", 1, 1, {"dim": 10, "depth": 1, "taps": 1, "max_delay": 32, **BARE}, 260, 320 + 10),
    "lorenz mingru": ("mingru", 1, 1, {"dim": 10, "depth": 2, **BARE}, 460, 20),
    "highfreq": (
        "mgrade",
        17,
        16,
        {"dim": 16, "depth": 2, "taps": 8, "max_delay": 16, **BARE},
        2_128,
        512 + 32,
    ),
    "flipflop": (
        "mgrade",
        5,
        5,
        {"dim": 32, "depth": 1, "taps": 1, "max_delay": 2, "norm": "none"},
        6_688,
        96,
    ),
    "flipflop tcn": ("tcn", 5, 5, {"dim": 32, "depth": 5, "taps": 16, "norm": "none"}, 23_840, 32 * 15 * 31),
    "copying": (
        "mgrade",
        18,
        16,
        {"dim": 64, "depth": 2, "taps": 32, "max_delay": 128},
        60_416,
        16_384 + 128,
    ),
    "listops lru": ("lru", 18, 10, {"dim": 33, "depth": 6, "expansion": 32 / 33}, 40_902, 192),
}


def config(row):
    preset, inputs, outputs, fields, _, _ = ROWS[row]
    return getattr(ModelConfig, preset)(inputs=inputs, outputs=outputs, **fields)


@pytest.mark.parametrize("row", ROWS)
def test_counts_equal_the_formulas_plus_what_they_leave_out(row):
    c, expected, kept = config(row), *ROWS[row][-2:]
    assert sum(parameters(c).values()) == expected
    assert sum(buffer(c).values()) == kept
    actual = sum(parameter.numel() for parameter in Model(c).parameters())
    assert actual == expected + sum(left_out(c).values())


def test_listops_leaves_out_the_biases_of_encoder_and_decoder():
    assert left_out(config("listops")) == {"encoder bias": 32, "decoder bias": 10}


@pytest.mark.parametrize("preset", ["mgrade", "mingru", "dcls", "tcn", "lru", "lru_dcls"])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"pair": True, "readout": "mean"},
        {"projection": True, "expansion": 2},
        {"branch_norms": ("mlp",)},
        {"norm": "none", "mlp": "glu"},
    ],
)
def test_every_option_is_counted(preset, fields):
    c = getattr(ModelConfig, preset)(inputs=3, outputs=4, dim=33, depth=2, **fields)
    actual = sum(parameter.numel() for parameter in Model(c).parameters())
    assert actual == sum(parameters(c).values()) + sum(left_out(c).values())
