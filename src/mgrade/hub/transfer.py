"""Model folders: located here or on a hub, saved with a card, uploaded by huggingface_hub."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from mgrade._files import replace
from mgrade.hub.card import model_card
from mgrade.hub.evidence import read_evidence
from mgrade.nn import Model
from mgrade.nn.storage import DESCRIPTION, WEIGHTS

CARD = "README.md"
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def locate(name: str | Path, **how: Any) -> Path:
    """The folder of a model: a local one, a finished run's, or the local copy of a hub's, fetched with options `how`.

    Only the configuration and safetensors are fetched.
    """
    for folder in (Path(name), Path(name) / "model"):
        if (folder / DESCRIPTION).is_file():
            return folder
    if Path(name).is_dir():
        raise ValueError(_not_a_model(Path(name)))
    if "/" not in str(name):
        raise ValueError(f"{name}: there is no such folder, and models on a hub are user/name")
    hub = _library(f"{name} is no folder here; to fetch it from a hub")
    try:
        folder = Path(hub.snapshot_download(str(name), allow_patterns=[DESCRIPTION, WEIGHTS], **how))
    except hub.errors.HFValidationError:
        raise ValueError(f"{name} is neither a folder nor the id of a model on a hub, as user/name") from None
    if not (folder / DESCRIPTION).is_file():
        raise ValueError(f"{name} on the hub is no model of mgrade's: it has no {DESCRIPTION}")
    return folder


def save(model: Model, folder: Path, name: str, result: str | Path | None = None, license: str = "mit") -> None:
    """Writes model and card. Without a result, an existing README.md is kept."""
    evidence = None if result is None else read_evidence(Path(result), model)
    card = model_card(model, name, evidence, license).encode(errors="backslashreplace")
    model.save(folder)
    if evidence is not None or not (folder / CARD).exists():
        replace(folder / CARD, card)


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
    card: str | Path | None = None,
    **how: Any,
) -> str:
    """Uploads model and card in one commit, deletes earlier weights, and returns the commit's address.

    Without a result, the card is the file `card`, if it was written by hand. A generated card without figures never
    replaces another: neither `card` nor the repository's.
    """
    hub = _library(f"to push {repo_id} to a hub")
    if delete_patterns is None:
        delete_patterns = WEIGHTS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save(model, folder, repo_id, result, license)
        own = result is not None or _take(card, folder / CARD)
        api = hub.HfApi(token=token)
        repo_id = api.create_repo(repo_id=repo_id, private=private, exist_ok=True).repo_id
        where = {"repo_id": repo_id, "repo_type": "model", "revision": branch}
        if not own and api.file_exists(filename=CARD, **where):
            (folder / CARD).unlink()
        commit = api.upload_folder(folder_path=name, delete_patterns=delete_patterns, **where, **how)
    return str(commit)


def _take(card: str | Path | None, ours: Path) -> bool:
    """Replaces the generated card by `card` if that was written by hand, not by us; returns whether it was."""
    if card is None:
        return False
    try:
        own = Path(card).read_bytes()
    except OSError as error:
        raise ValueError(f"{card}: cannot be read: {error.strerror}") from None
    if own == ours.read_bytes():
        return False
    replace(ours, own)
    return True


def _not_a_model(folder: Path) -> str:
    pickled = sorted(path.name for pattern in PICKLED for path in folder.glob(pattern))
    if pickled:
        return f"{folder / pickled[0]}: pickled weights are never read: save the model as {DESCRIPTION} and safetensors"
    return f"{folder} is neither a saved model ({DESCRIPTION}) nor a finished run (model/{DESCRIPTION})"


def _library(purpose: str) -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "huggingface_hub":
            raise
        raise ImportError(f"{purpose}: pip install 'mgrade[hub]'") from None
    return huggingface_hub
