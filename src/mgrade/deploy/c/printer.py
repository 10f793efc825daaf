"""Prints a Program as C99: a header, the weights and the step, the runtime, an example and a test vector."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import mgrade
from mgrade.deploy.about import About
from mgrade.deploy.arithmetic import SIGMOID
from mgrade.deploy.c.fields import Field, state_fields, state_size
from mgrade.deploy.c.header import header_parts
from mgrade.deploy.c.slots import Slots
from mgrade.deploy.interpreter import Interpreter, checked
from mgrade.deploy.program import Op, Program

HERE = Path(__file__).parent
TYPES = {
    "float32": "float",
    "float64": "double",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
}
# The call that each operation prints. {y}: its value, {n}: the width of y; {a} and {b}: the values it reads, {wa}: the
# width of a; {s}: its state. In integer programs, {ea} and {eb} are the fraction bits of a and b.
FLOAT = {
    "linear": "mg_linear({y}, {a}, {weight}, {bias}, {wa}, {n});",
    "embed": "mg_embed({y}, {a}, {table}, {tokens}, {n});",
    "taps": "mg_taps({y}, {line}, {s}at, {weight}, {lag}, {rows}, {taps}, {n});",
    "filter": "mg_filter({y}, {line}, {s}at, {weight}, {lag}, {rows}, {taps}, {n});",
    "taps_input": "mg_taps_input({y}, {line}, {s}at, {s}age, {weight}, {lag}, {mix}, {bias}, {rows}, {taps}, {wa}, "
    "{n});",
    "taps_token": "mg_taps_token({y}, {line}, {s}at, {weight}, {lag}, {table}, {rows}, {taps}, {n});",
    "gated": "mg_gated({s}hidden, {a}, {b}, {n});",
    "rotate": "mg_rotate({s}hidden, {a}, {decay}, {n});",
    "norm": "mg_norm({y}, {a}, {scale}, {shift}, {eps}, {n});",
    "gelu": "mg_gelu({y}, {a}, {n});",
    "glu": "mg_glu({y}, {a}, {b}, {n});",
    "add": "mg_add({y}, {a}, {b}, {n});",
    "scale": "mg_scale({y}, {a}, {weight}, {n});",
    "mean": "mg_mean({y}, {s}total, &{s}steps, {a}, {n});",
    "sum": "mg_sum({y}, {s}total, {a}, {n});",
}
_RESCALE = "{multiplier}, {down}"
INTEGER = {
    "linear": f"mg_linear({{y}}, {{a}}, {{weight}}, {{bias}}, {{bias_up}}, {_RESCALE}, {{wa}}, {{n}});",
    "embed": f"mg_embed({{y}}, {{a}}, {{table}}, {_RESCALE}, {{tokens}}, {{n}});",
    "taps": f"mg_taps({{y}}, {{line}}, {{s}}at, {{weight}}, {{lag}}, {_RESCALE}, {{rows}}, {{taps}}, {{n}});",
    "filter": f"mg_filter({{y}}, {{line}}, {{s}}at, {{weight}}, {{lag}}, {_RESCALE}, {{rows}}, {{taps}}, {{n}});",
    "taps_input": "mg_taps_input({y}, {line}, {s}at, {s}age, {weight}, {lag}, {mix}, {bias}, "
    f"{_RESCALE}, {{mix_multiplier}}, {{mix_down}}, {{one}}, {{rows}}, {{taps}}, {{wa}}, {{n}});",
    "taps_token": f"mg_taps_token({{y}}, {{line}}, {{s}}at, {{weight}}, {{lag}}, {{table}}, {_RESCALE}, {{rows}}, "
    "{taps}, {n});",
    "gated": "mg_gated{wide}({y}, {s}hidden, {a}, {b}, {ea}, {extra}, {n});",
    "rotate": "mg_rotate({y}, {s}hidden, {a}, {decay}, {into}, {out}, {n});",
    "norm": "mg_norm({y}, {a}, {scale}, {shift}, {epsilon}, {scale_shift}, {n});",
    "gelu": "mg_gelu({y}, {a}, {ea}, {n});",
    "glu": "mg_glu({y}, {a}, {b}, {eb}, {n});",
    "add": "mg_add({y}, {a}, {b}, {up_a}, {up_b}, {down}, {n});",
    "scale": "mg_scale({y}, {a}, {weight}, {weight_shift}, {n});",
    "mean": FLOAT["mean"],
    "sum": FLOAT["sum"],
}


# Names whose files would shadow another header or source, since a library's own folder is searched first.
TAKEN = (
    *(
        "arduino",
        "arm_acle",
        "arm_mve",
        "immintrin",
        "wasm_simd128",
        "main",
        "assert",
        "complex",
        "ctype",
        "errno",
        "fenv",
        "float",
        "inttypes",
    ),
    *("iso646", "limits", "locale", "math", "setjmp", "signal", "stdarg", "stdbool", "stddef", "stdint", "stdio"),
    *("stdlib", "string", "tgmath", "time", "wchar", "wctype"),
    # and headers that C libraries include from their own
    *("alloca", "endian", "features", "newlib", "sched", "strings", "syslimits", "xlocale"),
)
# The runtime headers of integer (True) and float programs (False); the model includes the first.
RUNTIME = {True: ("mgrade_integer.h", "mgrade_lanes.h", "mgrade_dots.h"), False: ("mgrade_float.h",)}
# Of a float program's outputs, relative to the largest (or to 1): compilers and machines may reorder sums.
TOLERANCE = 1e-4


def check_name(name: str) -> str:
    """Returns `name` if it is a valid name for the files and identifiers of an export."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) or name.startswith(("mg_", "mgrade")):
        raise ValueError(
            "name must be at most 40 lowercase letters, digits and _, and begin with a letter, not with mg_ or mgrade,"
            f" got {name!r}"
        )
    if name in TAKEN:
        raise ValueError(f"name must not be that of a C header, nor main, got {name!r}")
    return name


def print_c(
    program: Program,
    name: str = "model",
    test: npt.NDArray[Any] | None = None,
    panel: int = 64,
    known: About | None = None,
) -> dict[str, str]:
    """The files of an export, by name. `test` (time, inputs) or (time): inputs of the test vector.

    `panel`: how many outputs of a float matrix are adjacent in memory; ideally as many as a machine sums in registers.
    `known`: names of inputs and outputs, and how samples become steps and answers.
    """
    printed = _Printed(program, check_name(name), panel, (known or About()).fit(program))
    table = "\n".join("    " + ", ".join(map(str, SIGMOID[i : i + 12])) + "," for i in range(0, len(SIGMOID), 12))
    files = {
        f"{name}.h": printed.fill("model.h.in"),
        f"{name}.c": printed.fill("model.c.in"),
    }
    for header in RUNTIME[program.integer]:
        files[header] = (HERE / header).read_text(encoding="utf-8").replace("@SIGMOID@", table)
    if test is not None:
        files["main.c"] = printed.fill("main.c.in")
        files[f"{name}_test.h"] = printed.test_vector(test)
    return files


class _Printed:
    """The parts that fill the templates."""

    def __init__(self, program: Program, name: str, panel: int, known: About):
        self.program, self.name, self.panel = program, name, panel
        self.arrays: dict[bytes, tuple[str, npt.NDArray[Any]]] = {}
        self.slots = Slots(program)
        value = TYPES[program.precision]
        calls = [line for index in range(len(program.ops)) for line in self._calls(index)]
        fields = state_fields(program)
        own = _own_bytes(self.arrays)
        self.parts = {
            "NAME": name,
            "UPPER": name.upper(),
            "VERSION": mgrade.__version__,
            "PRECISION": _described(program),
            "FLASH": str(own),
            "STATE": str(state_size(fields)),
            "INPUTS": "1" if program.tokens else str(program.inputs),
            "OUTPUTS": str(program.outputs),
            "INPUT_TYPE": TYPES[program.input_dtype],
            "OUTPUT_TYPE": TYPES[program.output_dtype],
            **header_parts(program, name, known),
            "FIELDS": "\n".join(map(_member, fields)) or "    uint8_t nothing;",
            "SIZES": f"MG_BITS {8 * np.dtype(program.precision).itemsize}" if program.integer else f"MG_PANEL {panel}",
            "LAG": TYPES[program.lag_dtype],
            "RUNTIME": RUNTIME[program.integer][0],
            "ARRAYS": "\n".join(_array(name, array) for name, array in self.arrays.values()),
            "SLOTS": "".join(f"    {value} v{slot}[{size}];\n" for slot, size in enumerate(self.slots.sizes)),
            "CALLS": "\n".join(f"    {call}" for call in (calls if fields else ["(void)state;", *calls])),
        }

    def fill(self, template: str) -> str:
        text = (HERE / template).read_text(encoding="utf-8")
        return re.sub(r"@([A-Z_]+)@", lambda match: self.parts[match[1]], text)

    def _calls(self, index: int) -> list[str]:
        program, op = self.program, self.program.ops[index]
        fields: dict[str, Any] = {name: self._named(op, name, array) for name, array in sorted(op.arrays.items())}
        fields |= {"n": program.widths[index + 1], "tokens": program.inputs}
        fields |= {
            "y": self.slots.where(index + 1),
            "a": self.slots.where(op.args[0]),
            "wa": program.widths[op.args[0]],
        }
        if len(op.args) > 1:
            fields["b"] = self.slots.where(op.args[1])
        fields |= {name: _number(value) for name, value in op.numbers.items()}
        if program.integer:
            fields |= _scales(program, index)
        before: list[str] = []
        if "lag" in op.arrays:
            before, more = self._line(index)
            fields |= more
        call = (INTEGER if program.integer else FLOAT)[op.kind]
        call = re.sub(r"\{s\}(\w+)", rf"state->\1_{index}", call).format(**fields)
        after = []
        if fields["y"] == "output" and not program.integer and op.kind in ("gated", "rotate"):
            hidden = f"state->hidden_{index}"  # where their value is kept: the output is a copy
            after.append(f"memcpy(output, {hidden}, sizeof {hidden});")
        return [*before, call, *after]

    def _line(self, index: int) -> tuple[list[str], dict[str, Any]]:
        """The statements that write to the delay line of operation `index`, and its arguments in the call."""
        program, op = self.program, self.program.ops[index]
        line = program.state(index)[0]
        rows, source = line.shape[0], self.slots.where(op.args[0])
        fields = {"rows": rows, "taps": op.arrays["weight"].shape[0 if op.kind == "filter" else 1]}
        if op.kind == "taps_token":
            name = f"state->line_{index}"
            push = [f"mg_push_token({name}, &state->at_{index}, {source}, {rows}, {program.inputs});"]
            return push, fields | {"line": name}
        name = f"state->line_{index}[0]"
        push = [f"mg_push({name}, &state->at_{index}, {source}, {rows}, {line.shape[1]});"]
        if op.kind == "taps_input":
            age = f"state->age_{index}"
            push.append(f"{age} = (uint16_t)({age} + ({age} < UINT16_MAX));")
        return push, fields | {"line": name}

    def _named(self, op: Op, name: str, array: npt.NDArray[Any]) -> str:
        """The name of a constant; equal constants share one."""
        array = self.program.in_c(name, array)
        if not self.program.integer:  # the runtime expects (inputs, outputs)
            if (op.kind, name) == ("linear", "weight"):
                array = np.concatenate([part.T.ravel() for part in _panels(array, self.panel)]).reshape(array.shape)
            elif (op.kind, name) == ("taps_input", "mix"):
                array = array.T
        array = np.ascontiguousarray(array)
        key = array.dtype.str.encode() + array.tobytes()
        return self.arrays.setdefault(key, (f"a{len(self.arrays)}", array))[0]

    def _unit(self) -> float:
        """The least magnitude that the tolerance is relative to: 1, or less if the head cannot reach that."""
        head = next((op for op in reversed(self.program.ops) if op.kind == "linear"), None)
        if head is None:
            return 1.0
        return min(1.0, float((np.abs(head.arrays["weight"]).sum(1) + np.abs(head.arrays["bias"])).max()))

    def test_vector(self, x: npt.NDArray[Any]) -> str:
        """The header of the test vector: inputs, the interpreter's outputs, and the tolerance."""
        x = np.asarray(x)
        if not x.ndim or not len(x):
            raise ValueError(f"test must hold at least one step, got shape {x.shape}")
        x = checked(self.program, x, len(x))
        y = Interpreter(self.program).run(x[None])[0]
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise ValueError("test must hold inputs that are finite and give outputs that are")
        x = x.reshape(len(x), -1)
        tolerance = 0.0 if self.program.integer else TOLERANCE * max(self._unit(), float(np.abs(y).max()))
        lines = [
            f"/* Inputs of {self.name} and the expected outputs. */",
            f"#define {self.name.upper()}_TEST_STEPS {len(x)}",
            f"#define {self.name.upper()}_TEST_TOLERANCE {tolerance:.3e}",
        ]
        for what, values in (("input", x), ("output", y)):
            rows = ",\n".join("    {" + ", ".join(map(_literal, row)) + "}" for row in values)
            size = f"[{self.name.upper()}_TEST_STEPS][{values.shape[1]}]"
            lines.append(f"static const {self.name}_{what} {self.name}_test_{what}s{size} = {{\n{rows}}};")
        return "\n".join(lines) + "\n"


def _scales(program: Program, index: int) -> dict[str, Any]:
    """Shifts between the scales of the values that an operation reads and writes."""
    op, exponents = program.ops[index], program.exponents
    own, read = exponents[index + 1], [exponents[value] for value in op.args]
    fields: dict[str, Any] = {"ea": read[0], "eb": read[-1]}
    if op.kind == "add":
        fine = max(own, *read)
        fields |= {"up_a": fine - read[0], "up_b": fine - read[1], "down": fine - own}
    if op.kind == "rotate":
        at = int(op.numbers["state_exponent"])
        fields |= {"into": read[0] - at, "out": at - own}
    if op.kind == "gated":
        kept = program.state(index)[0].dtype
        fields["wide"] = "" if kept == program.precision else {"int16": "_middle", "int32": "_wide"}[kept]
    return fields


def _panels(array: npt.NDArray[Any], rows: int) -> list[npt.NDArray[Any]]:
    return [array[first : first + rows] for first in range(0, len(array), rows)]


def _own_bytes(arrays: dict[bytes, tuple[str, npt.NDArray[Any]]]) -> int:
    return sum(array.nbytes for _, array in arrays.values())


def _described(program: Program) -> str:
    if not program.integer:
        return "float32"
    return f"int8 weights, {program.precision} activations"


def _member(field: Field) -> str:
    shape = "".join(f"[{size}]" for size in field.shape)
    return f"    {TYPES[field.dtype]} {field.name}_{field.operation}{shape};"


def _literal(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        text = f"{value:.9g}"
        return text + ("f" if any(c in text for c in ".e") else ".0f")
    if int(value) == -(1 << 31):
        return "INT32_MIN"
    return str(int(value))


def _number(value: float) -> str:
    if isinstance(value, int) and abs(value) >= 1 << 31:
        return f"INT64_C({value})"
    return _literal(value)


def _array(name: str, array: npt.NDArray[Any]) -> str:
    values = [_literal(value) for value in array.ravel()]
    rows = "\n".join("    " + ", ".join(values[i : i + 12]) + "," for i in range(0, len(values), 12))
    shape = " x ".join(map(str, array.shape))
    return f"MGRADE_WEIGHTS static const {TYPES[str(array.dtype)]} {name}[{array.size}] = {{ /* {shape} */\n{rows}\n}};"
