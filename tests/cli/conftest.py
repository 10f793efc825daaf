"""What `mgrade export` and `mgrade stream` are tried on."""

import numpy as np
import pytest
import torch

from mgrade import Model, ModelConfig
from mgrade.train import launch
from small import small


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a tiny finished run, of a task of tokens."""
    root = tmp_path_factory.mktemp("run")
    launch(small(), seeds=[0], root=root, device="cpu")
    return root / "runs/flipflop/mgrade/seed0"


@pytest.fixture
def model(tmp_path):
    """The folder of a saved model of three channels, with samples beside it."""
    torch.manual_seed(0)
    Model(ModelConfig(inputs=3, outputs=2, dim=6, depth=1, taps=2, max_delay=9)).save(tmp_path / "my-model")
    samples = np.random.default_rng(0).standard_normal((30, 3))
    np.savetxt(tmp_path / "samples.csv", samples, delimiter=",", header="a,b,c", comments="")
    return tmp_path / "my-model"
