"""Footprints: components add up, the exact figures are the model's own, and `fits` means what it says."""

import pytest
import torch

from mgrade import Model, ModelConfig
from mgrade.footprint import (
    CHIPS,
    Chip,
    buffer,
    exact,
    find_chip,
    find_subject,
    instantiated,
    measure,
    parameters,
    state,
)
from mgrade.train.result import state_bytes

PRESETS = ["mgrade", "mingru", "dcls", "tcn", "lru", "lru_dcls"]


def config(preset="mgrade", **fields):
    return getattr(ModelConfig, preset)(**{"inputs": 3, "outputs": 4, "dim": 12, "depth": 2, **fields})


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("fields", [{}, {"readout": "mean"}, {"pair": True, "readout": "last"}, {"taps": 1}])
def test_the_state_is_the_models_own(preset, fields):
    c = config(preset, **fields)
    assert 4 * sum(state(c).values()) == state_bytes(Model(c)) == exact(c)["state_bytes"]


def test_exact_counts_without_touching_the_random_numbers():
    c = config(readout="mean", gate_bias="uniform")
    before = torch.get_rng_state()
    counted = exact(c)
    assert torch.equal(before, torch.get_rng_state())
    assert counted["parameters"] == sum(p.numel() for p in Model(c).parameters())
    assert counted["parameter_bytes"] == 4 * counted["parameters"]


@pytest.mark.parametrize("preset", PRESETS)
def test_only_delay_kernels_are_written_out(preset):
    c = config(preset, taps=4, max_delay=32)
    more = sum(instantiated(c).values()) - sum(parameters(c).values())
    assert more == (2 * 12 * (32 - 8) if c.conv == "delay" else 0)


@pytest.mark.parametrize(
    ("recipe", "trained", "written"),
    [("listops/mgrade", 39_872, 42_176), ("image/mgrade@paper", 707_968, 707_968 + 184_320)],
)
def test_recipes_by_the_papers_formulas(recipe, trained, written):
    found = measure(find_subject(recipe).config)
    figures = found.to_dict()
    assert figures["parameters"] == {"count": trained, "bytes": 4 * trained}
    assert figures["instantiated"]["count"] == written
    for name in ("parameters", "buffer"):
        for unit in ("count", "bytes"):
            assert figures[name][unit] == sum(part[name][unit] for part in figures["components"].values())
    left = sum(extra["count"] for extra in figures["left_out"].values())
    assert figures["exact"]["parameters"] == trained + left


def test_eight_bits_are_a_byte_a_weight_and_two_a_kept_activation():
    c = find_subject("listops/mgrade").config
    figures = measure(c, "int8").to_dict()
    assert (figures["parameters"]["bytes"], figures["buffer"]["bytes"]) == (39_872, 2 * 3_264)
    assert figures["needs"] == {"parameters": 39_914, "buffer": 2 * sum(buffer(c).values())}
    with pytest.raises(ValueError, match="precision must be one of float32, int8, got 'int4'"):
        measure(c, "int4")


def test_what_is_too_wide_for_whole_numbers_fits_nowhere_in_them():
    wide = config(dim=257, mlp="gelu")
    assert not measure(wide).too_wide
    assert any(measure(wide).to_dict()["fits"].values())
    figures = measure(wide, "int8").to_dict()
    assert figures["too_wide"]
    assert not any(figures["fits"].values())
    assert not any(figures["fits_instantiated"].values())
    assert not measure(config(dim=256, mlp="gelu"), "int8").too_wide
    assert not measure(config(dim=512, mlp="none"), "int8").too_wide


def test_a_model_fits_to_the_byte():
    found = measure(config())
    stored, kept = found.needs()

    def chip(ram, flash):
        return Chip("test", "", None, ram, flash, "")

    assert found.fits(chip(kept, stored))
    assert not found.fits(chip(kept - 1, stored))
    assert not found.fits(chip(kept, stored - 1))
    assert found.fits(chip(stored + kept, 0))
    assert not found.fits(chip(stored + kept - 1, 0))
    written = found.needs(instantiated=True)[0]
    assert written > stored
    assert not found.fits(chip(kept, stored), instantiated=True)


def test_what_an_lru_keeps_is_twice_the_formula_and_counts():
    c = config("lru")
    assert sum(state(c).values()) == 2 * sum(buffer(c).values())
    assert measure(c).needs()[1] == 4 * sum(state(c).values())


def test_the_papers_largest_model_fits_its_chip_and_the_smallest_chips_only_take_small_ones():
    image, listops = (measure(find_subject(f"{task}/mgrade").config) for task in ("image", "listops"))
    assert image.fits(find_chip("STM32N6"))
    assert not image.fits(find_chip("Versal AI Edge Gen 2"))
    assert not image.fits(find_chip("STM32F446"))
    assert listops.fits(find_chip("STM32F446"))


def test_chips_are_found_by_name_or_family_and_refused_with_the_nearest():
    assert len({chip.name for chip in CHIPS}) == len(CHIPS)
    assert all(find_chip(chip.name.upper()) is chip and chip.source and chip.ram > 0 for chip in CHIPS)
    assert find_chip("stm32-n6").name == "STM32N657"
    with pytest.raises(ValueError, match="there is no chip 'STM32H747'; did you mean 'STM32H743'"):
        find_chip("STM32H747")
    with pytest.raises(ValueError, match="did you mean 'STM32F446' or 'STM32F407'"):
        find_chip("STM32F4")
    with pytest.raises(ValueError, match=r"there is no chip 'ESP32'; did you mean 'ESP32-S3'\? There are: .*RP2040"):
        find_chip("ESP32")
    with pytest.raises(ValueError, match="there is no chip ''"):
        find_chip("")


def test_subjects_are_recipes_saved_models_and_runs(tmp_path, monkeypatch):
    c = config()
    Model(c).save(tmp_path / "run" / "model")
    assert find_subject("listops/mgrade").experiment == "listops"
    assert find_subject(str(tmp_path / "run" / "model")).config == c
    assert find_subject(str(tmp_path / "run")).config == c
    monkeypatch.chdir(tmp_path)
    (tmp_path / "listops" / "mgrade").mkdir(parents=True)  # a folder in the way of a recipe's name
    assert find_subject("listops/mgrade").experiment == "listops"


def test_other_subjects_are_refused(tmp_path):
    (tmp_path / "model.c").write_text("int main;")
    with pytest.raises(ValueError, match=r"is a file, and no recipe"):
        find_subject(str(tmp_path / "model.c"))
    with pytest.raises(ValueError, match=r"neither a saved model \(config.json\), a finished run"):
        find_subject(str(tmp_path))
    (tmp_path / "config.json").write_text('{"format": "other"}')
    with pytest.raises(ValueError, match="format must be 'mgrade-model'"):
        find_subject(str(tmp_path))
    with pytest.raises(ValueError, match="did you mean 'listops/mgrade'"):
        find_subject("listops/mgrad")
