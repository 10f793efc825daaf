"""Scales: round ticks, logarithms, and data that gives them little to go by."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgrade.report.scale import Scale, linear, logarithmic

FREE = (None, None)


def test_ticks_are_round():
    assert Scale(0, 1, 0, 100).ticks() == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert Scale(-3, 14, 0, 100).ticks() == [0, 5, 10]
    assert Scale(0, 250_000, 0, 100).ticks() == [0, 50_000, 100_000, 150_000, 200_000, 250_000]


def test_ticks_of_a_logarithm_are_powers_or_between():
    assert Scale(1, 10_000, 0, 100, log=True).ticks() == [1, 10, 100, 1000, 10_000]
    assert Scale(0.15, 7, 0, 100, log=True).ticks() == [0.3, 1, 3]
    assert Scale(1.5, 6, 0, 100, log=True).ticks() == [2, 5]


def test_a_logarithm_puts_equal_factors_at_equal_distances():
    scale = Scale(1, 1000, 0, 300, log=True)
    assert [scale(v) for v in (1, 10, 100, 1000)] == pytest.approx([0, 100, 200, 300])
    assert scale(0) == 0
    assert scale(-5) == 0


def test_pixels_may_run_downwards():
    scale = Scale(0, 10, 200, 100)
    assert [scale(v) for v in (0, 5, 10, 99)] == [200, 150, 100, 100]


@pytest.mark.parametrize("values", [[], [math.nan], [3.0], [0.0], [-2.0, -2.0], [math.inf, 1.0]])
def test_a_scale_has_some_length_whatever_the_data(values):
    for scale in (linear(values, 0, 100, ends=FREE), logarithmic(values, 0, 100)):
        assert scale.high > scale.low
        assert scale.ticks()
        for value in filter(math.isfinite, values):
            assert 0 <= scale(value) <= 100


def test_ends_can_be_fixed():
    scale = linear([0.3, 0.4], 0, 100, ends=(0.0, None))
    assert scale.low == 0
    assert scale.high > 0.4
    assert linear([], 0, 100, ends=(0.0, 1.0)).high == 1


@given(st.lists(st.floats(), max_size=4))
def test_no_number_is_too_much_for_a_scale(values):
    for scale in (linear(values, 0, 100, ends=FREE), logarithmic(values, 0, 100)):
        assert math.isfinite(scale.high - scale.low)
        assert scale.high > scale.low
        assert scale.ticks()
        for value in filter(math.isfinite, values):
            assert 0 <= scale(value) <= 100


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e9))
def test_ticks_lie_between_the_ends(low, length):
    ticks = Scale(low, low + length, 0, 100).ticks()
    assert all(low - 1e-6 * length <= tick <= low + length + 1e-6 * length for tick in ticks)
    assert 2 <= len(ticks) <= 7
