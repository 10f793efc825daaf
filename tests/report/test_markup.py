"""Markup: text never becomes an element, an attribute or a script."""

import json
import math
import re

import pytest

from mgrade.report.markup import Markup, data, join, number, tag


def test_text_is_escaped_and_markup_is_not():
    assert tag("p", "<b>&", Markup("<i>x</i>")) == "<p>&lt;b&gt;&amp;<i>x</i></p>"
    assert join("<", None, 3) == "&lt;3"


def test_attributes_are_escaped_and_named():
    assert tag("a", "x", class_='"><script>', data_spots=True, hidden=False, title=None) == (
        '<a class="&quot;&gt;&lt;script&gt;" data-spots>x</a>'
    )


def test_coordinates_are_short():
    assert [number(v) for v in (1.0, 0.125, -0.001, 12.3456)] == ["1", "0.12", "0", "12.35"]
    assert tag("line", x1=1.50) == '<line x1="1.5"/>'


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_coordinate_that_is_not_finite_is_refused(value):
    with pytest.raises(ValueError, match="a coordinate must be finite"):
        tag("line", x1=value)


def test_data_cannot_end_its_element():
    hostile = ["</script><script>alert(1)</script>", "<!--", "\u2028"]
    markup = data(hostile)
    assert markup.count("<") == 2, markup
    assert json.loads(re.sub("<[^>]*>", "", markup)) == hostile
