"""Model folders: found here or on a hub, saved with a card, uploaded. The hub's side is all huggingface_hub's."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from mgrade._files import replace
from mgrade.hub.card import model_card
from mgrade.nn import Model, ModelConfig
from mgrade.train.result import read_result, result_path
from mgrade.train.seeds import open_run

CONFIG, CARD, WEIGHTS = "config.json", "README.md", "model-*.safetensors"
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def locate(name: str | Path, **how: Any) -> Path:
    """The folder of a model: one here, a finished run's, or the local copy of a hub's; `how` is for the hub.

    Of a hub's files only the configuration and safetensors are fetched.
    """
    for folder in (Path(name), Path(name) / "model"):
        if (folder / CONFIG).is_file():
            return folder
    if Path(name).is_dir():
        raise ValueError(_not_a_model(Path(name)))
    hub = _library(f"{name} is no folder here; to fetch it from a hub")
    try:
        folder = Path(hub.snapshot_download(str(name), allow_patterns=[CONFIG, WEIGHTS], **how))
    except hub.errors.HFValidationError:
        raise ValueError(f"{name} is neither a folder nor the id of a model on a hub, as user/name") from None
    if not (folder / CONFIG).is_file():
        raise ValueError(f"{name} on the hub is no model of mgrade's: it has no {CONFIG}")
    return folder


def save(model: Model, folder: Path, name: str, result: str | Path | None = None, license: str = "mit") -> None:
    """Writes model and card. Without a result to tell of, a README.md that is there is left as it is."""
    evidence = None if result is None else read_evidence(Path(result), model.config)
    model.save(folder)
    if evidence is not None or not (folder / CARD).exists():
        replace(folder / CARD, model_card(model, name, evidence, license).encode())


def push(
    model: Model,
    repo_id: str,
    *,
    result: str | Path | None,
    license: str,
    private: bool | None,
    token: str | bool | None,
    branch: str | None,
    delete_patterns: list[str] | str | None,
    **how: Any,
) -> str:
    """Uploads model and card in one commit, and returns its address; the weights of earlier ones go."""
    hub = _library(f"to push {repo_id} to a hub")
    if delete_patterns is None:
        delete_patterns = WEIGHTS
    with tempfile.TemporaryDirectory() as folder:
        save(model, Path(folder), repo_id, result, license)
        api = hub.HfApi(token=token)
        repo_id = api.create_repo(repo_id=repo_id, private=private, exist_ok=True).repo_id
        commit = api.upload_folder(
            repo_id=repo_id,
            repo_type="model",
            folder_path=folder,
            revision=branch,
            delete_patterns=delete_patterns,
            **how,
        )
    return str(commit)


def read_evidence(path: Path, config: ModelConfig) -> dict[str, Any]:
    """The result that a file, or the folder of a finished run, has for a model of this configuration."""
    if path.is_dir():
        recipe, seed, _ = open_run(path)
        path = result_path(path.absolute().parents[3], recipe, seed)
    found = read_result(path)
    if found is None:
        raise ValueError(f"{path}: there is no such result file")
    for field in ("experiment", "model", "seed", "metrics", "minutes"):
        if field not in found:
            raise ValueError(f"{path}: is not a result file: {field} is missing")
    try:
        theirs, ours = ModelConfig.from_dict(found["recipe"]["model"]).to_dict(), config.to_dict()
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: is not a result file: recipe: {error}") from None
    for field, value in ours.items():
        if theirs[field] != value:
            raise ValueError(f"{path} is of another model: {field} is {theirs[field]!r} there and {value!r} here")
    return found


def _not_a_model(folder: Path) -> str:
    pickled = sorted(path.name for pattern in PICKLED for path in folder.glob(pattern))
    if pickled:
        return f"{folder / pickled[0]}: pickled weights are never read: save the model as {CONFIG} and safetensors"
    return f"{folder} is neither a saved model ({CONFIG}) nor a finished run (model/{CONFIG})"


def _library(purpose: str) -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "huggingface_hub":
            raise
        raise ImportError(f"{purpose}: pip install 'mgrade[hub]'") from None
    return huggingface_hub
