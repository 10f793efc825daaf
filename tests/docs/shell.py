"""Lines of shell as pages show them: `mgrade` in this process, which is quick, and a few others as they are."""

import contextlib
import io
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from docs.pages import ROOT
from mgrade.cli import app, main
from mgrade.deploy import chip, wasm
from mgrade.footprint import find_chip

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")


def run(line, short=()):
    """Runs one line in the current folder; what it printed, or None where a tool it needs is not here."""
    words = shlex.split(line)
    if words[0] == "mgrade":
        return _mgrade(words[1:], short)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text("utf-8"), re.M), line
    elif words[:2] == ["pip", "install"]:
        _check_extras(words[2:])
    elif words[0] == "sh":
        assert (ROOT / words[1]).is_file(), line
    elif words[0] == "python" and Path(words[1]).is_file():
        exec(compile(Path(words[1]).read_text("utf-8"), words[1], "exec"), {"__name__": "__main__"})
    elif words[0] == ".":
        (environment,) = re.findall(r"^VENV := (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.M)
        assert words[1:] == [f"{environment}/bin/activate"], line
    elif words[0] == "arm-none-eabi-gcc":
        if missing := chip.available("cortex-m4", "gcc"):
            print("not run:", missing)
            return None
        subprocess.run([*words, *WARNINGS], check=True)
    elif words[0] == "cc":
        if shutil.which("cc"):
            subprocess.run([*words, *WARNINGS], check=True)
    elif words[0].startswith("./") or "| ./" in line:
        if shutil.which("cc") is None:
            return None
        return subprocess.run(["sh", "-c", line], check=True, capture_output=True, text=True).stdout
    else:
        raise AssertionError(f"no rule how to run: {line}")
    return ""


def check(line):
    """Whether an `mgrade` line that is not run has a command and options that exist."""
    words = shlex.split(line)
    if "mgrade" not in words[:5]:
        return
    command, arguments = get_command(app), words[words.index("mgrade") + 1 :]
    context = typer.Context(command, info_name="mgrade")
    while hasattr(command, "commands"):
        command = command.commands[arguments[0]]
        arguments = arguments[1:]
    command.make_context(command.name, arguments, parent=context)


def _mgrade(words, short):
    if missing := _missing(words):
        print("not run:", missing)
        return None
    source = io.StringIO()
    if "<" in words:
        source = io.StringIO(Path(words[words.index("<") + 1]).read_text("utf-8"))
        words = words[: words.index("<")]
    if words[0] == "train":
        words = [*words, *(word for setting in short for word in ("--set", setting))]
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setattr(sys, "stdin", source)
        with pytest.raises(SystemExit) as stop:
            main(words)
    assert not stop.value.code, f"mgrade {shlex.join(words)}: exit status {stop.value.code}"
    return out.getvalue()


def _missing(words):
    """Why a command cannot run here, for want of a tool; None if it can."""
    if "wasm" in words:
        return wasm.available()
    if "--verify" not in words:
        return None
    after = words[words.index("--verify") + 1 :]
    core = after[0] if words[0] == "export" else find_chip(words[words.index("--chip") + 1]).core.lower()
    return chip.available(core)


def _check_extras(words):
    """An extra that is named must exist."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    known = set(
        re.findall(r"^(\w+) = \[", text.partition("[project.optional-dependencies]")[2].partition("\n[")[0], re.M)
    )
    for word in words:
        for extra in re.findall(r"mgrade\[([\w,]+)\]", word):
            assert set(extra.split(",")) <= known, word
