"""The documentation site: built with warnings as errors, whole, and fetching nothing from elsewhere."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mgrade.report.markdown import fill

ROOT = Path(__file__).parents[2]
# Names that are imported from a room, but described on the page of another.
ELSEWHERE = {"": {"__version__"}, "nn": {"Model", "ModelConfig", "State", "load"}, "train": {"cross_entropy"}}
pytest.importorskip("mkdocs", reason="mkdocs is not installed")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site. In a process of its own, whose warnings are not this one's."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def read(site, page):
    return (site / page).read_text("utf-8")


def test_every_page_is_in_the_navigation_and_built(site):
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).is_file(), page
    for page in ("contributing", "changelog", "reference/cli"):
        assert (site / f"{page}.html").is_file()


def test_nothing_is_fetched_from_elsewhere(site):
    loaded = r"""<(?:script|link|img|iframe)[^>]+(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)"""
    for page in site.rglob("*.html"):
        found = re.findall(loaded, page.read_text("utf-8"))
        assert not found, f"{page.name}: {found}"
    for style in (site / "assets").glob("site*.css"):
        assert "url(" not in style.read_text("utf-8")


def test_formulas_are_mathml(site):
    text = read(site, "model.html")
    assert text.count('<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"') >= 4
    assert "<mtable" in text  # the recurrence's lines stand below each other
    for page in site.rglob("*.html"):
        assert not re.search(r'class="arithmatex">\s*\\', page.read_text("utf-8")), f"{page}: a formula is left in TeX"


def test_the_command_line_has_every_command(site):
    from typer.main import get_command

    from mgrade.cli import app

    text = read(site, "reference/cli.html")
    for name in get_command(app).commands:
        assert f"mgrade {name}</code>" in text, name
    assert "--sequence" in text


@pytest.mark.parametrize(
    "room", ["", "ops", "nn", "train", "tasks", "deploy", "estimator", "footprint", "theory", "hub"]
)
def test_the_reference_has_every_public_name(site, room):
    module = importlib.import_module(f"mgrade.{room}" if room else "mgrade")
    text = read(site, f"reference/{room or 'mgrade'}.html")
    for name in set(module.__all__) - ELSEWHERE.get(room, set()):
        assert re.search(rf'id="{module.__name__}\.({name}\.)?{name}"', text), (
            name
        )  # a module may have its function's name


def test_docstrings_keep_their_shape():
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from docs_griffe import as_markdown
    finally:
        sys.path.pop(0)
    shown = as_markdown(
        "Does it.\n\n>>> do(it)\n>>> again\n\nx (batch): one.\ny (batch): two\n\nParameters\n----\na, b : c.\n"
    )
    assert "```python\ndo(it)\nagain\n```" in shown
    assert "x (batch): one.  \ny (batch): two" in shown
    assert "**Parameters**\n" in shown
    assert "- a, b: c." in shown


def test_the_table_of_whole_numbers_is_what_the_files_say():
    text = (ROOT / "docs" / "quantisation.md").read_text("utf-8")
    assert text.count("%") > 10
    assert fill(text, ROOT / "results") == text, "run `make tables`"
