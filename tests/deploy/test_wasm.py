"""WebAssembly modules, run by Node and by Chromium, against the interpreter."""

import base64
import dataclasses
import functools
import http.server
import json
import queue
import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from browser import chromium
from mgrade import Model, ModelConfig
from mgrade.deploy import (
    Interpreter,
    Op,
    Program,
    calibrate,
    dequantise_output,
    from_model,
    optimise,
    quantise,
    quantise_input,
    wasm,
)
from mgrade.deploy.program import Unit

HERE = Path(__file__).parent
TOLERANCE = 1e-5
MOST_CODE = 20_000

FLOATS = {
    "mgrade": {},
    "mgrade-snapped": {"snap": True},
    "mgrade-smaller": {"smaller": True, "readout": "sum"},
    "mgrade-tokens": {"tokens": True, "readout": "mean"},
    "mgrade-tokens-snapped-smaller": {"tokens": True, "snap": True, "smaller": True},
    "mingru": {"readout": "mean"},
    "dcls": {"readout": "last", "snap": True, "smaller": True},
    "tcn": {"outputs": 1},
    "lru": {"expansion": 1.5},
    "lru_dcls": {},
}
INTEGERS = {
    "mgrade": {},
    "mgrade-snapped-smaller": {"snap": True, "smaller": True, "precision": "int8"},
    "mgrade-tokens": {"tokens": True, "readout": "mean"},
    "mgrade-tokens-snapped-smaller": {"tokens": True, "snap": True, "smaller": True, "state_bits": 16},
    "mingru": {"readout": "sum", "precision": "int8"},
    "tcn": {"readout": "mean"},
    "lru": {},
    "lru_dcls": {"precision": "int8"},
}


def make(name, snap=False, smaller=False, **fields):
    """The program of a small model, with biases and scales that are not those it starts with."""
    sizes = {"inputs": 5, "outputs": 3, "dim": 10, "depth": 2, "taps": 3, "max_delay": 11}
    model = Model(getattr(ModelConfig, name.split("-")[0])(**{**sizes, **fields}))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    program = from_model(model, snap=snap)
    return optimise(program) if smaller else program


def make_integer(name, precision="int16", state_bits=32, **fields):
    program = make(name, **fields)
    ranges = calibrate(program, [sequence(program, 100)[None]])
    return quantise(program, ranges, precision=precision, state_bits=state_bits)


def sequence(program, steps=220):
    random = np.random.default_rng(0)
    if program.tokens:
        return random.integers(0, program.inputs, steps)
    return random.standard_normal((steps, program.inputs)).astype(np.float32)


def save(program, folder, name="model"):
    if missing := wasm.available():
        pytest.skip(missing)
    wasm.save_wasm(program, folder, name)


def job(model, x, method="step"):
    return {"model": model, "method": method, "x": np.asarray(x).tolist()}


def write_jobs(folder, jobs):
    (folder / "jobs.json").write_text(json.dumps(jobs))
    for name in ("wasm_run.js", "wasm_page.html"):
        shutil.copy(HERE / name, folder)


def outputs(answer):
    answer = json.loads(answer)
    assert "error" not in answer, answer["error"]
    return [np.array(one) for one in answer["outputs"]]


def in_node(folder, *jobs):
    """The outputs (time, outputs) of every job, run by Node."""
    write_jobs(folder, jobs)
    return outputs(node(folder, "await import('./wasm_run.js');"))


def node(folder, script):
    """What a script in `folder` prints."""
    if not shutil.which("node"):
        pytest.skip("node is not installed")
    command = ["node", "--input-type=module", "-"]
    done = subprocess.run(command, cwd=folder, input=script, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_close(y, expected):
    assert y.shape == expected.shape
    assert np.abs(y - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("name", FLOATS)
def test_floats_are_the_interpreters(tmp_path, name):
    program = make(name, **FLOATS[name])
    save(program, tmp_path, "small")
    x = sequence(program)
    expected = Interpreter(program).run(x[None])[0]
    y, raw = in_node(tmp_path, job("small", x), job("small", x, "stepRaw"))
    assert_close(y, expected)
    np.testing.assert_array_equal(y, raw)
    assert wasm.code_bytes((tmp_path / "small.wasm").read_bytes()) < MOST_CODE


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_the_interpreters_to_the_bit(tmp_path, name):
    program = make_integer(name, **INTEGERS[name])
    save(program, tmp_path, "small")
    x = sequence(program)
    whole = quantise_input(program, x)
    expected = Interpreter(program).run(whole[None])[0]
    y, raw = in_node(tmp_path, job("small", x), job("small", whole, "stepRaw"))
    np.testing.assert_array_equal(raw, expected)
    np.testing.assert_array_equal(y, dequantise_output(program, expected))
    assert wasm.code_bytes((tmp_path / "small.wasm").read_bytes()) < MOST_CODE


def test_inputs_out_of_range_are_held_within_it(tmp_path):
    program = make_integer("mingru")
    save(program, tmp_path, "small")
    x = np.float32([[1e9, -1e9, 0.5, -0.5, 0], [3e38, -3e38, 1e-30, 100, -100]])
    expected = Interpreter(program).run(quantise_input(program, x)[None])[0]
    np.testing.assert_array_equal(in_node(tmp_path, job("small", x))[0], dequantise_output(program, expected))


def test_channels_are_counted_in_their_units(tmp_path):
    program = make_integer("mingru", readout="every")
    into = tuple(Unit(offset, bits) for offset, bits in ((1e5, 3), (0.0, 40), (-0.3125, 12), (7.0, -20), (0.0, 13)))
    program = dataclasses.replace(program, input_units=into, output_units=(Unit(1000.0, 11),) * program.outputs)
    save(program, tmp_path, "small")
    x = np.array([unit.offset for unit in into]) + sequence(program) * np.array([4096 * 2.0**-u.bits for u in into])
    expected = Interpreter(program).run(quantise_input(program, x.astype(np.float32))[None])[0]
    y = in_node(tmp_path, job("small", x.astype(np.float32)))[0]
    np.testing.assert_array_equal(y, dequantise_output(program, expected))


def test_a_page_gives_what_node_gives(tmp_path):
    """Float and whole numbers, in Chromium."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("chromium is not installed")
    program, small = make("mgrade"), make_integer("mgrade", tokens=True)
    save(program, tmp_path, "real")
    save(small, tmp_path, "whole")
    jobs = [job("real", sequence(program)), job("whole", sequence(small), "stepRaw")]
    write_jobs(tmp_path, jobs)
    real, whole = outputs(browse(browser, tmp_path, "wasm_page.html"))
    assert_close(real, Interpreter(program).run(sequence(program)[None])[0])
    np.testing.assert_array_equal(whole, Interpreter(small).run(sequence(small)[None])[0])


def browse(browser, folder, page):
    """What a page in `folder` posts."""
    posted = queue.Queue()

    class Handler(http.server.SimpleHTTPRequestHandler):
        extensions_map = {".js": "text/javascript", ".html": "text/html", "": "application/octet-stream"}  # noqa: RUF012

        def do_POST(self):
            posted.put(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    handler = functools.partial(Handler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={folder / 'user'}"]
        address = f"http://127.0.0.1:{server.server_port}/{page}"
        process = subprocess.Popen(
            [browser, *flags, "--remote-debugging-port=0", address],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            return posted.get(timeout=60)
        finally:
            process.terminate()
            process.wait(30)
            server.shutdown()


def test_streams_are_independent_and_begin_anew(tmp_path):
    """So many of them that the memory has to grow."""
    program = make("mgrade", readout="mean")
    save(program, tmp_path)
    x = sequence(program, 30)
    script = f"""
        import {{ Model }} from "./model.js";
        const x = {x.tolist()}, streams = 500;
        const model = await Model.load("model.wasm", {{ streams }});
        const run = (stream) => x.map((row) => Array.from(model.step(row, stream)));
        const first = x.map((row, t) => {{
            model.step(x[x.length - 1 - t], 499);
            model.step(x[0], 1);
            return Array.from(model.step(row));
        }});
        const other = run(250);
        model.reset(499);
        const last = run(499), goneOn = run(250);
        model.reset();
        console.log(JSON.stringify([first, other, last, run(250), run(1), goneOn]));
    """
    *anew, gone_on = (np.array(y) for y in json.loads(node(tmp_path, script)))
    interpreter = Interpreter(program)
    expected = interpreter.run(x[None])[0]
    for y in anew:
        assert_close(y, expected)
    assert_close(gone_on, interpreter.run(x[None])[0])


def test_what_a_model_says_of_itself(tmp_path):
    program = make_integer("mgrade", readout="mean")
    save(program, tmp_path, "vowels")
    files = {"vowels.wasm", "vowels.json", "model.js", "package.json"}
    assert {path.name for path in tmp_path.iterdir()} == files
    package = json.loads((tmp_path / "package.json").read_text())
    assert set(package["files"]) == files - {"package.json"}
    module = (tmp_path / "vowels.wasm").read_bytes()
    expected = {
        "format": "mgrade-wasm",
        "version": 2,
        "name": "vowels",
        "inputs": 5,
        "outputs": 3,
        "tokens": False,
        "precision": "int16",
        "input_type": "int16",
        "output_type": "int32",
        "input_units": [[0.0, program.exponents[0]]] * 5,
        "output_units": [[0.0, program.exponents[-1]]] * 3,
    }
    assert wasm.metadata(module) == json.loads((tmp_path / "vowels.json").read_text()) == expected
    assert module == wasm.to_wasm(program, "vowels")
    script = """
        import { readFile } from "node:fs/promises";
        import { Model } from "./model.js";
        const module = await WebAssembly.compile(await readFile("vowels.wasm"));
        const model = await Model.load(module);
        const { metadata, inputs, outputs, tokens, stateBytes } = model;
        const imports = WebAssembly.Module.imports(module);
        console.log(JSON.stringify({ metadata, inputs, outputs, tokens, stateBytes, imports }));
    """
    said = json.loads(node(tmp_path, script))
    assert program.state_bytes <= said.pop("stateBytes") <= program.state_bytes + 64
    assert said == {"metadata": expected, "inputs": 5, "outputs": 3, "tokens": False, "imports": []}


def test_mistakes_are_errors_that_say_so(tmp_path):
    save(make("mingru"), tmp_path, "real")
    save(make("mingru", tokens=True), tmp_path, "token")
    script = """
        import { Model } from "./model.js";
        const real = await Model.load("real.wasm"), token = await Model.load("token.wasm");
        const empty = Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0);
        const mistakes = [
            () => real.step([1, 2]), () => real.step(), () => real.step([1, 2, 3, 4, 5], 1), () => real.reset(-1),
            () => token.step(5), () => token.step(0.5), () => token.step([1]),
            () => Model.load("real.wasm", { streams: 0 }), () => Model.load(empty),
        ];
        for (const mistake of mistakes) {
            try { await mistake(); console.log("nothing"); } catch (error) { console.log(error.message); }
        }
    """
    assert node(tmp_path, script).splitlines() == [
        "x must hold 5 numbers, got 2",
        "x must hold 5 numbers, got undefined",
        "stream must be 0 to 0, got 1",
        "stream must be 0 to 0, got -1",
        "a token must be a whole number from 0 to 4, got 5",
        "a token must be a whole number from 0 to 4, got 0.5",
        "a token must be a whole number from 0 to 4, got 1",
        "streams must be a whole number of at least 1, got 0",
        "the module was not made by mgrade",
    ]


@pytest.mark.parametrize("name", ["exports", "own", "get", "init", "memory", "out"])
def test_names_meet_no_others(tmp_path, name):
    program = make("mingru", depth=1)
    save(program, tmp_path, name)
    x = sequence(program, 3)
    assert_close(in_node(tmp_path, job(name, x))[0], Interpreter(program).run(x[None])[0])


def test_wide_values_have_room_on_the_stack(tmp_path):
    """Many of them at a time: the tools' own 64 KiB would not do."""
    width = 4096
    gains = [np.full(width, 1 + i / 8, np.float32) for i in range(12)]
    ops = [Op("scale", (0,), {"weight": gain}) for gain in gains]
    total = 1
    for value in range(2, len(gains) + 1):
        ops.append(Op("add", (total, value)))
        total = len(ops)
    program = Program(width, False, tuple(ops))
    save(program, tmp_path)
    x = sequence(program, 3)
    assert_close(in_node(tmp_path, job("model", x))[0], Interpreter(program).run(x[None])[0])


RELAXED = """
    (async () => {
      const { Model } = await import(MODEL);
      const [plain, relaxed] = FILES.map((text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)));
      const run = (model) => X.map((row) => Array.from(model.step(row)));
      const both = [await Model.load(plain), await Model.load(plain, { relaxed })];
      return { relaxed: Model.relaxed, outputs: both.map(run) };
    })()
"""


@pytest.mark.parametrize("name", FLOATS)
def test_relaxed_modules_are_taken_where_the_engine_has_them(tmp_path, name):
    """In Chromium they are, and give the same but for rounding; in an engine without them the plain one runs."""
    program = make(name, **FLOATS[name])
    save(program, tmp_path, "small")
    x = sequence(program, 60)
    files = [(tmp_path / f"small{kind}.wasm").read_bytes() for kind in ("", ".relaxed")]
    assert b"\xfd\x85\x02" in files[1]
    assert b"\xfd\x85\x02" not in files[0][: wasm.code_bytes(files[0])]
    assert wasm.code_bytes(files[1]) < MOST_CODE
    coded = [base64.b64encode(content).decode() for content in files]
    expected = Interpreter(program).run(x[None])[0]
    (tmp_path / "page.html").write_text("<title>relaxed</title>")
    script = RELAXED.replace("FILES", json.dumps(coded)).replace("X.map", f"{json.dumps(x.tolist())}.map")
    with chromium(tmp_path) as page:
        page.open((tmp_path / "page.html").as_uri())
        source = base64.b64encode((tmp_path / "model.js").read_bytes()).decode()
        found = page.evaluate(script.replace("MODEL", json.dumps(f"data:text/javascript;base64,{source}")))
    assert found["relaxed"]
    for outputs in found["outputs"]:
        assert_close(np.array(outputs), expected)
    without = """
        import { Model } from "./model.js";
        Model.relaxed = false;
        const model = await Model.load("small.wasm", { relaxed: "not-there.wasm" });
        console.log(JSON.stringify(model.outputs));
    """
    assert json.loads(node(tmp_path, without)) == program.outputs
