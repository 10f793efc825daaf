"""Every Triton kernel that a recipe trains with compiles for a GPU, also where there is none."""

import os
import subprocess
import sys

import pytest
import torch

from mgrade.ops._backend import HAS_TRITON

RECIPES = ("pathfinder/mgrade", "listops/mgrade", "pathfinder/tcn", "pathfinder/lru", "selective-copying/mgrade")


@pytest.mark.skipif(not HAS_TRITON, reason="no Triton")
@pytest.mark.parametrize("recipe", RECIPES)
def test_kernels_compile_for_a_gpu_that_is_not_there(recipe, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-W", "ignore", __file__, recipe]
    done = subprocess.run(
        command, env=environment | {"TRITON_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    kernels = done.stdout.split()
    assert any("backward" in name for name in kernels)
    assert len(kernels) >= 8


def compiles(recipe: str) -> set[str]:
    """Compiles for an H200 all that a training step of the recipe would launch; the names of the kernels."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import JITFunction, driver

    from mgrade import Model
    from mgrade.train import load_recipe

    class Absent:
        """A GPU for which programs are compiled, and not run."""

        get_current_device = staticmethod(lambda: 0)
        get_current_stream = staticmethod(lambda device: 0)
        get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))

    driver.set_active(Absent())
    launch, names = JITFunction.run, set[str]()

    def compile_only(self, *arguments, grid, warmup, **options):
        names.add(self.fn.__name__)
        return launch(self, *arguments, grid=grid, warmup=True, **options)

    JITFunction.run = compile_only
    for name, module in list(sys.modules.items()):
        if name.startswith("mgrade.ops") and hasattr(module, "choose"):
            module.choose = lambda backend, tensor: "triton"
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
    return names


if __name__ == "__main__":
    print(*sorted(compiles(sys.argv[1])))
