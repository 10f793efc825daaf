"""What a user may pass over is an error in tests: a compiler's warning about generated C."""

import pytest

from mgrade.deploy.c import host
from mgrade.deploy.chip import build as chip
from mgrade.deploy.wasm import build as wasm


@pytest.fixture(autouse=True)
def _warnings_are_errors(monkeypatch):
    for module, name in ((host, "WARNINGS"), (chip, "FLAGS"), (wasm, "FLAGS")):
        monkeypatch.setattr(module, name, (*getattr(module, name), "-Werror"))
