"""WebAssembly: what cannot be built or read is refused, in one line."""

import pytest

from deploy.programs import program_of
from mgrade.deploy import wasm

needs_tools = pytest.mark.skipif(wasm.available() is not None, reason=wasm.available() or "")


@needs_tools
def test_what_cannot_be_built_is_refused(tmp_path):
    program = program_of("mingru")
    with pytest.raises(ValueError, match="name must be at most 40 lowercase letters"):
        wasm.to_wasm(program, "Vowels!")
    with pytest.raises(ValueError, match="name must not be 'package'"):
        wasm.save_wasm(program, tmp_path, "package")
    wasm.save_wasm(program, tmp_path)
    with pytest.raises(ValueError, match=r"model\.js: no folder can be made there: File exists"):
        wasm.save_wasm(program, tmp_path / "model.js")


@needs_tools
def test_what_is_no_module_is_refused(tmp_path):
    wasm.save_wasm(program_of("mingru"), tmp_path)
    module = (tmp_path / "model.wasm").read_bytes()
    for damaged, message in (
        (b"\x7fELF", "the module is not WebAssembly"),
        (module[:-1], "the module is cut short"),
        (module[:9], "the module is cut short"),
        (module[:8], "the module has no section 'mgrade'"),
    ):
        with pytest.raises(ValueError, match=message):
            wasm.metadata(damaged)


def test_without_tools_it_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    said = "WebAssembly cannot be built here: apt-get install clang-19 lld-19"
    assert wasm.available() == said
    with pytest.raises(ValueError, match=said):
        wasm.to_wasm(program_of("mingru"))
