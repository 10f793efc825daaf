"""`from_pretrained`, `save_pretrained`, `push_to_hub`: round trips, what is uploaded, and what is refused."""

import inspect
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mgrade import Model, ModelConfig
from mgrade.train import launch
from small import small

CONFIG = ModelConfig(inputs=2, outputs=3, dim=4, depth=1, taps=2, max_delay=4, dropout=0.1)
hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")


@pytest.fixture
def model():
    return Model(CONFIG)


@pytest.fixture
def absent(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "huggingface_hub"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)


def same(one, other):
    ours, theirs = one.state_dict(), other.state_dict()
    return one.config == other.config and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    root = tmp_path_factory.mktemp("trained")
    launch(small(), seeds=[0], root=root)
    return root / "runs" / "flipflop" / "mgrade" / "seed0", root / "results" / "flipflop" / "mgrade" / "seed0.json"


def test_a_folder_comes_back_ready_for_use(model, tmp_path):
    assert model.save_pretrained(tmp_path / "small") is None
    again = Model.from_pretrained(tmp_path / "small")
    assert same(model, again)
    assert not again.training
    assert "# small" in (tmp_path / "small" / "README.md").read_text()


@pytest.mark.usefixtures("absent")
def test_folders_need_no_library(model, tmp_path):
    model.save_pretrained(tmp_path / "small")
    assert same(model, Model.from_pretrained(str(tmp_path / "small")))


@pytest.mark.usefixtures("absent")
def test_a_hub_needs_the_library(model):
    with pytest.raises(ImportError, match=r"^someone/small is no folder here.*pip install 'mgrade\[hub\]'$"):
        Model.from_pretrained("someone/small")
    with pytest.raises(ImportError, match=r"^to push someone/small.*pip install 'mgrade\[hub\]'$"):
        model.push_to_hub("someone/small")


@pytest.mark.parametrize("which", [0, 1], ids=["run", "file"])
def test_a_finished_run_brings_its_figures(finished, which, tmp_path):
    model = Model.from_pretrained(finished[0])
    model.save_pretrained(tmp_path, result=finished[which])
    card = hub.ModelCard.load(tmp_path / "README.md")
    assert {one.metric_name for one in card.data.eval_results} == {"test_accuracy", "validation_accuracy"}
    assert same(model, Model.from_pretrained(tmp_path))


def test_figures_of_another_model_are_refused(model, finished, tmp_path):
    with pytest.raises(ValueError, match=r"seed0.json is of another model: inputs is 5 there and 2 here$"):
        model.save_pretrained(tmp_path, result=finished[1])
    with pytest.raises(ValueError, match=r"none.json: there is no such result file$"):
        model.save_pretrained(tmp_path, result=tmp_path / "none.json")
    (tmp_path / "half.json").write_text('{"recipe": {}}')
    with pytest.raises(ValueError, match=r"half.json: is not a result file: experiment is missing$"):
        model.save_pretrained(tmp_path, result=tmp_path / "half.json")
    kept = {"experiment": "a", "model": "b", "seed": 0, "metrics": {}, "minutes": 1, "recipe": {"model": {"dmi": 4}}}
    (tmp_path / "odd.json").write_text(json.dumps(kept))
    with pytest.raises(ValueError, match=r"odd.json: is not a result file: recipe: model has no field 'dmi'"):
        model.save_pretrained(tmp_path, result=tmp_path / "odd.json")
    assert not (tmp_path / "config.json").exists()


def test_a_card_of_ones_own_stays(finished, tmp_path):
    model = Model.from_pretrained(finished[0])
    (tmp_path / "README.md").write_text("mine")
    model.save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"
    model.save_pretrained(tmp_path, result=finished[0])
    assert "test_accuracy" in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "weights.pt"])
def test_pickled_weights_are_refused_by_name(name, tmp_path):
    (tmp_path / name).write_bytes(b"\x80\x04.")
    with pytest.raises(ValueError, match=f"{name}: pickled weights are never read"):
        Model.from_pretrained(tmp_path)


def test_other_folders_and_names_are_refused(tmp_path):
    with pytest.raises(ValueError, match="is neither a saved model"):
        Model.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="is neither a folder nor the id of a model on a hub"):
        Model.from_pretrained("no/such/folder")


def cached(model, cache, revision):
    """A hub's model as huggingface_hub keeps it on this machine."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = cache / "models--someone--small"
    model.save_pretrained(repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / revision).write_text(commit)


def test_a_hubs_model_comes_from_its_cache(model, tmp_path):
    cached(model, tmp_path, "v2")
    options = {"cache_dir": tmp_path, "local_files_only": True}
    assert same(model, Model.from_pretrained("someone/small", revision="v2", **options))
    with pytest.raises(hub.errors.LocalEntryNotFoundError):
        Model.from_pretrained("someone/small", revision="v3", **options)


def test_options_are_passed_on_and_only_safe_files_asked_for(model, tmp_path, monkeypatch):
    model.save(tmp_path)
    asked = {}
    monkeypatch.setattr(hub, "snapshot_download", lambda name, **how: asked.update(how, name=name) or str(tmp_path))
    options = {"revision": "v1", "cache_dir": "there", "token": "t", "local_files_only": True, "force_download": True}
    assert same(model, Model.from_pretrained("someone/small", **options))
    assert asked == {**options, "name": "someone/small", "allow_patterns": ["config.json", "model-*.safetensors"]}


class FakeApi:
    """Keeps what would have been sent."""

    def __init__(self, token):
        self.sent.update(token=token)

    def create_repo(self, **options):
        self.sent.update(created=options)
        return SimpleNamespace(repo_id=f"someone/{options['repo_id']}")

    def upload_folder(self, *, folder_path, **options):
        files = {path.name: path.read_bytes() for path in Path(folder_path).iterdir()}
        self.sent.update(files=files, uploaded=options)
        return "https://hub.example/someone/small/commit/1"


@pytest.fixture
def sent(monkeypatch):
    FakeApi.sent = {}
    monkeypatch.setattr(hub, "HfApi", FakeApi)
    return FakeApi.sent


def test_what_is_pushed_is_the_model_and_its_card(finished, sent, tmp_path):
    model = Model.from_pretrained(finished[0])
    address = model.push_to_hub("small", result=finished[0], token="secret", private=True, branch="v2", create_pr=True)
    assert address == "https://hub.example/someone/small/commit/1"
    assert sent["token"] == "secret"
    assert sent["created"] == {"repo_id": "small", "private": True, "exist_ok": True}
    told = sent["uploaded"]
    assert (told["repo_id"], told["repo_type"], told["revision"]) == ("someone/small", "model", "v2")
    assert told["create_pr"] is True
    assert told["delete_patterns"] == "model-*.safetensors"  # of earlier commits
    names = sorted(sent["files"])
    assert names[:2] == ["README.md", "config.json"]
    assert len(names) == 3
    for name, data in sent["files"].items():
        (tmp_path / name).write_bytes(data)
    assert same(model, Model.from_pretrained(tmp_path))
    assert "test_accuracy" in hub.ModelCard.load(tmp_path / "README.md").content


def test_saving_can_push(model, sent, tmp_path):
    assert model.save_pretrained(tmp_path / "tiny", push_to_hub=True, commit_message="First.")
    assert sent["created"]["repo_id"] == "tiny"
    assert sent["uploaded"]["commit_message"] == "First."


@pytest.mark.parametrize("method", ["from_pretrained", "save_pretrained", "push_to_hub"])
def test_signatures_are_those_of_the_librarys_mixin(method):
    """But for what the mixin would write into its own config.json and card, and its keywords for constructors."""
    ours = inspect.signature(getattr(Model, method)).parameters
    theirs = inspect.signature(getattr(hub.ModelHubMixin, method)).parameters
    for name, parameter in theirs.items():
        if name in ("self", "cls", "config", "model_card_kwargs", "model_kwargs"):
            continue
        assert ours[name].kind == parameter.kind, name
        assert name == "commit_message" or ours[name].default == parameter.default, name
