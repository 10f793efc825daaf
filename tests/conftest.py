"""For all tests: Triton's interpreter where there is no GPU, chosen before mgrade is imported; one thread; a seed."""

import importlib.util
import os

import pytest
import torch

if importlib.util.find_spec("triton") and not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
    import bounds

    bounds.install()

# Many small operators: a second thread costs more than it brings, all the more on a busy machine.
torch.set_num_threads(1)

pytest.register_assert_rewrite("helpers")

if importlib.util.find_spec("hypothesis"):  # a machine lent for its GPU may lack it
    from hypothesis import settings

    settings.register_profile("mgrade", deadline=None, derandomize=True)
    settings.load_profile("mgrade")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
