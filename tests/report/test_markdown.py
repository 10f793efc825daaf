"""Tables on pages come from result files, and the pages of the project are up to date."""

from pathlib import Path

import pytest

from mgrade.report.markdown import fill
from mgrade.report.page import build, read
from mgrade.tasks.rows import at_rows
from mgrade.train import load_recipe

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("page", "place", "count"),
    [
        ("README.md", "summary", 1),
        ("docs/results.md", "table:", 15),
        ("docs/results.md", "rows", 1),
        ("docs/deploy.md", "stages:", 3),
    ],
)
def test_pages_say_what_the_files_do(page, place, count):
    text = (ROOT / page).read_text("utf-8")
    assert fill(text, ROOT / "results") == text, "run `make tables`"
    assert text.count(f"<!-- {place}") == count


def test_figures_of_the_readme_are_what_the_files_say():
    drawn = {figure.name: figure.drawing() for figure in build(read(ROOT / "results"))[1]}
    kept = sorted((ROOT / "docs/assets").glob("*.svg"))
    assert kept
    for path in kept:
        assert path.read_text("utf-8") == drawn[path.stem], f"{path.name}: run `make tables`"


def test_a_summary_without_results_names_all_commands(tmp_path):
    filled = fill("<!-- summary -->\n<!-- end -->\n", tmp_path)
    assert "Not run yet" in filled
    assert "`flipflop/mgrade`" in filled
    assert "1 of" not in filled


def test_delays_of_images_are_counted_at_whole_rows(everything):
    lines = fill("<!-- rows -->\nold\n<!-- end -->\n", everything).splitlines()
    named = [line.split("`")[1] for line in lines if "`" in line]
    shipped = {f"{task}/mgrade" for task in ("image", "pathfinder", "pathx", "scifar", "smnist")}
    assert len(named) == 6
    assert {*named} == shipped | {"pathfinder/mgrade@norms"}  # the one variant whose delays start elsewhere
    (made_up,) = (line for line in lines if "`scifar/mgrade`" in line)
    recipe = load_recipe("scifar/mgrade").model
    near = [[31 * k + 7 * c for k in range(recipe.taps)] for c in range(recipe.dim)]
    shares = at_rows([[delay % recipe.max_delay for delay in row] for row in near], 32)
    assert made_up.split(" | ")[1:3] == ["32", ", ".join([f"{shares:.3f}"] * recipe.depth)]


def test_delays_that_start_a_row_apart_say_so(everything):
    lines = fill("<!-- rows -->\nold\n<!-- end -->\n", everything).splitlines()
    start, chance = next(line for line in lines if "`image/mgrade`" in line).strip("| ").split(" | ")[3:]
    assert load_recipe("image/mgrade").model.position_init == "even"
    assert start == "0.857"  # six taps of seven: the seventh is the pixel itself
    assert float(chance) < 0.2
    start, chance = next(line for line in lines if "`smnist/mgrade`" in line).strip("| ").split(" | ")[3:]
    assert load_recipe("smnist/mgrade").model.position_init == "random"
    assert start == chance


def test_stages_that_were_not_run_say_how(tmp_path):
    filled = fill("<!-- stages: fsdd -->\nold\n<!-- end -->\n", tmp_path)
    assert filled == (
        "<!-- stages: fsdd -->\nNot run: `mgrade stages RUN --verify cortex-m55 --out results/deploy/fsdd.json`\n"
        "<!-- end -->\n"
    )


def test_only_tables_are_touched(tmp_path):
    page = "before 1.23\n<!-- table: flipflop -->\nold | row\n<!-- end -->\nafter\n"
    filled = fill(page, tmp_path)
    assert filled.startswith("before 1.23\n<!-- table: flipflop -->\n| recipe |")
    assert filled.endswith("<!-- end -->\nafter\n")
    assert "old" not in filled
    assert "not run" in filled


def test_recipes_that_differ_in_one_option_share_a_line(tmp_path):
    filled = fill("<!-- table: highfreq by frequency -->\n<!-- end -->\n", tmp_path)
    head, _, *lines = filled.splitlines()[1:-1]
    assert [cell for cell in head.split(" | ") if cell.startswith("ours")] == [
        f"ours, frequency {value}" for value in (0.07, 0.17, 0.33, 1.0)
    ]
    names = [line.split(" | ")[0] for line in lines]
    assert len(names) == len(set(names))
    assert {"| `highfreq/mgrade-1l`", "| `highfreq/mgrade-1l@…-early`"} < set(names)
    assert all(line.count("not run") == 4 for line in lines)
    assert all("| 0 of 5 |" in line for line in lines)
