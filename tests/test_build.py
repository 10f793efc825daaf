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
    tree, built = tmp_path / "tree", tmp_path / "built"
    # without what earlier builds noted about this folder
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__", "*.so"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(built)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for pattern in ("*.toml", "py.typed", "*.py"):
        found = sorted(path.relative_to(tree / "src") for path in (tree / "src/mgrade").rglob(pattern))
        assert found
        assert [path for path in found if not (built / path).is_file()] == []
