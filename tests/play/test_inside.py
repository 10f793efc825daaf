"""What the page reads out of the module's memory is what the interpreter remembers; the twin's gates are true."""

import json
import shutil
import subprocess

import numpy as np
import pytest

from deploy.programs import inputs_of, integer, program_of
from mgrade.deploy import Interpreter, arithmetic, quantise_input
from mgrade.deploy.about import About
from mgrade.play import write_site
from mgrade.play.layout import layout
from mgrade.play.watch import watched
from play.sites import files_of

STEPS, STRIDE, RESET = 42, 3, 20
PROGRAMS = {
    "float32": lambda: program_of(readout="mean"),
    "float32-delayed-input": lambda: program_of(inputs=1, dim=12),
    "float32-snapped": lambda: program_of(snap=True),
    "float32-tokens": lambda: program_of(tokens=True),
    "mingru": lambda: program_of("mingru", readout="sum"),
    "lru": lambda: program_of("lru_dcls"),
    "tcn": lambda: program_of("tcn"),
    "int16": lambda: integer(program_of(readout="mean")),
    "int16-delayed-input": lambda: integer(program_of(inputs=1, dim=12)),
    "int16-tokens-state16": lambda: integer(program_of(tokens=True), state_bits=16),
    "int8": lambda: integer(program_of(), "int8"),
    "int8-lru": lambda: integer(program_of("lru"), "int8"),
}
SCRIPT = """
import { readFileSync } from "node:fs";
import { Engine } from "./engine.js";
const engine = await Engine.load(JSON.parse(readFileSync("playground.json")));
engine.stride = STRIDE; // gates are looked at in the last step of every column
const seen = JSON.parse(readFileSync("x.json")).map((x, step) => {
  if (step === RESET) engine.reset();
  engine.step(engine.model.tokens ? x : Float32Array.from(x));
  return { outputs: Array.from(engine.outputs), inside: engine.inside() };
});
console.log(JSON.stringify({ seen, record: engine.record(), bytes: engine.model.stateBytes }));
"""


def in_node(folder, files, x):
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    write_site(files, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "x.json").write_text(json.dumps(np.asarray(x).tolist()))
    (folder / "run.js").write_text(SCRIPT.replace("STRIDE", str(STRIDE)).replace("RESET", str(RESET)))
    done = subprocess.run(["node", "run.js"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def remembered(program, interpreter, values):
    """The interpreter's delay lines by lag, recurrent states, and gates from 0 to 1, layer by layer as they come."""
    lines, states, gates = [], [], []
    for index, op in enumerate(program.ops):
        unit = 2.0 ** -program.exponents[op.args[0]] if program.integer else 1.0
        if "lag" in op.arrays:
            line = interpreter.state[index]["line"][0]
            newest = (interpreter.count - 1 - np.arange(len(line))) % len(line)
            rows = line[newest].reshape(len(line), -1)
            lines.append(np.where(rows, rows - 1.0, np.nan) if op.kind == "taps_token" else rows * unit)
        if op.kind in ("gated", "rotate"):
            bits = op.numbers.get("state_exponent", program.exponents[index + 1] if program.integer else 0)
            bits = bits + op.numbers.get("extra", 0)
            states.append(interpreter.state[index]["hidden"][0] * 2.0**-bits)
        if op.kind == "gated":
            gate = values[op.args[0]][0]
            if program.integer:
                gates.append(arithmetic.sigmoid(gate, program.exponents[op.args[0]]) / 2**arithmetic.UNIT)
            else:
                gates.append(1 / (1 + np.exp(-gate.astype(np.float64))))
    return lines, states, gates


@pytest.mark.parametrize("name", PROGRAMS)
def test_state_and_gates_are_the_interpreters(tmp_path, name):
    program = PROGRAMS[name]()
    x = inputs_of(program, 1, STEPS)[0]
    found = in_node(tmp_path, files_of(program), x)
    interpreter = Interpreter(program)
    assert program.state_bytes <= found["bytes"] < program.state_bytes + 64
    for step, seen in enumerate(found["seen"]):
        if step == RESET:
            interpreter.reset()
        values = interpreter.values(quantise_input(program, x[step][None]))
        lines, states, gates = remembered(program, interpreter, values)
        shown = [("line", lines), ("hidden", states)]
        shown += [("gates", gates)] if step % STRIDE == STRIDE - 1 else []
        for kind, expected in shown:
            read = [np.array(layer[kind], float) for layer in seen["inside"] if layer.get(kind)]
            assert len(read) == len(expected)
            for got, true in zip(read, expected, strict=True):
                near = 1e-4 if kind == "gates" and program.integer else 1e-5 * max(1.0, np.nanmax(np.abs(true)))
                np.testing.assert_allclose(got, true, rtol=0, atol=near)
    if "gated" in {op.kind for op in program.ops}:
        assert np.std([layer["gates"] for layer in seen["inside"]]) > 0.01  # they are not all the same


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_twin_gives_the_same_outputs(name):
    program = PROGRAMS[name]()
    twin, number = watched(program)
    assert [twin.ops[number[index]].kind for index in range(len(program.ops))] == [op.kind for op in program.ops]
    x = quantise_input(program, inputs_of(program, 3, STEPS))
    np.testing.assert_array_equal(Interpreter(twin, 3).run(x), Interpreter(program, 3).run(x))


def test_layers_and_taps():
    program = program_of(snap=True, taps=3, max_delay=11, depth=2)
    found = layout(program).layers
    assert [sorted(layer) for layer in found] == [["gates", "hidden", "line"]] * 2
    convolutions = [op for op in program.ops if "lag" in op.arrays]
    assert [op.kind for op in convolutions] == ["taps_input", "taps"]
    for layer, op in zip(found, convolutions, strict=True):
        rows = layer["line"]["shape"][0]
        assert len(layer["line"]["profile"]) == rows == op.arrays["lag"].max() + 1
        if op.kind == "taps_input":  # which mixes channels: there is no row to put a ring in
            assert layer["line"]["taps"] == []
            continue
        used = {
            (channel, int(lag))
            for channel, lags in enumerate(op.arrays["lag"])
            for lag, weight in zip(lags, op.arrays["weight"][channel], strict=True)
            if weight
        }
        assert set(map(tuple, layer["line"]["taps"])) <= used  # a ring stands where a tap is, and nowhere else
        assert layer["line"]["taps"]


def test_a_module_that_is_not_the_described_one_is_refused(tmp_path):
    files = files_of(program_of())
    site = json.loads(files["playground.json"])
    site["state_end"] += 64
    files["playground.json"] = json.dumps(site).encode()
    with pytest.raises(AssertionError, match="the module's state has"):
        in_node(tmp_path, files, [])


def test_without_a_compiler_everything_but_gates_is_shown(tmp_path, monkeypatch):
    from mgrade.deploy import wasm
    from mgrade.play import Exhibit, site

    program = program_of()
    files_of(program)  # skips where there is no compiler at all
    module = wasm.to_wasm(program, "small")
    monkeypatch.setattr(wasm, "available", lambda: "no compiler")
    files = site(Exhibit("small", program, module, About()))
    assert "gates.wasm" not in files
    found = in_node(tmp_path, files, inputs_of(program, 1, 3)[0])
    assert all(layer["hidden"] and "gates" not in layer for layer in found["seen"][-1]["inside"])
