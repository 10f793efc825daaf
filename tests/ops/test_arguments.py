"""A wrong argument is refused in one line that names it, what it must be and what it is."""

import pytest
import torch

from helpers import OPERATORS, assert_refused, each_operator
from mgrade.ops import (
    delay_conv,
    delay_kernel,
    diagonal_scan,
    dilated_conv,
    feedforward,
    gated_recurrence,
    gated_scan,
)

X = torch.zeros(2, 5, 3)
WEIGHT, POSITION = torch.zeros(3, 2), torch.zeros(3, 2)
CONV = {"x": X, "weight": WEIGHT, "position": POSITION, "length": 4}
SCAN = {"gate": X, "candidate": X}
DIAGONAL = {"decay": torch.zeros(3).cfloat(), "drive": X.cfloat()}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"x": X[0]}, r"^x must have shape \(batch, time, channels\)"),
        ({"x": X.int()}, r"^x must be a floating-point tensor, got torch.int32"),
        ({"x": X.cfloat()}, r"^x must be a floating-point tensor, got torch.complex64"),
        ({"x": [1.0]}, r"^x must be a tensor .*, got list"),
        ({"weight": WEIGHT[:2]}, r"^weight must have shape .* got \(2, 2\)"),
        ({"weight": WEIGHT[0]}, r"^weight must have shape .* got \(2,\)"),
        ({"weight": WEIGHT.long()}, r"^weight must be a floating-point tensor"),
        ({"position": POSITION[:, :1]}, r"^position must have shape .* got \(3, 1\)"),
        ({"position": POSITION.long()}, r"^position must be a floating-point tensor"),
        ({"position": POSITION + 3.001}, r"^position must lie within 0 and length - 1 = 3, got 3.001"),
        ({"position": POSITION - 0.5}, r"^position must lie within 0 and length - 1 = 3, got -0.5"),
        ({"position": POSITION + torch.nan}, r"^position must lie within 0 and length - 1 = 3, got nan"),
        ({"position": POSITION + torch.inf}, r"^position must lie within 0 and length - 1 = 3, got inf"),
        ({"length": 0}, r"^length must be a whole number of at least 1, got 0"),
        ({"sigma": 1e-46}, r"^sigma must be at least 1e-30, got 1e-46"),
        ({"length": 4.0}, r"^length must be a whole number of at least 1, got 4.0"),
        ({"sigma": 0.0}, r"^sigma must be a positive number, got 0.0"),
        ({"sigma": -1}, r"^sigma must be a positive number, got -1"),
        ({"sigma": float("nan")}, r"^sigma must be a positive number, got nan"),
        ({"sigma": float("inf")}, r"^sigma must be a positive number, got inf"),
        ({"sigma": "wide"}, r"^sigma must be a positive number, got 'wide'"),
        ({"history": torch.zeros(2, 4, 3)}, r"^history must have shape .* = \(2, 3, 3\), got \(2, 4, 3\)"),
        ({"history": torch.zeros(1, 3, 3)}, r"^history must have shape"),
        ({"history": torch.zeros(2, 3, 3).int()}, r"^history must be a floating-point tensor"),
    ],
)
def test_delay_conv_names_what_is_wrong(change, match):
    assert_refused(match, delay_conv, **CONV | change)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"dilation": 0}, r"^dilation must be a whole number of at least 1, got 0"),
        ({"dilation": 1.5}, r"^dilation must be a whole number of at least 1, got 1.5"),
        ({"weight": WEIGHT[:1]}, r"^weight must have shape"),
        ({"weight": WEIGHT[:, :0]}, r"^weight must have at least one tap a channel, got shape \(3, 0\)"),
        ({"history": torch.zeros(2, 3, 3)}, r"^history must have shape .* = \(2, 2, 3\), got \(2, 3, 3\)"),
    ],
)
def test_dilated_conv_names_what_is_wrong(change, match):
    assert_refused(match, dilated_conv, **{"x": X, "weight": WEIGHT, "dilation": 2} | change)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"gate": X[0]}, r"^gate must have shape \(batch, time, hidden\)"),
        ({"gate": X.bool()}, r"^gate must be a floating-point tensor, got torch.bool"),
        ({"gate": None}, r"^gate must be a tensor .*, got NoneType"),
        ({"candidate": X[:, :4]}, r"^candidate must have shape .* = \(2, 5, 3\), got \(2, 4, 3\)"),
        ({"candidate": X.double()}, r"^candidate must have the dtype of gate, torch.float32, got torch.float64"),
        ({"initial": torch.zeros(3)}, r"^initial must have shape .* = \(2, 3\), got \(3,\)"),
        ({"initial": torch.zeros(2, 3).long()}, r"^initial must be a floating-point tensor"),
    ],
)
def test_gated_scan_names_what_is_wrong(change, match):
    assert_refused(match, gated_scan, **SCAN | change)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"x": X[0]}, r"^x must have shape \(batch, time, dim\)"),
        ({"x": X.long()}, r"^x must be a floating-point tensor"),
        ({"weight": torch.zeros(5, 3)}, r"^weight must have two halves, gate and candidate, got 5 rows"),
        ({"weight": torch.zeros(6, 2)}, r"^weight must have shape .* got \(6, 2\)"),
        ({"bias": torch.zeros(3)}, r"^bias must have shape \(2 hidden\) = \(6\), got \(3,\)"),
        ({"bias": torch.zeros(6).long()}, r"^bias must be a floating-point tensor"),
        ({"weight": torch.zeros(8, 3), "bias": torch.zeros(8), "skip": True}, r"^skip needs as many hidden units"),
        ({"initial": torch.zeros(2, 4)}, r"^initial must have shape .* = \(2, 3\), got \(2, 4\)"),
    ],
)
def test_gated_recurrence_names_what_is_wrong(change, match):
    assert_refused(match, gated_recurrence, **{"x": X, "weight": torch.zeros(6, 3), "bias": torch.zeros(6)} | change)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"drive": X}, r"^drive must be a complex tensor, got torch.float32"),
        ({"decay": torch.zeros(3)}, r"^decay must be a complex tensor, got torch.float32"),
        ({"decay": torch.zeros(4).cfloat()}, r"^decay must have shape \(hidden\) = \(3\), got \(4,\)"),
        ({"decay": torch.zeros(3).cdouble()}, r"^decay must have the dtype of drive"),
        ({"initial": torch.zeros(2, 4).cfloat()}, r"^initial must have shape"),
        ({"drive": [1j]}, r"drive must be"),
        ({"initial": 0}, r"^initial must be"),
    ],
)
def test_diagonal_scan_names_what_is_wrong(change, match):
    assert_refused(match, diagonal_scan, **DIAGONAL | change)


@each_operator("reference")
@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"reset": torch.zeros(2, 5)}, r"^reset must be a boolean tensor \(batch, time\), got torch.float32"),
        ({"reset": [True]}, r"^reset must be a boolean tensor \(batch, time\), got list"),
        ({"reset": torch.zeros(2, 4, dtype=torch.bool)}, r"^reset must have shape .* = \(2, 5\), got \(2, 4\)"),
        ({"reset": torch.zeros(2, 5, 1, dtype=torch.bool)}, r"^reset must have shape"),
        ({"lengths": torch.tensor([1, 6])}, r"^lengths must lie within 0 and 5 steps, got 6"),
        ({"lengths": torch.tensor([-1, 5])}, r"^lengths must lie within 0 and 5 steps, got -1"),
        ({"lengths": torch.tensor([1])}, r"^lengths must have shape \(batch\) = \(2\), got \(1,\)"),
        ({"lengths": torch.tensor([1.0, 2.0])}, r"^lengths must be an int32 or int64 tensor .*, got torch.float32"),
        ({"lengths": [1, 2]}, r"^lengths must be an int32 or int64 tensor .*, got list"),
    ],
)
def test_every_operator_names_a_wrong_mask_or_length(operator, backend, change, match):
    assert_refused(match, operator, operator.sample(2, 5, 3), backend=backend, **change)


def test_positions_at_both_ends_are_in_range():
    assert delay_kernel(torch.ones(1, 2), torch.tensor([[0.0, 3.0]]), length=4).shape == (1, 4)


@pytest.mark.parametrize("name", OPERATORS)
def test_valid_arguments_are_not_refused(name):
    operator = OPERATORS[name]
    operator(operator.sample(2, 5, 3), reset=torch.ones(2, 5, dtype=torch.bool), lengths=torch.tensor([0, 5]))


MLP = {
    "x": X,
    "input": torch.zeros(6, 3),
    "input_bias": torch.zeros(6),
    "output": torch.zeros(3, 6),
    "output_bias": torch.zeros(3),
}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"x": X[0]}, r"^x must have shape \(batch, time, dim\)"),
        ({"input": torch.zeros(6, 2)}, r"^input must have shape \(inner, dim\) = \(any, 3\), got \(6, 2\)"),
        ({"input_bias": torch.zeros(5)}, r"^input_bias must have shape \(inner\) = \(6\), got \(5,\)"),
        ({"output": torch.zeros(3, 7)}, r"^output must have shape \(dim, inner\) = \(3, 6\), got \(3, 7\)"),
        ({"output": torch.zeros(4, 6)}, r"^output must have shape"),
        ({"output_bias": torch.zeros(2)}, r"^output_bias must have shape \(dim\) = \(3\), got \(2,\)"),
        ({"scale": torch.zeros(2), "shift": torch.zeros(3)}, r"^scale must have shape"),
        ({"scale": torch.zeros(3), "shift": torch.zeros(1)}, r"^shift must have shape"),
        ({"base": torch.zeros(2, 4, 3)}, r"^base must have shape .* = \(2, 5, 3\), got \(2, 4, 3\)"),
    ],
)
def test_feedforward(change, match):
    assert_refused(match, feedforward, **{**MLP, **change})
