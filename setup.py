"""Builds the C kernels as a plain shared library; everything else about the package is in pyproject.toml.

The library knows nothing of Python or PyTorch, so neither is needed to build it, and it is loaded with
ctypes. It is optional: without a working C compiler the package installs all the same and computes with
its PyTorch reference.
"""

import os
from glob import glob

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CSRC = "src/mgrade/ops/csrc"


class BuildKernels(build_ext):
    """Adds OpenMP where the compiler has it, and builds single-threaded kernels where it has not."""

    def build_extension(self, ext: Extension) -> None:
        # Neither flag changes a result: errno and floating-point traps are not used.
        base = ["-O3", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden"]
        ext.extra_compile_args, ext.extra_link_args = [*base, "-fopenmp"], ["-fopenmp", "-lm"]
        try:
            return super().build_extension(ext)
        except Exception:
            ext.extra_compile_args, ext.extra_link_args = base, ["-lm"]
            return super().build_extension(ext)

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return ext.export_symbols  # not a Python module: it has no PyInit_ function to export


kernels = Extension(
    "mgrade.ops._kernels",
    sources=sorted(glob(f"{CSRC}/*.c")),
    depends=sorted(glob(f"{CSRC}/*.h")),
    optional=not os.environ.get("MGRADE_REQUIRE_KERNELS"),
)

setup(ext_modules=[kernels], cmdclass={"build_ext": BuildKernels})
