"""Converts docstrings to Markdown: fences examples, turns sections into lists, puts sentences on separate lines."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension

_EXAMPLE = re.compile(r"^((?:(?:>>>|\.\.\.) .*(?:\n|$))+)", re.M)
_SECTION = re.compile(r"^(\w+)\n-{3,}$", re.M)
_ITEM = re.compile(r"^(\w[\w, ]*) : ", re.M)
_SENTENCE = re.compile(r"^(?!\s|-)(.*[.:;])\n(?=[^\s-])", re.M)


class Plain(Extension):
    """Converts every docstring, all of which are written for terminals."""

    def on_instance(self, *, obj: Any, **kwargs: Any) -> None:
        """Called once for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """The text with Markdown that keeps its layout."""
    text = _EXAMPLE.sub(_fenced, text)
    text = _ITEM.sub(r"- \1: ", _SECTION.sub(r"**\1**\n", text))
    return _SENTENCE.sub(r"\1  \n", text)


def _fenced(found: re.Match[str]) -> str:
    code = re.sub(r"^(?:>>>|\.\.\.) ", "", found[1].rstrip("\n"), flags=re.M)
    return f"```python\n{code}\n```\n"
