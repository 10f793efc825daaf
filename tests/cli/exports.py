"""Calls of `mgrade export` and its like, and what came of them."""

import json

import pytest

from mgrade.cli import main

WHOLE = ("--precision", "int8")


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return stop.value.code or 0, captured.out, captured.err


def export(capsys, *arguments):
    status, out, err = call(capsys, "export", *arguments, "--json")
    assert (status, err) == (0, "")
    return json.loads(out)


def refused(capsys, *arguments):
    """The line on stderr, without what it begins with."""
    status, out, err = call(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("mgrade: ")
    assert err.count("\n") == 1
    return err.removeprefix("mgrade: ").strip()
