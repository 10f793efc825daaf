"""The WebAssembly back end: a Program as a module of a few kilobytes and its weights, for pages, Node and other hosts.

    from mgrade.deploy import wasm

    wasm.save_wasm(program, "vowels-web", "vowels")

writes vowels.wasm, which is the generated C compiled without a C library; model.js, which loads and calls it;
vowels.json, which says what it takes and gives; and a package.json, so that the folder is a package. A host must know
WebAssembly's SIMD: every browser since early 2023 does.
"""

from mgrade.deploy.wasm.build import available, save_wasm, to_wasm, wasm_files
from mgrade.deploy.wasm.module import code_bytes, metadata

__all__ = ["available", "code_bytes", "metadata", "save_wasm", "to_wasm", "wasm_files"]
