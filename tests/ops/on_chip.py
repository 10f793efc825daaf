"""What the kernels with products in them need of a chip that is not here: `on_chip.py CAPABILITY ROOM`, as JSON.

Models run on the CPU with every launch recorded in place of made; what was recorded is compiled for the chip. Without
Triton's interpreter, so in a process of its own: tiles have their real sizes then.
"""

import importlib
import json
import pkgutil
import sys

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

import mgrade.ops
from mgrade import Model, ModelConfig
from mgrade.ops import _backend, _triton

TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.uint8: "*u8", torch.int64: "*i64"}
PRODUCTS = ("_product", "_outer", "_feedforward", "_feedforward_backward", "_filter", "_correlate")


def kind(value):
    if isinstance(value, torch.Tensor):
        return TYPES[value.dtype]
    return "i32" if isinstance(value, int) else "fp32"


def launches(room):
    """What a gradient launches in float32 and bfloat16 with so many bytes: kernel, types, constants and options."""
    found = {}

    def record(kernel, *arguments, grid, warmup, **options):
        given = dict(zip(kernel.arg_names, arguments, strict=False)) | options
        constants = {p.name: given.get(p.name) for p in kernel.params if p.is_constexpr or given.get(p.name) is None}
        types = {name: "constexpr" if name in constants else kind(given[name]) for name in kernel.arg_names}
        chosen = {name: options[name] for name in ("num_warps", "num_stages") if name in options}
        found[str((kernel._fn_name, types, constants, chosen))] = kernel, types, constants, chosen

    for module in pkgutil.walk_packages(mgrade.ops.__path__, "mgrade.ops."):
        if "triton" in module.name:
            importlib.import_module(module.name)
    choose = _backend.choose
    for module in list(sys.modules.values()):
        if getattr(module, "choose", None) is choose:
            module.choose = lambda backend, x: "triton"
    JITFunction.run, _triton.room = record, lambda x: room
    for dim in (32, 64, 128):
        model = Model(ModelConfig.mgrade(inputs=3, outputs=10, dim=dim, depth=1))
        for short in (False, True):
            torch.set_float32_matmul_precision("high" if short else "highest")
            with torch.autocast("cpu", torch.bfloat16, enabled=short):
                y = model(torch.zeros(2, 300, 3))[0]
            y.sum().backward()
    return [entry for entry in found.values() if entry[0]._fn_name.split(".")[-1] in PRODUCTS]


def main():
    capability, room = map(int, sys.argv[1:])
    needs = {}
    for kernel, types, constants, options in launches(room):
        source = ASTSource(fn=kernel, signature=types, constexprs=constants)
        made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        name = kernel._fn_name.split(".")[-1]
        needs[name] = max(needs.get(name, 0), made.metadata.shared)
    print(json.dumps(needs))


if __name__ == "__main__":
    main()
