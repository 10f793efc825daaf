"""The WebAssembly back end: a Program as a module of a few kilobytes plus its weights, for browsers, Node and others.

    from mgrade.deploy import wasm

    wasm.save_wasm(program, "vowels-web", "vowels")

writes vowels.wasm, the generated C compiled without a C library; model.js, which loads and calls it; vowels.json, which
describes its inputs and outputs; and package.json, which makes the folder a package. Hosts must support WebAssembly
SIMD, as all browsers have since early 2023.
"""

from mgrade.deploy.wasm.build import available, save_wasm, to_wasm, wasm_files
from mgrade.deploy.wasm.module import code_bytes, metadata

__all__ = ["available", "code_bytes", "metadata", "save_wasm", "to_wasm", "wasm_files"]
