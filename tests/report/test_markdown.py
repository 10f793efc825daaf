"""Tables on pages come from result files, and the pages of the project are up to date."""

from pathlib import Path

from mgrade.report.markdown import fill

ROOT = Path(__file__).parents[2]


def test_the_results_page_is_what_the_files_say():
    text = (ROOT / "docs/results.md").read_text("utf-8")
    assert fill(text, ROOT / "results") == text, "run `make tables`"
    assert text.count("<!-- table:") == 4


def test_the_deploy_page_is_what_the_files_say():
    text = (ROOT / "docs/deploy.md").read_text("utf-8")
    assert fill(text, ROOT / "results") == text, "run `make tables`"
    assert text.count("<!-- stages:") == 3


def test_stages_that_were_not_run_say_how(tmp_path):
    filled = fill("<!-- stages: fsdd -->\nold\n<!-- end -->\n", tmp_path)
    assert filled == (
        "<!-- stages: fsdd -->\nNot run: `mgrade stages RUN --chip cortex-m55 --out results/deploy/fsdd.json`\n"
        "<!-- end -->\n"
    )


def test_only_tables_are_touched(tmp_path):
    page = "before 1.23\n<!-- table: flipflop -->\nold | row\n<!-- end -->\nafter\n"
    filled = fill(page, tmp_path)
    assert filled.startswith("before 1.23\n<!-- table: flipflop -->\n| recipe |")
    assert filled.endswith("<!-- end -->\nafter\n")
    assert "old" not in filled
    assert "not run" in filled
