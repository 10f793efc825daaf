"""The C kernels build without PyTorch, and their absence is no obstacle."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def build(folder, **environment):
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(folder / "lib")]
    return subprocess.run(
        [*command, "--build-temp", str(folder / "temp")],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_kernels_build_with_a_compiler_alone(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('not needed to build')")
    done = build(tmp_path, PYTHONPATH=str(tmp_path), MGRADE_REQUIRE_KERNELS="1")
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "lib" / "mgrade" / "ops").glob("_kernels*"))


def test_without_a_compiler_the_build_goes_on_without_kernels(tmp_path):
    done = build(tmp_path, CC="no-such-compiler", MGRADE_REQUIRE_KERNELS="")
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.rglob("_kernels*.so"))


def test_all_that_is_read_at_run_time_is_packed(tmp_path):
    """An installed package, unlike this folder, has only what the packing takes along."""
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path)]
    environment = {**os.environ, "CC": "no-such-compiler", "MGRADE_REQUIRE_KERNELS": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    here, there = ROOT / "src", tmp_path
    for pattern in ("*.toml", "py.typed", "*.py"):
        found = sorted(path.relative_to(here) for path in (here / "mgrade").rglob(pattern))
        assert found
        assert [path for path in found if not (there / path).is_file()] == []
