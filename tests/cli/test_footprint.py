"""`mgrade footprint` and `mgrade size`: what they print, and how they refuse."""

import json
import re

import pytest
import typer

from mgrade import Model, ModelConfig
from mgrade.cli.footprint import footprint, size
from mgrade.deploy import from_model, optimise, write_export
from mgrade.footprint import CHIPS
from mgrade.train import load_recipe

APP = typer.Typer()
APP.command()(footprint)
APP.command()(size)
COMMAND = typer.main.get_command(APP)


def call(capsys, *arguments):
    COMMAND(list(map(str, arguments)), standalone_mode=False)
    return capsys.readouterr().out


def test_json_has_counts_bytes_components_and_chips(capsys):
    figures = json.loads(call(capsys, "footprint", "listops/mgrade", "--json"))
    assert figures["parameters"] == {"count": 39_872, "bytes": 159_488}
    assert figures["buffer"] == {"count": 3_264, "bytes": 13_056}
    assert figures["components"]["conv"]["buffer"]["count"] == 3_072
    assert set(figures["components"]) == {"encoder", "conv", "recurrence", "mlp", "norm", "decoder"}
    assert figures["fits"] == {chip.name: True for chip in CHIPS}
    assert figures["exact"]["parameters"] == 39_872 + 42
    assert figures["left_out"]["decoder bias"]["count"] == 10
    assert {row["model"] for row in figures["published"]} >= {"S4", "mGRADE"}


@pytest.mark.parametrize("model", ["dcls", "lru", "mingru", "tcn"])
def test_every_baseline_has_a_footprint(capsys, model):
    figures = json.loads(call(capsys, "footprint", f"image/{model}", "--json", "--target", "stm32f446"))
    assert figures["fits"] == {"STM32F446": False}
    assert figures["parameters"]["count"] > 100_000


def test_the_table_names_every_component_and_chip(capsys):
    out = call(capsys, "footprint", "listops/mgrade", "--published")
    for words in ("recurrence", "39,872", "3,072", "left out: encoder bias", "12,416", "Liquid-S4", "191.4K", "192K"):
        assert words in out
    assert all(chip.name in out for chip in CHIPS)
    out = call(capsys, "footprint", "image/mgrade", "--target", "stm32n6", "--precision", "int8")
    assert "STM32N657" in out
    assert "STM32F446" not in out
    assert "S4" not in out
    assert "no published models" in call(capsys, "footprint", "lorenz/mgrade", "--published")


def test_a_model_too_wide_for_whole_numbers_says_why_it_fits_nowhere(capsys, tmp_path):
    Model(ModelConfig(inputs=1, outputs=2, dim=264, depth=1, taps=1, max_delay=1)).save(tmp_path)
    out = call(capsys, "footprint", tmp_path, "--precision", "int8")
    line = "fits nowhere in int8: a sum in its layers has 528 terms, and an integer export allows at most 512"
    assert line in out
    assert " yes" not in out
    assert "fits nowhere" not in call(capsys, "footprint", tmp_path)


def test_a_saved_model_is_measured_like_its_recipe(capsys, tmp_path):
    Model(ModelConfig.mgrade(inputs=2, outputs=3, dim=8, depth=1)).save(tmp_path)
    figures = json.loads(call(capsys, "footprint", tmp_path, "--json"))
    assert figures["model"]["dim"] == 8
    assert figures["published"] == []


def test_a_run_has_the_published_models_of_its_task_beside_it(capsys, tmp_path):
    recipe = load_recipe("listops/mgrade")
    Model(recipe.model).save(tmp_path / "model")
    facts = {"experiment": "listops", "model": "mgrade", "seed": 0, "recipe": recipe.to_dict()}
    (tmp_path / "recipe.json").write_text(json.dumps(facts))
    assert "Liquid-S4" in call(capsys, "footprint", tmp_path, "--published")
    assert "Liquid-S4" not in call(capsys, "footprint", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("footprint", "listops/mgrad"), "did you mean 'listops/mgrade'"),
        (("footprint", "listops/mgrade", "--target", "RP2041"), "there is no chip 'RP2041'; did you mean 'RP2040'?"),
        (("size", "--ram", "64K"), "size needs --flash, or --chip"),
        (("size", "--ram", "much", "--flash", "1M"), "a size of memory is a number of bytes"),
        (("size", "--ram", "64K", "--flash", "1M", "--rate", "100"), "--rate needs --chip"),
        (("size", "--chip", "RP2040", "--rate", "0"), "--rate must be a number above 0, got 0"),
        (("size", "--chip", "SiMa MLSoC", "--rate", "100"), "the speed of SiMa MLSoC in float32 is not known"),
        (("size", "--ram", "10", "--flash", "10"), "nothing on the grid fits 10 B of RAM and 10 B of flash"),
        (("size", "--ram", "1K", "--flash", "1K", "--outputs", "0"), "outputs must be a whole number of at least 1"),
    ],
)
def test_mistakes_are_one_line(capsys, arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        call(capsys, *arguments)
    assert "\n" not in str(error.value)


def test_size_lists_the_largest_first(capsys):
    found = json.loads(call(capsys, "size", "--ram", "64K", "--flash", "256K", "--json"))
    counts = [one["parameters"] for one in found["configurations"]]
    assert len(counts) == 10 < found["fitting"]
    assert counts == sorted(counts, reverse=True)
    assert all(one["parameter_bytes"] <= 262_144 for one in found["configurations"])
    assert all(one["buffer_bytes"] <= 65_536 for one in found["configurations"])


def test_size_takes_a_chips_memory_and_says_the_load(capsys):
    arguments = ("size", "--chip", "nrf52840", "--rate", "100", "--precision", "int8")
    found = json.loads(call(capsys, *arguments, "--json"))
    assert (found["ram"], found["flash"]) == (256 * 1024, 1024 * 1024)
    assert all(one["operations"] <= found["operations"] for one in found["configurations"])
    out = call(capsys, *arguments)
    assert "load" in out
    assert "multiply-accumulates a step" in out
    assert "load" not in call(capsys, "size", "--chip", "nrf52840")


@pytest.fixture
def exported(tmp_path):
    program = optimise(from_model(Model(ModelConfig.mgrade(inputs=2, outputs=3, dim=8, depth=1))))
    write_export(program, "model", "c", tmp_path / "x")
    return tmp_path / "x", program


def test_an_export_is_measured_to_the_byte(capsys, exported):
    folder, program = exported
    for subject in (folder, folder / "program.safetensors"):
        figures = json.loads(call(capsys, "footprint", subject, "--json"))
        assert figures["name"] == str(subject)
        assert figures["parameters"]["bytes"] == program.parameter_bytes
        assert figures["buffer"]["bytes"] == program.state_bytes
        assert figures["components"]["gated"]["buffer"] == {"count": 8, "bytes": 32}
        assert figures["fits"] == {chip.name: True for chip in CHIPS}
    figures = json.loads(call(capsys, "footprint", folder, "--json", "--target", "stm32f446"))
    assert figures["fits"] == {"STM32F446": True}
    out = call(capsys, "footprint", folder)
    assert f"{program.parameter_bytes:,}" in out
    assert "float32 activations" in out
    assert all(chip.name in out for chip in CHIPS)


def test_what_is_no_export_is_refused(capsys, exported, tmp_path):
    for option in (("--precision", "int8"), ("--published",)):
        with pytest.raises(ValueError, match="an export has its own precision"):
            call(capsys, "footprint", exported[0], *option)
    with pytest.raises(ValueError, match="is not a safetensors file"):
        call(capsys, "footprint", __file__)
    with pytest.raises(ValueError, match=r"nor an export \(export.json\)"):
        call(capsys, "footprint", tmp_path)
    (exported[0] / "program.safetensors").unlink()
    with pytest.raises(ValueError, match="cannot be read: No such file or directory"):
        call(capsys, "footprint", exported[0])
