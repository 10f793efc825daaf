"""What the README and the documentation show runs as it stands: every page in a folder of its own, block by block."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from docs import shell
from docs.pages import PAGES, ROOT, blocks
from mgrade.deploy import chip
from mgrade.train import launch, load_recipe
from small import SETTINGS

SHELL = ("", "sh", "console", "bash")
SHOWN_ONLY = ("text", "json", "toml", "ini")
# Everything that is not run as it stands, by page: skipped blocks, and trainings cut short.
EXCEPTIONS = {
    "docs/data.md": ["skip because it downloads, generates and trains for hours"],
    "docs/hub.md": ["skip because it needs an account on a hub"],
    "docs/play.md": ["skip because it opens a browser, or is for its console"] * 2,
    "docs/training.md": [
        "short",
        "skip because it runs every recipe of two experiments: GPU hours",
        "short",
        "skip because it needs several processes",
    ],
    "docs/tutorials/reproduce.md": [
        "skip because it runs every recipe and seed of an experiment: minutes to GPU hours"
    ],
}
SENSOR = "docs/tutorials/sensor.md"
FIT = "mgrade fit sensor.csv --label activity --sequence recording --chip STM32F446 --out wearable"


def headings(text):
    """What stands left in each line of a table of two columns."""
    return [re.split(r"\s{2,}", line.strip())[0] for line in text.splitlines()]


def as_shown(out):
    """Whether the tutorial shows a table with the rows that were printed; its figures are one machine's."""
    return any(headings(block.text) == headings(out) for block in blocks(SENSOR) if block.language == "text")


def as_worn(out):
    """Whether every window of the tutorial's stream has an answer, mostly right where one activity fills it."""
    rows = [line.split(",")[1] for line in Path("sensor.csv").read_text().splitlines()[1:]]
    windows = [set(rows[begin : begin + 50]) for begin in range(0, len(rows) - 49, 50)]
    right = [said in true for said, true in zip(out.split(), windows, strict=True) if len(true) == 1]
    return len(right) > 10 and sum(right) > 0.8 * len(right)


# What some commands must print; others need only succeed.
ANSWERS = {
    (SENSOR, FIT): as_shown,
    ("docs/deploy.md", "./example"): lambda out: len(out.split()) == 4,
    ("docs/deploy.md", "mgrade stream my-c < samples.csv"): lambda out: len(out.splitlines()) == 200,
    (SENSOR, 'grep "^2," sensor.csv | cut -d, -f3- | ./example'): lambda out: out == "run\n",
    (SENSOR, "tail -n +2 sensor.csv | cut -d, -f3- | ./watch"): as_worn,
    ("docs/tutorials/reproduce.md", "mgrade reproduce highfreq --show --out try"): lambda out: "1 of 5" in out,
}


@pytest.mark.parametrize("page", PAGES)
def test_everything_shown_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    names = {"__name__": "page"}
    for block in blocks(page):
        if (recipe := block.note("needs run")) is not None:
            launch(load_recipe(recipe, SETTINGS), seeds=[0], root=tmp_path)
        if block.note("needs results") is not None:
            for folder in (tmp_path, tmp_path / "try"):
                folder.mkdir(exist_ok=True)
                (folder / "results").symlink_to(ROOT / "results")
        if block.note("skip") is not None:
            for line in block.commands if block.language in SHELL else ():
                shell.check(line)
        else:
            run(page, block, names)


def run(page, block, names):
    if (name := block.note("file")) is not None:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(block.text)
    elif (folder := block.note("node")) is not None:
        in_node(Path(folder), block.text)
    elif block.language == "python":
        exec(compile(block.text, page, "exec"), names)
    elif block.language in SHELL:
        for line in block.commands:
            out = shell.run(line, (block.note("short") or "").split())
            assert (page, line) not in ANSWERS or out is None or ANSWERS[page, line](out), f"{page}: {line}: {out}"
    else:
        assert block.language in SHOWN_ONLY, f"{page}: no rule how to run {block.language}"


def in_node(folder, text):
    if folder.is_dir() and shutil.which("node"):
        (folder / "page.mjs").write_text(text + "if (y.length !== 4) throw new Error(`${y.length}`);\n")
        subprocess.run(["node", "page.mjs"], cwd=folder, check=True)


def test_commands_whose_answers_are_known_are_still_shown():
    for page, line in ANSWERS:
        assert any(line in block.commands for block in blocks(page)), line


def test_what_is_not_run_as_it_stands_is_listed():
    found = {page: [one for block in blocks(page) for one in exceptions(block)] for page in PAGES}
    assert {page: notes for page, notes in found.items() if notes} == EXCEPTIONS


def exceptions(block):
    if (reason := block.note("skip")) is not None:
        yield f"skip {reason}"
    elif block.note("short") is not None and block.language in SHELL:
        yield "short"


@pytest.mark.parametrize("page", PAGES)
def test_links_have_a_form_that_can_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text("utf-8"), flags=re.S | re.M)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if ":" in link:
            assert re.fullmatch(r"https://[\w.-]+\.\w+(/[\w./#?=&%~-]*)?", link), link
        elif page == "README.md":
            assert (ROOT / link.partition("#")[0]).exists(), link


def test_make_targets_that_are_named_exist():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for page in PAGES:
        for target in re.findall(r"`make (\w+)`", (ROOT / page).read_text("utf-8")):
            assert re.search(rf"^{target}:", makefile, re.M), f"{page}: make {target}"


def test_the_tutorial_names_every_core_that_can_be_emulated():
    text = (ROOT / SENSOR).read_text("utf-8")
    listed = re.search(r"Cores that can be emulated are (.*?);", text, re.S)[1]
    assert set(re.findall(r"Cortex-M\d+", listed)) == {name.title() for name in chip.CORES}


def test_the_tutorials_program_takes_readings_far_from_zero(tmp_path, monkeypatch):
    """A barometer's pascals, or counts of a load cell: an int8 program counts them from their middle."""
    if shutil.which("cc") is None:
        pytest.skip("cc is not installed")
    monkeypatch.chdir(tmp_path)
    source = np.random.default_rng(0)
    lines = ["recording,activity,ax,ay,az"]
    for number in range(30):
        label, force = ("still", 0) if number % 2 else ("moving", 9000)
        swing = 250_000 + force * np.sin(np.arange(40) * 0.5 + number)[:, None] * [1, 2, 3]
        rows = swing + source.normal(0, 300, (40, 3))
        lines += [f"{number},{label},{','.join(f'{value:.0f}' for value in row)}" for row in rows]
    Path("sensor.csv").write_text("\n".join(lines) + "\n")
    assert shell.run(f"{FIT} --epochs 40 --budget 8KB") is not None
    header = Path("wearable/c/wearable.h").read_text()
    assert re.search(r"^ +\{2[45]\d{4}\.?\d*f, ", header, re.MULTILINE)
    Path("example.c").write_text(next(block.text for block in blocks(SENSOR) if block.note("file") == "example.c"))
    shell.run("cc -std=c99 -O2 -Iwearable/c example.c wearable/c/wearable.c -o example")
    for number, label in ((0, "moving"), (1, "still"), (2, "moving")):
        assert shell.run(f'grep "^{number}," sensor.csv | cut -d, -f3- | ./example') == f"{label}\n"
