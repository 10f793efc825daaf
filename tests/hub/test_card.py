"""Model cards: what huggingface_hub reads in them is what the result file says."""

import json
import re
from html import escape
from pathlib import Path

import pytest
import torch

from mgrade import Model, ModelConfig
from mgrade.hub import model_card, read_evidence
from mgrade.hub.card import PIPELINES
from mgrade.nn import DelayConv
from mgrade.tasks import TASKS

ModelCard = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed").ModelCard
RESULTS = Path(__file__).parents[2] / "results"
FILES = sorted(path for path in RESULTS.glob("*/*/seed0.json") if path.parent.parent.name not in ("bench", "deploy"))


def model_of(result):
    """A model with the delays of a result file, as far as it has any."""
    model = Model(ModelConfig.from_dict(result["recipe"]["model"]))
    convolutions = [module for module in model.modules() if isinstance(module, DelayConv)]
    for module, delays in zip(convolutions, result.get("delays", ()), strict="delays" in result):
        module.load_state_dict({name: torch.tensor(value) for name, value in delays.items()})
    return model


def card_of(path):
    result = json.loads(path.read_text())
    model = model_of(result)
    return result, ModelCard(model_card(model, "someone/small", read_evidence(path, model)))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parts[-3]}-{path.parts[-2]}")
def test_figures_of_every_result_file_come_back(path):
    result, card = card_of(path)
    read = {one.metric_name: (one.metric_type, one.metric_value) for one in card.data.eval_results}
    assert read.keys() == result["metrics"].keys()
    for name, value in result["metrics"].items():
        kind, shown = read[name]
        assert name.endswith(kind)
        assert shown == pytest.approx(value, abs=5e-5)
    assert all(one.dataset_type == result["recipe"]["task"]["name"] for one in card.data.eval_results)


def test_front_matter_has_what_a_hub_asks_for():
    _, card = card_of(RESULTS / "vowels" / "mgrade" / "seed0.json")
    assert (card.data.license, card.data.library_name, card.data.pipeline_tag) == (
        "mit",
        "mgrade",
        "audio-classification",
    )
    assert "vowels" in card.data.tags
    assert card.data.model_name == "small"
    assert "accuracy" in card.data.metrics


def test_words_say_where_the_figures_come_from():
    result, card = card_of(RESULTS / "flipflop" / "mgrade" / "seed0.json")
    for fact in (result["commit"], result["hardware"]["gpu"], f"{result['parameters']:,} parameters", "seed 0"):
        assert fact in card.text
    assert f"{result['state_bytes']:,} bytes of state" in card.text
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", card.text, re.S)]
    whole = ModelConfig.from_dict(result["recipe"]["model"]).to_dict()  # also with options that are newer than the file
    assert blocks == [{key: result["recipe"][key] for key in ("task", "train")}, whole]


HOSTILE = "a`b``` <script>alert(1)</script>\n# **bold** _it_ | [x](y) \ud800 \x85 & \U0001f600"
PLAIN = "a`b``` <script>alert(1)</script> # **bold** _it_ | [x](y) & \U0001f600"


def hostile_result():
    result = json.loads((RESULTS / "vowels" / "mgrade" / "seed0.json").read_text())
    result |= {"experiment": HOSTILE, "model": HOSTILE, "commit": HOSTILE}
    result |= {"hardware": {"cpu": HOSTILE}, "versions": {"mgrade": HOSTILE, HOSTILE: "1"}}
    result["metrics"][HOSTILE] = 0.5
    result["recipe"]["task"]["name"] = HOSTILE
    result["recipe"]["train"][HOSTILE] = HOSTILE
    return result


def test_text_of_a_result_file_is_text(tmp_path):
    markdown = pytest.importorskip("markdown_it", reason="markdown-it-py is not installed").MarkdownIt()
    result = hostile_result()
    model = model_of(result)
    (tmp_path / "odd.json").write_text(json.dumps(result))
    model.save_pretrained(tmp_path / "small", result=tmp_path / "odd.json")
    written = (tmp_path / "small" / "README.md").read_text("utf-8")
    card = ModelCard(written)
    assert PLAIN in card.data.tags
    assert PLAIN in {one.metric_name for one in card.data.eval_results}
    assert "<script" not in written
    blocks = re.findall(r"^```json\n(.*?)^```$", card.text, re.S | re.M)
    assert json.loads(blocks[0])["train"] == result["recipe"]["train"]
    shown = markdown.enable("table").render(card.text)
    parts = {"table", "thead", "tbody", "tr", "th", "td"}
    assert set(re.findall(r"<(\w+)", shown)) == parts | {"h1", "h2", "p", "ul", "li", "pre", "code", "em"}
    assert shown.count("<em>") == 1  # the title of the paper
    expected = escape(PLAIN)
    assert f"<td>{expected}</td>" in shown
    for fact in (f"recipe: {expected}/{expected}, seed 0", f"on: {expected}", f"commit: {expected}"):
        assert f"<li>{fact}</li>" in shown
    assert f"<li>software: mgrade {expected}, {expected} 1</li>" in shown


def test_figures_that_are_not_finite_are_said_but_not_claimed(tmp_path):
    result = json.loads((RESULTS / "vowels" / "mgrade" / "seed0.json").read_text())
    result["metrics"] = {"test_accuracy": 0.5, "loss": float("nan"), "worst": float("-inf"), "large": 1e22}
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(result))
    _, card = card_of(path)
    assert {one.metric_name: one.metric_value for one in card.data.eval_results} == {
        "test_accuracy": 0.5,
        "large": 1e22,
    }
    assert "| loss | not finite |" in card.text
    assert "| worst | not finite |" in card.text
    path.write_text(json.dumps({**result, "metrics": {"loss": float("nan")}}))
    assert card_of(path)[1].data.eval_results is None


def test_without_a_result_a_card_claims_nothing():
    model = Model(ModelConfig(inputs=2, outputs=3, dim=4, depth=1, taps=2, max_delay=4))
    card = ModelCard(model_card(model, "small", license="apache-2.0"))
    assert card.data.license == "apache-2.0"
    assert card.data.eval_results is None
    assert card.data.pipeline_tag is None
    assert "Figures" not in card.text


def test_pipelines_are_of_tasks_that_exist():
    assert PIPELINES.keys() <= TASKS.keys()
