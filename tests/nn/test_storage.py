"""A saved model comes back bit for bit, or not at all."""

import hashlib
import json
import os
import re

import pytest
import safetensors.torch
import torch

from helpers import PRESETS, assert_refused, model_of, random_input, small
from mgrade import Model, ModelConfig, load


@pytest.fixture
def saved(tmp_path):
    """A folder with a saved model, and the model."""
    model = model_of(small("mgrade"), torch.float32)
    model.save(tmp_path / "model")
    return tmp_path / "model", model


def weights_of(folder):
    (path,) = folder.glob("*.safetensors")
    return path


def same(one, other):
    return one.config == other.config and all(
        a.dtype == b.dtype and torch.equal(a, b)
        for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    )


def assert_not_loaded(folder, match, file="config.json"):
    """One line that begins with the path of the file that is wrong."""
    assert_refused(f"^{re.escape(str(folder / file))}: .*{match}", load, folder)


def edit(folder, **changes):
    description = json.loads((folder / "config.json").read_text())
    description.update(changes)
    (folder / "config.json").write_text(json.dumps(description))
    return description


def replace_tensors(folder, change):
    """Other weights, with a matching checksum."""
    path = weights_of(folder)
    tensors = safetensors.torch.load_file(path)
    change(tensors)
    path.write_bytes(data := safetensors.torch.save(tensors))
    edit(folder, sha256=hashlib.sha256(data).hexdigest())
    return path.name


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_saved_model_comes_back_bit_for_bit(tmp_path, preset, dtype):
    model = model_of(small(preset, readout="mean", position_init="random"), dtype)
    model.save(tmp_path / "deep" / "folder")
    loaded = load(tmp_path / "deep" / "folder")
    assert same(loaded, model)
    if dtype != torch.bfloat16:
        x = random_input(model.config, 2, 9, dtype)
        assert torch.equal(loaded(x)[0], model(x)[0])


def test_a_saved_model_is_json_and_one_safetensors_file(saved):
    folder, model = saved
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".safetensors"]
    assert set(safetensors.torch.load_file(weights_of(folder))) == set(model.state_dict())
    assert json.loads((folder / "config.json").read_text())["model"] == model.config.to_dict()


def test_a_path_may_be_a_string(saved):
    folder, model = saved
    assert same(load(str(folder)), model)


@pytest.mark.parametrize("fields", [{}, {"dim": 7}])
def test_saving_again_replaces_what_was_there(saved, fields):
    folder, _ = saved
    other = model_of(small("mgrade", **fields), torch.float32)
    other.save(folder)
    assert len(list(folder.iterdir())) == 2
    assert same(load(folder), other)


@pytest.mark.parametrize("call", [1, 2])
def test_a_crash_while_saving_leaves_the_old_model(saved, monkeypatch, call):
    folder, model = saved
    calls, replace = [], os.replace

    def crash(source, target):
        calls.append(target)
        if len(calls) == call:
            raise OSError("the disk is full")
        replace(source, target)

    other = model_of(small("mgrade"), torch.float32)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crash)
        with pytest.raises(OSError, match="the disk is full"):
            other.save(folder)
    assert len(calls) == call
    assert same(load(folder), model)
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".") or "tmp" in path.name]
    other.save(folder)
    assert same(load(folder), other)
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_truncated_weights_are_refused(saved, share):
    folder, _ = saved
    path = weights_of(folder)
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    assert_not_loaded(folder, "sha256 does not match config.json: the file is truncated or was altered", path.name)


@pytest.mark.parametrize("where", [0, 20, -1])
def test_a_flipped_byte_is_refused(saved, where):
    folder, _ = saved
    path = weights_of(folder)
    data = bytearray(path.read_bytes())
    data[where] ^= 1
    path.write_bytes(data)
    assert_not_loaded(folder, "sha256 does not match", path.name)


def test_weights_that_are_no_safetensors_are_refused(saved):
    folder, _ = saved
    path = weights_of(folder)
    path.write_bytes(b"not safetensors")
    edit(folder, sha256=hashlib.sha256(b"not safetensors").hexdigest())
    assert_not_loaded(folder, "is not a safetensors file", path.name)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1, 2", "\x00", '{"format": "mgrade-model", "version": 1', pytest.param("[" * 100_000, id="deep")],
)
def test_a_description_that_is_no_json_is_refused(saved, text):
    folder, _ = saved
    (folder / "config.json").write_text(text)
    assert_not_loaded(folder, "is not JSON")


def test_a_description_that_is_no_text_is_refused(saved):
    folder, _ = saved
    (folder / "config.json").write_bytes(b"\xff\xfe{}")
    assert_not_loaded(folder, "is not JSON")


@pytest.mark.parametrize("text", ["[]", "3", "null", "{}", '{"format": "other"}'])
def test_a_description_of_something_else_is_refused(saved, text):
    folder, _ = saved
    (folder / "config.json").write_text(text)
    assert_not_loaded(folder, "format must be 'mgrade-model'")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"format": "onnx"}, "format must be 'mgrade-model'"),
        ({"version": 2}, "version must be 1, got 2"),
        ({"version": None}, "version must be 1, got None"),
        ({"weights": None}, "weights is missing or not a str"),
        ({"sha256": 3}, "sha256 is missing or not a str"),
        ({"model": []}, "model is missing or not a dict"),
        ({"weights": "../x"}, re.escape("weights must be a file name, got '../x'")),
        ({"weights": "/etc/passwd"}, "weights must be a file name"),
        ({"weights": "a/b.safetensors"}, "weights must be a file name"),
        ({"weights": "a\0b"}, "weights must be a file name"),
        ({"model": {"inputs": 3}}, "model needs the field 'outputs'"),
        ({"model": {"inputs": 3, "outputs": 4, "dimm": 6}}, "model has no field 'dimm'; did you mean 'dim'"),
        ({"model": {"inputs": 3, "outputs": 4, "dim": -6}}, "dim must be a whole number"),
        ({"model": {"inputs": 3, "outputs": 4, "ring": 0.5}}, "ring must be"),
        ({"model": {"inputs": 3, "outputs": 4, "dim": 10**10}}, "dim must be at most 1048576, got 10000000000"),
        ({"model": {"inputs": 3, "outputs": 4, "sigma": 10**400}}, "sigma must be a number above 0"),
    ],
)
def test_an_edited_description_is_refused(saved, changes, match):
    folder, _ = saved
    edit(folder, **changes)
    assert_not_loaded(folder, match)


@pytest.mark.parametrize("changed", [{"sigma": 0.5}, {"norm": "pre"}, {"skips": []}, {"readout": "sum"}])
def test_a_description_of_another_model_with_as_many_weights_is_refused(saved, changed):
    folder, _ = saved
    fields = json.loads((folder / "config.json").read_text())["model"]
    edit(folder, model={**fields, **changed})
    assert_not_loaded(folder, "model does not match model_sha256: it was altered")


def test_a_description_of_an_earlier_version_has_no_digest_and_delays_are_checked_all_the_same(saved):
    folder, _ = saved
    path = folder / "config.json"
    facts = json.loads(path.read_text())
    del facts["model_sha256"]
    path.write_text(json.dumps(facts))
    load(folder)
    edit(folder, model={**facts["model"], "max_delay": 2})
    with pytest.raises(ValueError, match=r"conv\.position' must lie within 0 and max_delay - 1 = 1, got "):
        load(folder)


@pytest.mark.parametrize("name", ["x.safetensors", ".."])
def test_weights_that_are_not_there_are_refused(saved, name):
    folder, _ = saved
    edit(folder, weights=name)
    with pytest.raises(ValueError, match=rf"^{re.escape(str(folder / name))}: cannot be read: "):
        load(folder)


def test_a_model_that_is_not_there_is_refused(tmp_path):
    assert_not_loaded(tmp_path, "cannot be read: No such file or directory")
    assert_not_loaded(tmp_path / "nowhere", "cannot be read: No such file or directory")


def test_missing_extra_and_misshapen_tensors_are_refused(saved):
    folder, _ = saved
    name = replace_tensors(folder, lambda tensors: tensors.pop("encoder.bias"))
    assert_not_loaded(folder, "tensor 'encoder.bias' is missing", name)
    replace_tensors(folder, lambda tensors: tensors.update({"encoder.bias": torch.zeros(6), "extra": torch.zeros(1)}))
    assert_not_loaded(folder, "tensor 'extra' is not part of the model", name)
    replace_tensors(folder, lambda tensors: tensors.pop("extra"))
    assert isinstance(load(folder), Model)
    replace_tensors(folder, lambda tensors: tensors.update({"encoder.bias": torch.zeros(7)}))
    assert_not_loaded(folder, re.escape("tensor 'encoder.bias' must have shape (6,), got (7,)"), name)


def test_a_description_of_another_size_than_the_weights_is_refused(saved):
    folder, model = saved
    edit(folder, model={**model.config.to_dict(), "dim": 7})
    assert_not_loaded(folder, r"tensor '[\w.]+' must have shape", weights_of(folder).name)


def test_weights_that_are_no_real_numbers_are_refused(saved):
    folder, _ = saved
    name = replace_tensors(
        folder, lambda tensors: tensors.update({key: tensor.to(torch.int8) for key, tensor in tensors.items()})
    )
    assert_not_loaded(folder, "tensor .* must be", name)


def test_weights_of_several_dtypes_come_back_as_they_were(tmp_path):
    model = model_of(small("mgrade"), torch.float32)
    model.readout.to(torch.float64)
    model.save(tmp_path)
    assert same(load(tmp_path), model)


@pytest.mark.parametrize("field", ["dim", "depth", "taps", "inputs"])
def test_a_description_that_asks_for_all_memory_is_refused_without_it(saved, field):
    folder, model = saved
    edit(folder, model={**model.config.to_dict(), field: 10**9})
    with pytest.raises(ValueError, match=r"must have|must be"):
        load(folder)


def test_the_model_of_another_library_is_left_alone(tmp_path):
    theirs = {"config.json": b'{"architectures": ["Other"]}', "model-00001-of-00002.safetensors": b"weights"}
    for name, content in theirs.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(
        ValueError, match=r"has the file config\.json, which is not a saved model's: choose another folder"
    ):
        model_of(small("mgrade"), torch.float32).save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == theirs
    (tmp_path / "config.json").unlink()
    for _ in range(2):
        model_of(small("mgrade"), torch.float32).save(tmp_path)
    assert (tmp_path / "model-00001-of-00002.safetensors").read_bytes() == b"weights"
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    ("place", "message"),
    [("file", "must be a folder, is a file"), ("file/model", "cannot be created: Not a directory")],
)
def test_a_file_in_the_place_of_a_folder_is_named(tmp_path, place, message):
    (tmp_path / "file").touch()
    match = f"^{re.escape(str(tmp_path / place))}: {message}$"
    assert_refused(match, model_of(small("mgrade"), torch.float32).save, tmp_path / place)


def test_weights_that_are_not_finite_are_refused_by_name(tmp_path, monkeypatch):
    model, folder = model_of(small("mgrade")), tmp_path / "model"
    model.save(folder)
    with torch.no_grad():
        model.layers[0].conv.weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"model: tensor 'layers\.0\.conv\.weight' must be finite numbers$"):
        model.save(folder)
    assert load(folder).layers[0].conv.weight.isfinite().all()  # what was there before
    with monkeypatch.context() as unchecked:
        unchecked.setattr("mgrade.nn.storage.check_tensors", lambda *_: None)
        model.save(folder)
    with pytest.raises(ValueError, match=r"\.safetensors: tensor 'layers\.0\.conv\.weight' must be finite numbers$"):
        load(tmp_path / "model")


def test_shared_weights_are_saved_wherever_they_are_used(tmp_path):
    model = Model(ModelConfig(inputs=3, outputs=4, dim=6, depth=2, taps=2, max_delay=4))
    model.layers[1].mlp = model.layers[0].mlp
    model.save(tmp_path / "shared")
    x = torch.randn(2, 5, 3)
    assert torch.equal(load(tmp_path / "shared")(x)[0], model(x)[0])


def test_the_width_of_taps_is_saved_as_it_is(tmp_path):
    model = model_of(small("mgrade", depth=2))
    x = random_input(model.config, 2, 9)
    for layer in model.layers:
        layer.conv.snap_()
        layer.conv.sigma = 0.1
    model.save(tmp_path)
    again = load(tmp_path)
    assert again.config.sigma == 0.1
    assert torch.equal(again(x)[0], model(x)[0])
    model.layers[0].conv.sigma = 0.2
    with pytest.raises(ValueError, match=r"^sigma must be the same in all layers to be saved, got 0\.1, 0\.2$"):
        model.save(tmp_path)
