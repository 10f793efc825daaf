"""Every Triton kernel that a recipe trains with compiles for a GPU, also where there is none."""

import os
import subprocess
import sys

import pytest
import torch

from mgrade import Model
from mgrade.ops._backend import HAS_TRITON
from mgrade.train import load_recipe

RECIPES = ("pathfinder/mgrade", "listops/mgrade", "pathfinder/tcn", "pathfinder/lru", "selective-copying/mgrade")


@pytest.mark.skipif(not HAS_TRITON, reason="no Triton")
def test_kernels_compile_for_a_gpu_that_is_not_there(tmp_path):
    """In one process: recipes share kernels."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-W", "ignore", __file__, *RECIPES]
    done = subprocess.run(
        command, env=environment | {"TRITON_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(RECIPES)
    for line in lines:
        assert "backward" in line
        assert len(line.split()) > 8


def compile_only() -> set[str]:
    """From here on kernels are compiled for an H200 in the place of running; their names gather in the result."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import JITFunction, driver

    class Absent:
        """A GPU for which programs are compiled, and not run."""

        get_current_device = staticmethod(lambda: 0)
        get_current_stream = staticmethod(lambda device: 0)
        get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))

    driver.set_active(Absent())
    launch, names = JITFunction.run, set[str]()

    def warm_up(self, *arguments, grid, warmup, **options):
        names.add(self.fn.__name__)
        return launch(self, *arguments, grid=grid, warmup=True, **options)

    JITFunction.run = warm_up
    for name, module in list(sys.modules.items()):
        if name.startswith("mgrade.ops") and hasattr(module, "choose"):
            module.choose = lambda backend, tensor: "triton"
    return names


def step(recipe: str) -> None:
    """All that a training step of the recipe would launch, in float32 and in bfloat16."""
    config = load_recipe(recipe).model
    model = Model(config)
    shape = (4, 64) if config.tokens else (4, 64, config.inputs)
    x = torch.zeros(shape, dtype=torch.int64 if config.tokens else torch.float32)
    for options in ({}, {"lengths": torch.full((4,), 64), "reset": torch.zeros(4, 64, dtype=torch.bool)}):
        model(x, **options)[0].sum().backward()
        half = torch.zeros(4, 64, config.dim, dtype=torch.bfloat16, requires_grad=True)  # as autocast has it on a GPU
        for layer in model.layers:
            half, _ = layer(half, (None, None), **options)
        half.sum().backward()


if __name__ == "__main__":
    launched = compile_only()
    for recipe in sys.argv[1:]:
        step(recipe)
        print(recipe, *sorted(launched), flush=True)
        launched.clear()
