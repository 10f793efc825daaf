"""Builds the C code as plain shared libraries; everything else about the package is in pyproject.toml.

There are two: the kernels of the operators, and the generators of data sets. They know nothing of Python or PyTorch, so
neither is needed to build them, and they are loaded with ctypes. They are optional: without a working C compiler the
package installs all the same, computes with its PyTorch reference, and refuses to generate what needs C.
"""

import os
from glob import glob

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


def library(name: str, folder: str) -> Extension:
    """The shared library `name` of all C files in `folder`."""
    return Extension(
        name,
        sources=sorted(glob(f"{folder}/*.c")),
        depends=sorted(glob(f"{folder}/*.h")),
        optional=not os.environ.get("MGRADE_REQUIRE_KERNELS"),
    )


class BuildKernels(build_ext):
    """Adds OpenMP where the compiler has it, and builds single-threaded libraries where it has not."""

    def build_extension(self, ext: Extension) -> None:
        # Neither flag changes a result: errno and floating-point traps are not used.
        base = ["-O3", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden"]
        if ext.name.endswith("_generators"):
            base.append("-ffp-contract=off")  # the same data set on every processor
        ext.extra_compile_args, ext.extra_link_args = [*base, "-fopenmp"], ["-fopenmp", "-lm"]
        try:
            return super().build_extension(ext)
        except Exception:
            ext.extra_compile_args, ext.extra_link_args = base, ["-lm"]
            return super().build_extension(ext)

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return ext.export_symbols  # not a Python module: it has no PyInit_ function to export


kernels = library("mgrade.ops._kernels", "src/mgrade/ops/csrc")
generators = library("mgrade.tasks._generators", "src/mgrade/tasks/csrc")

setup(ext_modules=[kernels, generators], cmdclass={"build_ext": BuildKernels})
