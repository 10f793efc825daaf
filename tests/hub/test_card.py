"""Model cards: what huggingface_hub reads in them is what the result file says."""

import json
import re
from pathlib import Path

import pytest

from mgrade import Model, ModelConfig
from mgrade.hub import model_card, read_evidence
from mgrade.hub.card import PIPELINES
from mgrade.tasks import TASKS

ModelCard = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed").ModelCard
RESULTS = Path(__file__).parents[2] / "results"
FILES = sorted(path for path in RESULTS.glob("*/*/seed0.json") if path.parent.parent.name not in ("bench", "deploy"))


def card_of(path):
    result = json.loads(path.read_text())
    model = Model(ModelConfig.from_dict(result["recipe"]["model"]))
    return result, ModelCard(model_card(model, "someone/small", read_evidence(path, model.config)))


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
    assert blocks == [{key: result["recipe"][key] for key in ("task", "train")}, result["recipe"]["model"]]


def test_without_a_result_a_card_claims_nothing():
    model = Model(ModelConfig(inputs=2, outputs=3, dim=4, depth=1, taps=2, max_delay=4))
    card = ModelCard(model_card(model, "small", license="apache-2.0"))
    assert card.data.license == "apache-2.0"
    assert card.data.eval_results is None
    assert card.data.pipeline_tag is None
    assert "Figures" not in card.text


def test_pipelines_are_of_tasks_that_exist():
    assert PIPELINES.keys() <= TASKS.keys()
