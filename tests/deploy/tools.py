"""Compilers, as the tests of exports call them."""

import shutil
import subprocess

import pytest

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")


def needs(tool):
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    return tool


def checked(*words, cwd):
    done = subprocess.run(list(map(str, words)), cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
