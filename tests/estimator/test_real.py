"""Real recordings, and the page about the estimators."""

import re
from pathlib import Path

import numpy as np
import pytest

from mgrade import StreamClassifier
from mgrade.tasks.series import PROBLEMS

PAGE = Path(__file__).parents[2] / "docs" / "estimator.md"


def recordings(name):
    """Training and test series (channels, time) of a problem, with their labels."""
    problem = PROBLEMS[name]
    if problem.source(Path("nowhere")) is None:
        pytest.skip(f"{problem.problem} is not here: the package aeon, which has a copy, is not installed")
    parts = [problem._series(split, Path("nowhere")) for split in ("train", "test")]
    return [([one.T for one in series], np.array(problem.names)[labels]) for series, labels in parts]


def test_japanese_vowels():
    training, test = recordings("vowels")
    classifier = StreamClassifier(epochs=40, random_state=0).fit(*training)
    assert classifier.score(*test) >= 0.95  # about 0.98; rounding differs between machines
    assert classifier.footprint()["bytes"] < 40_000


def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (snippet,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    exec(compile(snippet, "estimator.md", "exec"), {})
    assert (tmp_path / "wave-c" / "export.json").is_file()
