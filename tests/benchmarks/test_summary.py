"""The measured tables of the docs are what the result files say."""

import pytest
from benchmarks.summary import PAGES, TABLES, filled, page, source


def test_every_table_has_its_place():
    text = "".join(page(name).read_text(encoding="utf-8") for name in PAGES)
    assert all(f"<!-- {name} -->\n|" in text for name in TABLES if source(name).exists())
    assert all(f"<!-- end {name} -->\n" in text for name in TABLES)


@pytest.mark.parametrize("name", PAGES)
def test_pages_show_the_files_as_they_are(name):
    text = page(name).read_text(encoding="utf-8")
    assert filled(text) == text, "run `python -m benchmarks.summary`"
