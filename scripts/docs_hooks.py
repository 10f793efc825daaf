"""Generates parts of the documentation from the project itself when it is built.

The command-line reference comes from the commands; contributing and changes come from files in the root. Formulas
become MathML, so that pages load nothing from elsewhere.
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
    """Adds the pages without a file under docs/."""
    pages = {page: (ROOT / source).read_text("utf-8") for page, source in INCLUDED.items()}
    pages["reference/cli.md"] = command_line()
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_content(html: str, **kwargs: Any) -> str:
    """Converts the formulas of a page to MathML."""
    return _FORMULA.sub(_mathml, html)


def _mathml(found: re.Match[str]) -> str:
    element, opening, latex = found.groups()
    shown = convert(html.unescape(latex).strip(), display="block" if opening == "[" else "inline")
    return f'<{element} class="arithmatex">{shown}</{element}>'


def command_line() -> str:
    """The reference of all commands, from their help texts."""
    root = get_command(app)
    text = get_docs_for_click(
        obj=root, ctx=typer.Context(root, info_name="mgrade"), name="mgrade", title="Command line"
    )
    text = _SUMMARIES.sub("", text)  # truncated in mid-sentence; the full texts follow
    return re.sub(r"(\*\*Options\*\*:\n\n)?\* `--help`: Show this message and exit.\n", "", text)
