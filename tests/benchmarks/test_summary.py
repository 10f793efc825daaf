"""The tables of docs/performance.md are what the result files say."""

from benchmarks.summary import PAGE, TABLES, filled, source


def test_the_page_shows_the_files_as_they_are():
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"<!-- {name} -->\n|" in text for name in TABLES if source(name).exists())
    assert all(f"<!-- end {name} -->\n" in text for name in TABLES)
    assert filled(text) == text
