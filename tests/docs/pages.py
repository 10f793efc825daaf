"""The pages of the project, block by block, and the comments that say what a test cannot run as it stands.

A comment right above a block speaks of that block:

    <!-- snippet: skip because …. -->     not run; its `mgrade` commands are still checked for names and options
    <!-- snippet: file NAME -->           written to NAME instead of run
    <!-- snippet: node FOLDER -->         run by Node in FOLDER
    <!-- snippet: needs run RECIPE -->    first trains a very small model of the recipe, where a reader has a real one
    <!-- snippet: needs results -->       first puts the project's result files into `results` and `try/results`
    <!-- snippet: short KEY=VALUE … -->   `--set` of these is added to every `mgrade train` of the block
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
# Pages without such comments have them here, for all of their blocks.
ELSEWHERE = {
    "docs/play.md": ["snippet: skip because it opens a browser, or is for its console"],
    "docs/report.md": ["snippet: needs results"],
}

_BLOCK = re.compile(r"((?:^<!-- snippet: .*? -->\n)*)^```(\w*)\n(.*?)^```$", re.S | re.M)
_COMMENT = re.compile(r"<!-- (snippet: .*?) -->")


@dataclass(frozen=True)
class Block:
    """A fenced block, and what its comments say."""

    language: str
    text: str
    notes: tuple[str, ...]

    def note(self, kind):
        """What follows `kind` in a comment; None if there is no such comment."""
        found = [note.removeprefix(f"snippet: {kind}").strip() for note in self.notes if f": {kind} " in f"{note} "]
        return found[0] if found else None

    @property
    def commands(self):
        """The lines of a block of shell, continued ones joined, without prompts and comments."""
        joined = self.text.replace("\\\n", " ")
        lines = (re.sub(r"\s+#.*$", "", line).removeprefix("$ ").strip() for line in joined.splitlines())
        return [line for line in lines if line and not line.startswith("#")]


def blocks(page):
    """All blocks of a page, in order."""
    text = (ROOT / page).read_text("utf-8")
    extra = tuple(ELSEWHERE.get(page, ()))
    found = [
        Block(language, body, (*_COMMENT.findall(notes), *extra)) for notes, language, body in _BLOCK.findall(text)
    ]
    assert sum(len(_COMMENT.findall(notes)) for notes, *_ in _BLOCK.findall(text)) == len(_COMMENT.findall(text)), (
        f"{page}: a snippet's comment must stand right above its block"
    )
    return found
