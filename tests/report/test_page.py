"""The page: what the files say is on it, it holds nothing else, and a broken file is named."""

import json
import re
import shutil
import statistics
from html.parser import HTMLParser

import pytest

from mgrade.cli import main
from mgrade.report.page import build, read
from mgrade.report.palette import COLOURS
from mgrade.train import load_recipe, shipped


def text_of(page):
    """The words of a page, spaces evened out."""
    body = re.sub(r"<(style|script)\b.*?</\1>", " ", page, flags=re.S)
    return " ".join(re.sub("<[^>]*>", " ", body).replace("\xa0", " ").split())


class Elements(HTMLParser):
    """All elements with their attributes, checked for being closed in order."""

    VOID = ("meta", "link", "path", "line", "rect", "circle", "br")

    def __init__(self, page):
        super().__init__()
        self.found, self.open = [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(results):
    return build(read(results))[0]


def test_figures_are_those_of_the_files(page, results):
    words = text_of(page)
    accuracy = [
        json.loads(p.read_text())["metrics"]["test_accuracy"] for p in (results / "flipflop/tcn").glob("*.json")
    ]
    mean, spread = 100 * statistics.fmean(accuracy), 100 * statistics.stdev(accuracy)
    assert f"TCN 60.6 ± 0.1 % {mean:.1f} ± {spread:.1f} % 3 of 3" in words
    stage = json.loads((results / "deploy/vowels.json").read_text())["stages"][0]
    assert f"{stage['parameter_bytes']:,} bytes of weights" in words
    steps = json.loads((results / "bench/gpu_steps.json").read_text())["training_step"]["flipflop"]
    assert f"{1e6 * steps['bfloat16']['contenders']['mgrade, captured']['median']:.3g} µs" in words


def test_what_has_not_run_says_its_command(results, tmp_path):
    shutil.copytree(results / "flipflop" / "mgrade", tmp_path / "flipflop" / "mgrade")
    page, figures = build(read(tmp_path))
    words = text_of(page)
    assert "not run mgrade train flipflop/tcn" in words
    assert "not run mgrade train image/mgrade" in words
    assert "not run mgrade train flipflop/mgrade " not in words
    assert "mgrade reproduce lra" in words
    assert {figure.name for figure in figures} == {"memory", "flipflop"}


def test_a_star_is_for_what_sees_both_directions(page):
    """As Table 3 marks it: of the published LRU on Pathfinder alone."""
    words = text_of(page)
    assert words.count("LRU, published * 95.1 %") == words.count("LRU, published *") == 1
    assert "LRU, published 60.2 %" in words


def test_with_no_result_it_says_what_to_run(tmp_path):
    page, figures = build(read(tmp_path))
    assert "has no results yet" in text_of(page)
    assert "mgrade train vowels/mgrade" in text_of(page)
    assert [figure.name for figure in figures] == ["memory"]
    Elements(page)


def test_it_is_whole_and_asks_no_network(page):
    elements = Elements(page).found
    for name, attributes in elements:
        assert name not in ("img", "iframe", "object", "embed", "base", "form")
        for key in ("src", "href", "xlink:href", "action"):
            assert attributes.get(key, "#").startswith(("#", "data:,")), (name, attributes)
        assert not any(key.startswith("on") for key in attributes), attributes
    assert "@import" not in page
    assert "url(" not in page
    (policy,) = (attributes["content"] for _, attributes in elements if attributes.get("http-equiv"))
    assert policy.startswith("default-src 'none'")


def test_every_figure_says_in_words_what_is_seen(page):
    elements = Elements(page).found
    drawings = [a for n, a in elements if n == "svg" and a.get("aria-hidden") != "true"]
    assert len(drawings) > 40
    for attributes in drawings:
        assert attributes["role"] == "img"
        assert len(attributes["aria-label"]) > 40, attributes
    figures = page.split("<figure")[1:]
    for figure in figures:
        caption = re.search("<figcaption>(.*?)</figcaption>", figure, re.S)[1]
        assert re.search(r"\d", text_of(caption)), caption
    ids = [a["id"] for _, a in elements if "id" in a]
    assert len(ids) == len(set(ids))
    links = [a["href"][1:] for n, a in elements if n == "a"]
    assert len(links) > 10
    assert set(links) <= set(ids)


def test_all_results_make_a_page_of_less_than_five_megabytes(everything):
    page, figures = build(read(everything))
    assert len(page.encode()) < 5e6
    assert "not run" not in text_of(page)
    names = {figure.name for figure in figures}
    assert {"delays-image-mgrade", "training-selective-copying", "training-listops", "stages-vowels"} <= names
    captions = {figure.name: figure.caption for figure in figures}
    assert "Within 2 steps of whole rows of 32 pixels: " in captions["delays-image-mgrade"]
    assert "whole rows" not in captions["delays-listops-mgrade"]
    drawing = next(figure for figure in figures if figure.name == "memory").drawing()
    rings = re.findall(r'fill="#ffffff" stroke="(#\w+)" stroke-width="2"', drawing)
    assert rings == [COLOURS["mgrade"][0], COLOURS["lru"][0]] * 2
    words = text_of(page)
    assert "MiniRocket 90.0 % 1 12,345 678 3.21 µs 2 s compiled C, one core" in words
    assert "ROCKET unavailable: not installed" in words


def test_names_from_files_are_text(tmp_path):
    hostile = "<script>alert(1)<"
    recipe = load_recipe("vowels/mgrade")
    document = {"recipe": recipe.to_dict(), "metrics": {hostile: 0.5}, "parameters": 1, "state_bytes": 1}
    document |= {"commit": hostile, "hardware": {"cpu": hostile}, "versions": {"mgrade": hostile}}
    for place in (tmp_path / hostile / hostile, tmp_path / "vowels" / "mgrade"):
        place.mkdir(parents=True)
        document["metrics"]["test_accuracy"] = 0.5
        (place / "seed0.json").write_text(json.dumps(document))
    stage = {"name": hostile, "figures": {"accuracy": 0.5}, "parameter_bytes": 1, "state_bytes": 1}
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / f"{hostile}.json").write_text(json.dumps({"stages": [stage], "commit": hostile}))
    page, figures = build(read(tmp_path))
    assert hostile not in page
    assert page.count("&lt;script&gt;alert(1)") > 5
    assert all(hostile not in figure.drawing() for figure in figures)
    Elements(page)


def test_runs_of_other_recipes_are_shown_apart(tmp_path):
    path = tmp_path / "mine" / "tiny" / "seed3.json"
    path.parent.mkdir(parents=True)
    document = {"recipe": {}, "metrics": {"test_accuracy": 0.25}, "parameters": 12, "state_bytes": 34}
    path.write_text(json.dumps(document))
    assert "mine/tiny 3 test_accuracy 25.0 % 12 34" in text_of(build(read(tmp_path))[0])


def spoiled(document, key, value):
    """A document with one part replaced; `key` is a path of names and places."""
    *path, last = key.split(".")
    part = document
    for name in path:
        part = part[int(name) if isinstance(part, list) else name]
    part[last] = value
    return document


@pytest.mark.parametrize(
    ("name", "key", "value", "words"),
    [
        ("lorenz/mgrade/seed0.json", "metrics", 3, "metrics must be an object"),
        ("lorenz/mgrade/seed0.json", "metrics", {}, "metrics.mase_observed is missing"),
        ("lorenz/mgrade/seed0.json", "metrics.mase_observed", "low", "could not convert"),
        ("lorenz/mgrade/seed0.json", "parameters", None, "int()"),
        ("lorenz/mgrade/seed0.json", "seed", 5, "seed must be 0, as in its path, got 5"),
        ("lorenz/mgrade/seed0.json", "experiment", "text", "experiment must be 'lorenz', as in its path, got 'text'"),
        ("lorenz/mgrade/seed0.json", "model", None, "model must be 'mgrade', as in its path, got None"),
        ("lorenz/mgrade/seed0.json", "curves.loss", [1.0], "curves.loss must be a list as long as curves.step, 50"),
        ("lorenz/mgrade/seed0.json", "curves", {"step": [1e308], "loss": [1.0]}, "curves.step must be finite"),
        ("lorenz/mgrade/seed0.json", "curves", {"step": [None]}, "curves.step must be finite"),
        ("lorenz/mgrade/seed0.json", "examined.principal_components", [[[1, 2, None]]], "float()"),
        ("lorenz/mgrade/seed0.json", "examined.principal_components", [[[1, 2, 1e308]]], "three finite numbers"),
        ("lorenz/mgrade/seed0.json", "examined.principal_components", [], "must hold trajectories"),
        ("lorenz/mgrade/seed0.json", "examined.trajectories", [[[1, 2, 3]]] * 4, "index out of range"),
        ("lorenz/mgrade/seed0.json", "examined.explained_variance", [1], "must have 3 entries, got 1"),
        ("lorenz/mgrade@ajar/seed0.json", "delays", [{"position": [[1.0]]}], "weight is missing"),
        (
            "lorenz/mgrade@ajar/seed0.json",
            "delays",
            [{"position": [[1e308]], "weight": [[1]]}],
            "delays must be finite",
        ),
        ("flipflop/mgrade/seed0.json", "examined.recall_by_distance", {"far": 1}, "invalid literal"),
        ("flipflop/mgrade/seed0.json", "recipe", {"task": 1}, ""),
        ("vowels/mgrade/seed0.json", "hardware.cpu", "\ud800", "text must be Unicode, got '\\ud800'"),
        ("bench/cpu.json", "hardware.cpu", "\ud800", "text must be Unicode"),
        ("deploy/vowels.json", "commit", "\ud800", "text must be Unicode"),
        ("bench/gpu_steps.json", "training_step", [], ""),
        ("bench/deploy.json", "streaming_step.contenders", {}, ""),
        ("bench/cpu.json", "training_step.listops.contenders", 7, ""),
        ("deploy/vowels.json", "stages", [], ""),
        ("deploy/vowels.json", "stages.0.state_bytes", "many", ""),
    ],
)
def test_a_misshapen_file_is_named_in_one_line(results, tmp_path, capsys, name, key, value, words):
    path = tmp_path / "results" / name
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(spoiled(json.loads((results / name).read_text()), key, value)))
    assert_refused(tmp_path, capsys, path, words)


@pytest.mark.parametrize(
    "name", ["vowels/mgrade/seed0.json", "bench/cpu.json", "deploy/x.json", "compare/estimator.json"]
)
@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b'{"recipe":' + 100_000 * b"["],
    ids=["empty", "open", "list", "bytes", "deep"],
)
def test_what_is_no_result_file_is_named(tmp_path, capsys, name, content):
    path = tmp_path / "results" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert_refused(tmp_path, capsys, path, "is not a result file")


def assert_refused(folder, capsys, path, words):
    with pytest.raises(SystemExit) as stop:
        main(["report", "--results", str(folder / "results"), "--out", str(folder / "report.html")])
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"mgrade: {path}: ")
    assert words in line
    assert not (folder / "report.html").exists()


def test_runs_that_diverged_are_drawn_without_their_figures(results, tmp_path):
    for name in ("flipflop/mgrade", "lorenz/mgrade"):
        shutil.copytree(results / name, tmp_path / name)
    for path in tmp_path.glob("*/*/seed1.json"):
        document = json.loads(path.read_text())
        document["metrics"] = dict.fromkeys(document["metrics"], float("nan"))
        for curve, values in document["curves"].items():
            if curve != "step":
                values[3:] = [float("nan")] * len(values[3:])
        path.write_text(json.dumps(document))
    page, figures = build(read(tmp_path))
    assert "not finite" in text_of(page)
    for figure in figures:
        assert not re.search(r'="[^"]*\b(nan|inf)\b', figure.drawing())


@pytest.mark.parametrize("large", [1e308, -1e308])
def test_a_run_that_went_beyond_all_bounds_is_drawn_without_its_figures(results, tmp_path, large):
    for name in ("lorenz/mgrade", "flipflop/mgrade"):
        shutil.copytree(results / name, tmp_path / name)
    for path in [*tmp_path.glob("*/*/seed1.json"), *tmp_path.glob("*/*/seed2.json")]:
        document = json.loads(path.read_text())
        document["metrics"] = dict.fromkeys(document["metrics"], large)
        document["curves"] = {
            name: values if name == "step" else [large] * len(values) for name, values in document["curves"].items()
        }
        if "recall_by_distance" in document["examined"]:
            document["examined"]["recall_by_distance"] = {"1": large, "2": 0.5}
        path.write_text(json.dumps(document))
    page, figures = build(read(tmp_path))
    assert "not finite" in text_of(page)
    for figure in figures:
        assert not re.search(r'="[^"]*\b(nan|inf)\b', figure.drawing())


@pytest.mark.parametrize("lacking", [0, 1])
def test_a_seed_without_curves_leaves_those_of_the_others(results, tmp_path, lacking):
    shutil.copytree(results / "lorenz", tmp_path / "lorenz")
    for path in tmp_path.glob(f"lorenz/*/seed{lacking}.json"):
        document = json.loads(path.read_text())
        del document["curves"]
        path.write_text(json.dumps(document))
    found = next(figure for figure in build(read(tmp_path))[1] if figure.name == "lorenz-learning")
    (drawn,) = (figure for figure in build(read(results))[1] if figure.name == "lorenz-learning")
    ends = [max(spot.x for spot in one.panels[0].spots) for one in (found, drawn)]
    assert ends[0] == pytest.approx(ends[1])  # the last epoch is the last epoch
    assert found.caption.startswith("On validation, ")
    assert "MASE at the end, observed: mGRADE" in found.caption


def test_text_that_looks_like_a_colour_stays_text(results, tmp_path):
    path = tmp_path / "bench" / "gpu_steps.json"
    path.parent.mkdir()
    document = json.loads((results / "bench" / "gpu_steps.json").read_text())
    document["hardware"]["gpu"] = 'var(--nope) var(--ink) ="var(--ink)"'
    path.write_text(json.dumps(document))
    (drawing,) = (figure.drawing() for figure in build(read(tmp_path))[1] if figure.name == "speed-training")
    assert "one var(--nope) var(--ink) =&quot;var(--ink)&quot;:" in drawing
    assert drawing.count("var(") == 3
    assert COLOURS["mgrade"][0] in drawing


def test_every_shipped_recipe_has_its_row(everything, tmp_path):
    page = build(read(tmp_path))[0]
    for name in shipped():
        assert f"mgrade train {name}<" in page, name


def test_the_overlap_of_neighbours_is_a_curve(results, tmp_path):
    for path in results.glob("lorenz/*/*.json"):
        document = json.loads(path.read_text())
        count = len(document["curves"]["step"])
        document["curves"]["validation_neighbour_overlap"] = [0.1 + 0.4 * i / (count - 1) for i in range(count)]
        target = tmp_path / path.relative_to(results)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(document))
    (figure,) = (figure for figure in build(read(tmp_path))[1] if figure.name == "lorenz-learning")
    assert "Neighbour overlap at the end: mGRADE 50.0" in figure.caption
    assert "kept over epochs; at the end: mGRADE 50.0" in figure.panels[-1].alt
