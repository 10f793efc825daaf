"""What the documentation has beyond its pages: made when it is built, from the project itself.

The command line's reference comes from the commands, contributing and changes from the files in the root, and formulas
become MathML, so that nothing is fetched from elsewhere to show them.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import typer
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.cli import get_docs_for_click
from typer.main import get_command

from mgrade.cli import app

ROOT = Path(__file__).parent.parent
INCLUDED = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
_SUMMARIES = re.compile(r"\*\*Commands\*\*:\n\n(?:\* .*\n)+\n")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\s*\\([(\[])(.*?)\\[)\]]\s*</\1>', re.S)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that have no file under docs/."""
    pages = {page: (ROOT / source).read_text("utf-8") for page, source in INCLUDED.items()}
    pages["reference/cli.md"] = command_line()
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_content(html: str, **kwargs: Any) -> str:
    """Turns the formulas of a page into MathML."""
    return _FORMULA.sub(_mathml, html)


def _mathml(found: re.Match[str]) -> str:
    element, opening, latex = found.groups()
    shown = convert(html.unescape(latex).strip(), display="block" if opening == "[" else "inline")
    return f'<{element} class="arithmatex">{shown}</{element}>'


def command_line() -> str:
    """The reference of every command, in the words of its own help."""
    root = get_command(app)
    text = get_docs_for_click(
        obj=root, ctx=typer.Context(root, info_name="mgrade"), name="mgrade", title="Command line"
    )
    text = _SUMMARIES.sub("", text)  # cut short in the middle of a sentence; the sentences follow
    return re.sub(r"(\*\*Options\*\*:\n\n)?\* `--help`: Show this message and exit.\n", "", text)
