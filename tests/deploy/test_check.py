"""What is no program is refused, by the name of what is wrong."""

import dataclasses
import math

import numpy as np
import pytest

from mgrade.deploy import Op, Program
from mgrade.deploy.program import Unit
from mgrade.deploy.specs import SPECS

LINEAR = {"weight": np.ones((2, 2), np.float32), "bias": np.ones(2, np.float32)}
NORM = {"scale": np.ones(2, np.float32), "shift": np.ones(2, np.float32)}
TAPS = {"weight": np.ones((2, 1), np.float32), "lag": np.ones((2, 1), np.uint16)}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"precision": "int4"}, "precision must be one of float32, int16, int8, got 'int4'"),
        ({"inputs": 0}, "inputs must be a whole number from 1 to 65534, got 0"),
        ({"inputs": 65535}, "inputs must be a whole number from 1 to 65534, got 65535"),
        ({"inputs": True}, "inputs must be a whole number"),
        ({"inputs": 2.0}, "inputs must be a whole number"),
        ({"tokens": 1}, "tokens must be true or false, got 1"),
        ({"ops": ()}, "ops must be 1 to 4096 operations, got 0"),
        ({"ops": (Op("gelu", (0,)),) * 4097}, "ops must be 1 to 4096 operations, got 4097"),
        ({"exponents": (0,)}, "exponents must have 0 entries, got 1"),
        ({"ops": (Op("dense", (0,)),)}, r"ops\[0\]: no kind 'dense'"),
        ({"ops": (Op("gelu", ()),)}, r"ops\[0\] \(gelu\): args must name 1 values, got 0"),
        ({"ops": (Op("gelu", (1,)),)}, "args must name values before it, 0 to 0, got 1"),
        ({"ops": (Op("gelu", (0,)), Op("gelu", (True,)))}, "args must name values before it, 0 to 1, got True"),
        ({"ops": (Op("gelu", (0,), LINEAR),)}, "arrays must be none, got weight, bias"),
        ({"ops": (Op("linear", (0,)),)}, "arrays must be weight, bias, got none"),
        (
            {"ops": (Op("linear", (0,), {**LINEAR, "bias": np.ones(3, np.float32)}),)},
            "bias has size 3 where 2 is needed",
        ),
        ({"ops": (Op("linear", (0,), {**LINEAR, "bias": np.ones(2)}),)}, "bias must be float32, got float64"),
        ({"ops": (Op("linear", (0,), {**LINEAR, "bias": np.array([1, np.nan], np.float32)}),)}, "bias must be finite"),
        ({"inputs": 3, "ops": (Op("linear", (0,), LINEAR),)}, "weight has size 2 where 3 is needed"),
        ({"ops": (Op("norm", (0,), NORM),)}, "numbers must be eps, got none"),
        ({"ops": (Op("norm", (0,), NORM, {"eps": 1}),)}, "eps must be a number, 1e-12 to 1.0, got 1"),
        ({"ops": (Op("gelu", (0,), {}, {"eps": 0.1}),)}, "numbers must be none, got eps"),
        ({"ops": (Op("mean", (0,)), Op("gelu", (1,)))}, r"ops\[0\] \(mean\): must be the last"),
        ({"ops": (Op("embed", (0,), {"table": np.ones((2, 2), np.float32)}),)}, "value 0 is not a token"),
        ({"tokens": True, "ops": (Op("gelu", (0,)),)}, "value 0 is a token"),
        (
            {"tokens": True, "ops": (Op("embed", (0,), {"table": np.ones((3, 2), np.float32)}),)},
            "table must have a row per token, 2, got 3",
        ),
        ({"ops": (Op("taps", (0,), {**TAPS, "lag": np.full((2, 1), 65535, np.uint16)}),)}, "lag must be below 65535"),
        ({"ops": (Op("taps", (0,), {**TAPS, "lag": np.ones((2, 1), np.int64)}),)}, "lag must be uint16, got int64"),
        (
            {"ops": (Op("taps", (0,), {"weight": np.ones((2, 0), np.float32), "lag": np.ones((2, 0), np.uint16)}),)},
            r"weight must not be empty, got shape \(2, 0\)",
        ),
        (
            {"inputs": 3, "ops": (Op("rotate", (0,), {"decay": np.ones((1, 2), np.float32)}),)},
            "decay has size 2 where 3",
        ),
        (
            {
                "ops": (
                    Op("linear", (0,), {"weight": np.ones((4097, 2), np.float32), "bias": np.ones(4097, np.float32)}),
                )
            },
            "width must be 1 to 4096, got 4097",
        ),
    ],
)
def test_what_is_no_program_is_refused(fields, message):
    with pytest.raises(ValueError, match=message) as caught:
        Program(**{"inputs": 2, "tokens": False, "ops": (Op("linear", (0,), LINEAR),), **fields})
    assert "\n" not in str(caught.value)


def units(**fields):
    return dataclasses.replace(whole("gelu"), **fields)


def whole(kind, arrays=None, exponents=(0, 0), inputs=2, **numbers):
    arrays = {name: np.array(array) for name, array in (arrays or {}).items()}
    return Program(inputs, False, (Op(kind, (0,) * len(SPECS[kind].args), arrays, numbers),), "int16", exponents)


def small_linear(**changes):
    dtypes = {"weight": np.int8, "bias": np.int16, "multiplier": np.uint8}
    arrays = {"weight": [[1, 1]], "bias": [0], "multiplier": [1], **changes}
    return {name: np.array(array, dtypes[name]) for name, array in arrays.items()}


def small_taps_input(**changes):
    dtypes = {"lag": np.uint16, "multiplier": np.int16, "mix_multiplier": np.int16}
    arrays = {"weight": [[1]], "lag": [[0]], "mix": [[1, 1]], "bias": [1], "multiplier": [1], "mix_multiplier": [1]}
    return {name: np.array(array, dtypes.get(name, np.int8)) for name, array in {**arrays, **changes}.items()}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: whole("gelu", exponents=(0,)), "exponents must have 2 entries, got 1"),
        (lambda: units(input_units=(Unit(0.0, 1),)), "input_units must be 0 or 2, got 1"),
        (lambda: units(output_units=(Unit(0.0, 1),) * 3), "output_units must be 0 or 2, got 3"),
        (
            lambda: units(output_units=(Unit(0.1, 1),) * 2),
            r"output_units\[0\]: offset must be a number in single precisio",
        ),
        (lambda: units(input_units=(Unit(math.inf, 1),) * 2), r"input_units\[0\]: offset must be a number"),
        (lambda: units(input_units=(Unit(0, 1),) * 2), r"input_units\[0\]: offset must be a number"),
        (lambda: units(input_units=(Unit(0.0, 121),) * 2), r"bits must be a whole number from -120 to 120, got 121"),
        (lambda: units(input_units=(Unit(0.0, 1.0),) * 2), r"input_units\[0\]: bits must be a whole number"),
        (lambda: whole("gelu", exponents=(0, 31)), r"exponents\[1\] must be a whole number from -30 to 30, got 31"),
        (lambda: whole("gelu", exponents=(0, True)), r"exponents\[1\] must be a whole number"),
        (lambda: whole("gelu", exponents=(0, 1)), r"ops\[0\] \(gelu\): exponents must be equal before and after it"),
        (lambda: whole("gated", exponents=(0, 1), extra=0), "exponents must be equal before and after it"),
        (lambda: whole("add", exponents=(0, 15)), r"exponents must lie within 14 of each other, got \[0, 0, 15\]"),
        (lambda: whole("gated", extra=16), "extra must be whole, 0 to 15, got 16"),
        (lambda: whole("gated", extra=1.0), "extra must be whole, 0 to 15, got 1.0"),
        (lambda: whole("gated", extra=True), "extra must be whole, 0 to 15, got True"),
        (
            lambda: whole("rotate", {"decay": np.ones((1, 2), np.int32)}, (0, 0), state_exponent=31),
            "state_exponent must lie within 30 of 0, got 31",
        ),
        (
            lambda: whole("linear", small_linear(weight=[[1, -128]]), down=30, bias_up=0),
            "weight must be -127 to 127, got -128",
        ),
        (
            lambda: whole("taps_input", small_taps_input(multiplier=[-1]), one=1, down=30, mix_down=30),
            "multiplier must not be negative, got -1",
        ),
        (lambda: whole("linear", small_linear(), down=16, bias_up=0), "down must be whole, 17 to 46, got 16"),
        (lambda: whole("linear", small_linear(), down=47, bias_up=0), "down must be whole, 17 to 46, got 47"),
        (
            lambda: whole("linear", small_linear(bias=[32767]), down=30, bias_up=17),
            "bias must leave room in 32 bits, at most 2139160575",
        ),
        (
            lambda: whole("linear", small_linear(weight=np.ones((1, 513))), inputs=513, down=30, bias_up=0),
            "integer sums take at most 512 terms, got 513",
        ),
        (
            lambda: whole(
                "norm",
                {"scale": np.ones(513, np.int16), "shift": np.ones(513, np.int16)},
                inputs=513,
                epsilon=1,
                scale_shift=1,
            ),
            "an integer norm takes at most 512 channels, got 513",
        ),
        (lambda: whole("scale", {"weight": np.ones(2, np.int8)}, weight_shift=1), "weight must be int16, got int8"),
        (
            lambda: whole(
                "taps_input",
                small_taps_input(mix=np.ones((1, 512))),
                inputs=512,
                **{"one": 1, "down": 30, "mix_down": 30},
            ),
            "integer sums take at most 512 terms, got 513",
        ),
    ],
)
def test_what_is_no_integer_program_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
