"""`ModelConfig`: frozen, keyword-only, validated; a message names the field."""

import dataclasses
import json

import numpy as np
import pytest

from helpers import PRESETS, assert_refused, small
from mgrade import ModelConfig

SIZES = {"inputs": 3, "outputs": 4, "depth": 2}
NAN, INF, HUGE = float("nan"), float("inf"), 10**400

BAD = {
    **{
        name: [0, -1, 1.5, "2", None, True, 2**20 + 1, HUGE]
        for name in ("inputs", "outputs", "dim", "depth", "taps", "max_delay")
    },
    **{name: [1, 0, "yes", None] for name in ("tokens", "projection", "pair")},
    **{
        name: ["other", "", None, 1, ["none"]] for name in ("conv", "recurrence", "candidate", "mlp", "norm", "readout")
    },
    "position_init": ["odd", None],
    "dropout_spans": ["channel", None],
    **{name: [0, -1.0, NAN, INF, HUGE, "1", None, True] for name in ("expansion", "conv_scale")},
    "sigma": [0, -1.0, NAN, INF, HUGE, "1", None, True, 1e-46, 9e-31],
    "dropout": [-0.1, 1, 1.5, NAN, HUGE, "0", None, True],
    "gate_bias": ["ajar", HUGE, NAN, INF, None, True, [0]],
    "branch_norms": ["conv", ("other",), ("conv", "conv"), None, 1, ("layer",), (["conv"],)],
    "activations": ["conv", ("other",), ("head", "head"), None, 1, ("mlp",), (["conv"],)],
    "skips": ["conv", ("other",), ("mlp", "mlp"), None, 1, (1,), (["conv"],)],
    "ring": [(0.5,), (0.5, 0.5), (0.9, 0.1), (-0.1, 0.5), (0.1, 1.0), (0.1, NAN), ("a", "b"), (0, 0.5, 0.9), 0.5, None],
    "dilation": [HUGE, 0, -1, 1.5, "2", True, (1,), (1, 2, 3), (1, 0), (1, 1.5), (1, None), ()],
}


def test_every_field_has_values_that_are_refused():
    assert set(BAD) == {field.name for field in dataclasses.fields(ModelConfig)}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_a_bad_value_is_refused_by_the_name_of_its_field(name, value):
    assert_refused(rf"^{name} must ", ModelConfig, **{**SIZES, name: value})


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"dim": 10**10}, r"^dim must be at most 1048576, got 10000000000$"),
        ({"expansion": 1e38}, r"^expansion must give at most 1048576 hidden units, got 1e\+38 of dim 64$"),
        ({"expansion": 0.001}, r"^expansion must leave at least one hidden unit, got 0.001 of dim 64"),
        ({"conv": "none", "recurrence": "none", "mlp": "none"}, r"^conv, recurrence and mlp cannot all be 'none'"),
        ({"conv": "dilated", "depth": 20, "taps": 4}, r"^\(taps - 1\) .* 1048576 .* with taps 4 and depth 20$"),
        ({"conv": "dilated", "depth": 10**6, "taps": 2}, r"^\(taps - 1\) .* with taps 2 and depth 1000000$"),
        ({"conv": "dilated", "taps": 3, "dilation": 2**20}, r"^\(taps - 1\) .* with taps 3 and dilation 1048576$"),
        ({"pair": True}, r"^pair needs a pooled readout: last, mean or sum, got readout 'every'"),
        ({"expansion": 2.0}, r"^skips cannot hold 'recurrence' .* 128 wide and dim is 64: set projection=True"),
        ({"expansion": 2.0, "skips": ("mlp",)}, r"^skips cannot hold 'mlp' .* set projection=True"),
        ({"expansion": 2.0, "mlp": "none", "skips": ()}, r"^expansion 2.0 without an MLP .* set projection=True"),
    ],
)
def test_values_that_do_not_fit_together_are_refused(fields, match):
    assert_refused(match, ModelConfig, **{**SIZES, **fields})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dims", r"^model has no field 'dims'; did you mean 'dim'\?$"),
        ("max_delays", r"^model has no field 'max_delays'; did you mean 'max_delay'\?$"),
        ("recurence", r"^model has no field 'recurence'; did you mean 'recurrence'\?$"),
        ("zzzzzz", r"^model has no field 'zzzzzz'$"),
    ],
)
def test_an_unknown_field_is_refused_with_the_nearest(name, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig.from_dict({**SIZES, name: 1})


@pytest.mark.parametrize("name", ["inputs", "outputs"])
def test_a_missing_field_is_refused_by_its_name(name):
    fields = {key: value for key, value in SIZES.items() if key != name}
    with pytest.raises(ValueError, match=rf"^model needs the field '{name}'$"):
        ModelConfig.from_dict(fields)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("fields", [{}, {"dilation": (1, 3), "branch_norms": ("mlp",), "gate_bias": 1.5}])
def test_a_config_survives_json(preset, fields):
    config = small(preset, **fields)
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_numbers_of_numpy_become_pythons():
    config = ModelConfig.tcn(
        inputs=np.int64(3), outputs=np.int32(4), dim=np.uint8(16), dropout=np.float32(0.25), sigma=np.float64(0.5),
        expansion=np.float32(1.5), gate_bias=np.float16(2), tokens=np.bool_(True), ring=np.float32([0, 0.5]).tolist(),
        dilation=[np.int64(1), np.int64(2)], depth=2,
    )  # fmt: skip
    kinds = {type(value) for value in json.loads(json.dumps(config.to_dict())).values()}
    assert kinds <= {int, float, bool, str, list, type(None)}
    assert (config.dim, config.dropout, config.tokens, config.dilation) == (16, 0.25, True, (1, 2))
    assert_refused("dim must be a whole", ModelConfig, inputs=3, outputs=4, dim=np.float32(2))


def test_lists_as_json_and_toml_have_them_become_tuples():
    fields = {**SIZES, "skips": ["mlp"], "ring": [0.1, 0.5], "dilation": [1, 4], "branch_norms": []}
    config = ModelConfig.from_dict(fields)
    assert (config.skips, config.ring, config.dilation, config.branch_norms) == (("mlp",), (0.1, 0.5), (1, 4), ())
    assert hash(config) == hash(ModelConfig.from_dict(fields))


def test_a_config_is_frozen_and_keyword_only():
    config = ModelConfig(**SIZES)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.dim = 3
    with pytest.raises(TypeError):
        ModelConfig(3, 4)


def test_the_presets_are_settings_of_one_block():
    parts = {preset: (small(preset).conv, small(preset).recurrence) for preset in PRESETS}
    assert parts == {
        "mgrade": ("delay", "mingru"),
        "mingru": ("none", "mingru"),
        "dcls": ("delay", "none"),
        "tcn": ("dilated", "none"),
        "lru": ("none", "lru"),
        "lru_dcls": ("delay", "lru"),
    }
    assert small("lru").skips == ("layer",)
    assert small("lru", skips=("mlp",), mlp="gelu").skips == ("mlp",)  # a preset is a start, not a limit


@pytest.mark.parametrize(
    ("dilation", "spacings"), [(None, [1, 2, 4, 8]), (3, [3, 3, 3, 3]), ((1, 5, 1, 7), [1, 5, 1, 7])]
)
def test_dilation_doubles_or_is_given_for_all_or_for_each_layer(dilation, spacings):
    config = small("tcn", depth=4, dilation=dilation, taps=3)
    assert [config.spacing(layer) for layer in range(4)] == spacings
    assert [config.memory(layer) for layer in range(4)] == [2 * spacing for spacing in spacings]


def test_memory_is_what_the_convolution_keeps():
    assert small("mgrade", max_delay=9).memory(0) == 8
    assert small("mingru").memory(0) == 0


@pytest.mark.parametrize(
    ("expansion", "dim", "hidden"), [(1.0, 6, 6), (1.5, 6, 9), (0.5, 7, 4), (2, 3, 6), (0.4, 6, 2)]
)
def test_the_hidden_size_is_the_rounded_expansion_of_dim(expansion, dim, hidden):
    config = small("mgrade", dim=dim, expansion=expansion, projection=True)
    assert config.hidden == hidden
    assert config.inner == dim
