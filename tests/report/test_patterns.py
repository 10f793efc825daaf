"""What the captions of high-frequency patterns say."""

import shutil

import pytest

from mgrade.report.figures.patterns import patterns
from mgrade.report.runs import all_runs, by_recipe


def caption(folder):
    known, _ = by_recipe(all_runs(folder))
    return patterns(known).caption.replace("\N{NO-BREAK SPACE}", " ")


def test_where_everything_has_run_and_is_alike_it_is_said_once(results):
    assert "after training, all models 100 % at every frequency" in caption(results)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["mgrade-1l"], "mGRADE, 1 layer 100 % at 0.33."),
        (["mgrade-1l", "mgrade-1l@1.0"], "mGRADE, 1 layer 100 % at 0.33, 100 % at 1.0."),
        (["mgrade-1l", "mingru-1l"], "mGRADE, 1 layer 100 % at 0.33; minGRU, 1 layer 100 % at 0.33."),
    ],
)
def test_what_has_not_run_is_not_spoken_of(results, tmp_path, names, words):
    for name in names:
        shutil.copytree(results / "highfreq" / name, tmp_path / "highfreq" / name)
    assert caption(tmp_path).endswith(f"after training, {words}")
