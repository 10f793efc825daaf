"""docs/deploy.md: its commands and programs run as they stand, in their order, and its links lead somewhere."""

import contextlib
import io
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mgrade.cli import main
from mgrade.deploy import chip, wasm
from mgrade.train import launch
from small import small

DOCS = Path(__file__).parent.parent / "docs"
TEXT = (DOCS / "deploy.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.S | re.M)


def test_everything_shown_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    launch(small(), seeds=[0], root=tmp_path, device="cpu")
    names = {}
    for language, text in BLOCKS:
        if language == "python":
            exec(compile(text, "deploy.md", "exec"), names)
        elif language == "c":
            (tmp_path / "example.c").write_text(text)
        elif language == "js":
            in_node(tmp_path / "my-web", text)
        else:
            for line in text.splitlines():
                command(line)
    assert {"my-c", "my-int8", "flip", "my-arduino"} <= {path.name for path in tmp_path.iterdir()}


def command(line):
    words = shlex.split(line, comments=True)
    if words[0] == "cc":
        if shutil.which("cc"):
            subprocess.run([*words, "-Wall", "-Wextra", "-Wpedantic", "-Werror"], check=True)
            assert len(subprocess.run(["./example"], check=True, capture_output=True).stdout.splitlines()) == 4
        return
    assert words.pop(0) == "mgrade"
    if ("--verify" in words and chip.available(words[-1])) or ("wasm" in words and wasm.available()):
        return
    samples = io.StringIO(Path(words.pop()).read_text()) if "<" in words else io.StringIO()
    words = [word for word in words if word != "<"]
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setattr(sys, "stdin", samples)
        with pytest.raises(SystemExit) as stop:
            main(words)
    assert not stop.value.code, line
    if words[0] == "stream":
        assert len(out.getvalue().splitlines()) == 200


def in_node(folder, text):
    if folder.is_dir() and shutil.which("node"):
        (folder / "page.mjs").write_text(text + "if (y.length !== 4) throw new Error(`${y.length}`);\n")
        subprocess.run(["node", "page.mjs"], cwd=folder, check=True)


def test_the_links_exist():
    for link in re.findall(r"\]\(([^)#:]+)\)", TEXT):
        assert (DOCS / link).exists(), link
