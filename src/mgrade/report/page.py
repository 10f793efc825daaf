"""The page: everything in one file that loads nothing from the network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import mgrade
from mgrade.report.figure import Figure
from mgrade.report.further_sections import SPEED, further_sections
from mgrade.report.headlines import Fact, striking
from mgrade.report.html import command
from mgrade.report.markup import Markup, join, tag
from mgrade.report.palette import stylesheet
from mgrade.report.paper_sections import paper_sections
from mgrade.report.runs import all_runs, by_recipe, read_measurement
from mgrade.report.section import Contents, Measured, Section

TITLE = "mGRADE: what the paper reports, and what we measured"
MARK = f"<title>{TITLE}".encode()
"""Identifies a page as ours; it is near the beginning of every page."""


def read(folder: Path) -> Contents:
    """Reads everything under a results folder; an empty folder gives an empty report."""
    if not folder.is_dir():
        hint = "a run creates it, the quickest is mgrade train vowels/mgrade"
        missing = "" if folder.exists() else f", which does not exist: {hint}"
        raise ValueError(f"--results must be a folder, got {folder}{missing}")
    known, others = by_recipe(all_runs(folder))
    bench = {
        name: found for name in SPEED if (found := read_measurement(folder / "bench" / f"{name}.json")) is not None
    }
    paths = sorted((folder / "deploy").glob("*.json"))
    stages = {path.stem: found for path in paths if (found := read_measurement(path)) is not None}
    compared = read_measurement(folder / "compare" / "estimator.json")
    return Contents(folder, Measured(known, bench, stages), others, compared)


def build(contents: Contents) -> tuple[str, list[Figure]]:
    """Builds the page and its figures."""
    made = [*paper_sections(contents.measured.known), *further_sections(contents)]
    figures = [figure for section in made for figure in section.figures()]
    return _page(contents, made, striking(contents.measured)), figures


def _page(contents: Contents, made: Sequence[Section], facts: Sequence[Fact]) -> str:
    script = _file("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", TITLE),
        tag("link", rel="icon", href="data:,"),
        tag("style", Markup(stylesheet() + "\n" + _file("page.css"))),
    )
    main = tag("main", *(section.html() for section in made))
    body = tag("body", _header(contents, made, facts), main, _footer(contents), tag("script", Markup(script)))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _header(contents: Contents, made: Sequence[Section], facts: Sequence[Fact]) -> Markup:
    contents_list = (tag("li", tag("a", section.title, href=f"#{section.name}")) for section in made)
    return tag(
        "header",
        tag("p", tag("span", "mGRADE"), tag("button", "Dark", id="theme", type="button", hidden=True), class_="kicker"),
        tag("h1", "Sequence models that train in parallel and run one sample at a time, in constant memory"),
        tag(
            "p",
            "A causal convolution with learnable delays, a gated recurrence, an MLP and a norm. Below: the paper's "
            "tables and figures beside the results of our own runs, all read from their result files.",
            tag("span", " Point at a figure to see its values, or focus it and use the arrow keys.", class_="hint"),
            class_="lead",
        ),
        _facts(facts) if facts else _empty(contents),
        tag("nav", tag("ol", *contents_list), aria_label="Contents"),
    )


def _facts(facts: Sequence[Fact]) -> Markup:
    return tag("dl", *(tag("div", tag("dt", f.figure), tag("dd", f.words)) for f in facts), class_="facts")


def _empty(contents: Contents) -> Markup:
    words = "has no results for headlines yet" if contents.runs() else "has no results yet"
    first = join(command("mgrade train vowels/mgrade"), " takes a quarter of a minute, ")
    more = join(command("mgrade reproduce theory"), " the paper's small experiments.")
    return tag("p", f"The folder {contents.folder} {words}. ", first, more, class_="missing")


def _footer(contents: Contents) -> Markup:
    return tag(
        "footer",
        tag(
            "p",
            f"Made by mgrade {mgrade.__version__} from {contents.runs()} runs under {contents.folder}: ",
            command("mgrade report"),
        ),
        tag(
            "p",
            "Paper: as printed there. Ours: mean ± standard deviation over seeds; in curves, ± standard error. Bytes: "
            "parameters in float32 / state of one stream; the paper's K and M are powers of 1024.",
        ),
    )


def _file(name: str) -> str:
    return (resources.files("mgrade.report") / name).read_text("utf-8")
