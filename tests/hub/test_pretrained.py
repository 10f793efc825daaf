"""`from_pretrained`, `save_pretrained`, `push_to_hub`: round trips, what is uploaded, and what is refused."""

import inspect
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mgrade import Model, ModelConfig
from mgrade.hub import push
from mgrade.nn.storage import WEIGHTS
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
    assert not (tmp_path / "config.json").exists()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("metrics", None, "metrics must be an object, got None"),
        ("metrics", [0.5], "metrics must be an object, got [0.5]"),
        ("metrics.test_accuracy", None, "metrics.test_accuracy must be a number, got None"),
        ("metrics.test_accuracy", True, "metrics.test_accuracy must be a number, got True"),
        ("metrics.test_accuracy", 10**400, "metrics.test_accuracy must fit a float, got 1000"),
        ("metrics.two\nlines", "high", "metrics.two\\nlines must be a number, got 'high'"),
        ("minutes", float("nan"), "minutes must be a finite number of at least 0, got nan"),
        ("minutes", "long", "minutes must be a number, got 'long'"),
        ("seed", "0", "seed must be a whole number, got '0'"),
        ("experiment", 3, "experiment must be text, got 3"),
        ("hardware", ["a GPU"], "hardware must be an object, got ['a GPU']"),
        ("versions", ["0.1"], "versions must be an object, got ['0.1']"),
        ("recipe", [], "recipe must be an object, got []"),
        ("recipe.task", None, "recipe.task must be an object, got None"),
        ("recipe.task", {}, "recipe.task.name is missing"),
        ("recipe.train", [], "recipe.train must be an object, got []"),
        ("recipe.model", {"dmi": 4}, "model has no field 'dmi'"),
    ],
)
def test_what_a_card_cannot_be_written_from_is_named_before_anything_is_saved(
    finished, tmp_path, field, value, message
):
    document = json.loads(finished[1].read_text())
    *tables, last = field.split(".")
    table = document
    for name in tables:
        table = table[name]
    table[last] = value
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match="is not a result file") as refusal:
        Model.from_pretrained(finished[0]).save_pretrained(tmp_path / "saved", result=path)
    assert str(refusal.value).startswith(f"{path}: is not a result file: {message}")
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "saved").exists()


def test_a_result_without_a_task_is_refused(finished, tmp_path):
    document = json.loads(finished[1].read_text())
    del document["recipe"]["task"]
    (tmp_path / "odd.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"odd.json: is not a result file: recipe.task is missing$"):
        Model.from_pretrained(finished[0]).save_pretrained(tmp_path / "saved", result=tmp_path / "odd.json")
    assert not (tmp_path / "saved").exists()


@pytest.mark.parametrize("place", ["moved", "a/b/c/moved"])
def test_of_a_run_that_was_moved_the_result_file_is_asked_for(finished, tmp_path, monkeypatch, place):
    shutil.copytree(finished[0], tmp_path / place)
    model = Model.from_pretrained(tmp_path / place)
    asked = r"moved is no longer where its run was: give its result file instead, results/flipflop/mgrade/seed0.json$"
    for folder in (tmp_path / place, Path(place)):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ValueError, match=asked):
            model.save_pretrained(tmp_path / "saved", result=folder)
    model.save_pretrained(tmp_path / "saved", result=finished[1])


def test_a_run_is_found_from_inside(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(finished[0] / "model")
    Model.from_pretrained("..").save_pretrained(tmp_path, result="..")
    assert "test_accuracy" in (tmp_path / "README.md").read_text()


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
    with pytest.raises(ValueError, match=r"^small: there is no such folder, and models on a hub are user/name$"):
        Model.from_pretrained("small", **options)


def test_options_are_passed_on_and_only_safe_files_asked_for(model, tmp_path, monkeypatch):
    model.save(tmp_path)
    asked = {}
    monkeypatch.setattr(hub, "snapshot_download", lambda name, **how: asked.update(how, name=name) or str(tmp_path))
    options = {"revision": "v1", "cache_dir": "there", "token": "t", "local_files_only": True, "force_download": True}
    assert same(model, Model.from_pretrained("someone/small", **options))
    assert asked == {**options, "name": "someone/small", "allow_patterns": ["config.json", WEIGHTS]}


def test_only_our_own_weights_are_fetched_and_deleted(model, finished, sent, tmp_path, monkeypatch):
    """Of a repository that has another library's model as well, its shards are left alone."""
    model.save(tmp_path)
    (ours,) = (path.name for path in tmp_path.glob("*.safetensors"))
    foreign = ["model-00001-of-00002.safetensors", "model.safetensors", "model-0123456789abcdef-fp16.safetensors"]
    asked = {}
    monkeypatch.setattr(hub, "snapshot_download", lambda name, **how: asked.update(how) or str(tmp_path))
    Model.from_pretrained("someone/small")
    model.push_to_hub("small")
    for patterns, expected in (
        (asked["allow_patterns"], ["config.json", ours]),
        (sent["uploaded"]["delete_patterns"], [ours]),
    ):
        found = hub.utils.filter_repo_objects(["config.json", ours, *foreign], allow_patterns=patterns)
        assert list(found) == expected


class FakeApi:
    """Keeps what would have been sent."""

    def __init__(self, token):
        self.sent.update(token=token)

    def create_repo(self, **options):
        self.sent.update(created=options)
        return SimpleNamespace(repo_id=f"someone/{options['repo_id']}")

    def file_exists(self, *, repo_id, filename, repo_type, revision):
        assert (repo_id, repo_type) == ("someone/small", "model")
        return (filename, revision) in self.there

    def upload_folder(self, *, folder_path, **options):
        files = {path.name: path.read_bytes() for path in Path(folder_path).iterdir()}
        self.sent.update(files=files, uploaded=options)
        return "https://hub.example/someone/small/commit/1"


@pytest.fixture
def sent(monkeypatch):
    FakeApi.sent, FakeApi.there = {}, []
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
    assert told["delete_patterns"] == WEIGHTS  # of earlier commits
    names = sorted(sent["files"])
    assert names[:2] == ["README.md", "config.json"]
    assert len(names) == 3
    for name, data in sent["files"].items():
        (tmp_path / name).write_bytes(data)
    assert same(model, Model.from_pretrained(tmp_path))
    assert "test_accuracy" in hub.ModelCard.load(tmp_path / "README.md").content


def test_saving_can_push(model, sent, tmp_path):
    assert model.save_pretrained(tmp_path / "small", push_to_hub=True, commit_message="First.")
    assert sent["created"]["repo_id"] == "small"
    assert sent["uploaded"]["commit_message"] == "First."
    assert sent["files"]["README.md"].startswith(b"---\n")


@pytest.mark.parametrize("branch", [None, "v2"])
def test_a_card_that_the_repository_has_is_replaced_by_figures_alone(finished, sent, branch):
    model = Model.from_pretrained(finished[0])
    FakeApi.there = [("README.md", branch)]
    model.push_to_hub("small", branch=branch)
    assert len(sent["files"]) == 2
    assert "README.md" not in sent["files"]
    model.push_to_hub("small", branch="another")
    assert "README.md" in sent["files"]
    model.push_to_hub("small", branch=branch, result=finished[0])
    assert b"test_accuracy" in sent["files"]["README.md"]


def test_saving_and_pushing_takes_the_card_of_the_folder(finished, sent, tmp_path):
    model = Model.from_pretrained(finished[0])
    FakeApi.there = [("README.md", None)]
    folder = tmp_path / "small"
    for _ in range(2):  # the second time, our own card lies there already
        model.save_pretrained(folder, push_to_hub=True)
        assert "README.md" not in sent["files"]
    (folder / "README.md").write_text("mine")
    model.save_pretrained(folder, push_to_hub=True)
    assert sent["files"]["README.md"] == b"mine"


def pushed(model, sent, card, result=None):
    """The card that goes up where a folder has one."""
    how = {"license": "mit", "private": None, "token": None, "branch": None, "delete_patterns": None}
    push(model, "small", result=result, card=card, **how)
    return sent["files"].get("README.md")


def test_a_card_of_ones_own_goes_up_unless_there_are_figures(finished, sent, tmp_path):
    model = Model.from_pretrained(finished[0])
    card = tmp_path / "README.md"
    FakeApi.there = [("README.md", None)]
    with pytest.raises(ValueError, match=r"README.md: cannot be read: No such file"):
        pushed(model, sent, card)
    assert sent == {}  # not even a repository was made
    model.save_pretrained(tmp_path, repo_id="small")
    assert pushed(model, sent, card) is None  # there is ours, which claims nothing
    card.write_text("mine")
    assert pushed(model, sent, card) == b"mine"
    assert b"test_accuracy" in pushed(model, sent, card, finished[0])
    assert card.read_text() == "mine"


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


def test_figures_of_a_model_with_other_weights_are_refused(finished, tmp_path):
    model = Model.from_pretrained(finished[0])
    with torch.no_grad():
        model.layers[0].conv.weight.mul_(2)
    with pytest.raises(ValueError, match=r"seed0.json is of another model: its delays have other positions"):
        model.save_pretrained(tmp_path / "x", result=finished[0])
    assert not (tmp_path / "x").exists()
