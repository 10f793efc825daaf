"""What each kind of operation takes, makes and holds: sizes, arrays, numbers and their dtypes."""

from __future__ import annotations

from typing import NamedTuple

PRECISIONS = ("float32", "int16", "int8")
"""Of activations: float32 throughout, or integers, with int8 weights in both cases."""
BITS = {"int16": 16, "int8": 8}


class Spec(NamedTuple):
    """What an operation needs. Letters stand for sizes; the same letter means the same size."""

    args: tuple[str, ...]
    result: str
    arrays: dict[str, str]
    """The shape of each array, one letter per axis."""
    numbers: tuple[str, ...] = ()
    integer: dict[str, str] = {}  # noqa: RUF012
    """Additional arrays of an integer program."""
    integer_numbers: tuple[str, ...] = ()


_RESCALE = {"multiplier": "o"}
SPECS = {
    "linear": Spec(("i",), "o", {"weight": "oi", "bias": "o"}, integer=_RESCALE, integer_numbers=("down", "bias_up")),
    "embed": Spec(("token",), "o", {"table": "vo"}, integer=_RESCALE, integer_numbers=("down",)),
    "taps": Spec(("o",), "o", {"weight": "ok", "lag": "ok"}, integer=_RESCALE, integer_numbers=("down",)),
    "filter": Spec(("o",), "o", {"weight": "ko", "lag": "k"}, integer=_RESCALE, integer_numbers=("down",)),
    "taps_input": Spec(
        ("n",),
        "o",
        {"weight": "ok", "lag": "ok", "mix": "on", "bias": "o"},
        integer={**_RESCALE, "mix_multiplier": "o"},
        integer_numbers=("one", "down", "mix_down"),
    ),
    "taps_token": Spec(
        ("token",),
        "o",
        {"weight": "ok", "lag": "ok", "table": "vo"},
        integer=_RESCALE,
        integer_numbers=("down",),
    ),
    "gated": Spec(("o", "o"), "o", {}, integer_numbers=("extra",)),
    "rotate": Spec(("p",), "p", {"decay": "h2"}, integer_numbers=("state_exponent",)),
    "norm": Spec(("o",), "o", {"scale": "o", "shift": "o"}, ("eps",), integer_numbers=("epsilon", "scale_shift")),
    "gelu": Spec(("o",), "o", {}),
    "glu": Spec(("o", "o"), "o", {}),
    "add": Spec(("o", "o"), "o", {}),
    "scale": Spec(("o",), "o", {"weight": "o"}, integer_numbers=("weight_shift",)),
    "mean": Spec(("o",), "o", {}),
    "sum": Spec(("o",), "o", {}),
}
# Delays are integers in float programs too; the rest are the dtypes of integer programs.
LAG = "uint16"
INTEGER_DTYPES = {
    "weight": "int8",
    "table": "int8",
    "mix": "int8",
    "bias": "int16",
    "multiplier": "uint8",
    "mix_multiplier": "int16",
    "scale": "int16",
    "shift": "int16",
    "decay": "int32",
}
# Exceptions: a name that has another dtype in one kind of operation.
SPECIAL_DTYPES = {
    ("scale", "weight"): "int16",
    ("taps_input", "bias"): "int8",
    ("taps_input", "multiplier"): "int16",
    ("taps_token", "multiplier"): "int16",
}


def array_dtype(kind: str, name: str, integer: bool) -> str:
    """The dtype of an operation's array."""
    if name == "lag":
        return LAG
    return SPECIAL_DTYPES.get((kind, name), INTEGER_DTYPES.get(name, "float32")) if integer else "float32"
