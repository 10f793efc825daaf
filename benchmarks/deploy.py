"""One streaming step, deployed: `python -m benchmarks.deploy`. Writes results/bench/deploy.json."""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import http.server
import json
import os
import queue
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks import litert, measure, report
from benchmarks.measure import UnavailableError
from mgrade import Model, ModelConfig
from mgrade.deploy import (
    Interpreter,
    Program,
    calibrate,
    chip,
    compile,
    dequantise_output,
    from_model,
    optimise,
    print_c,
    quantise,
    quantise_input,
    save_program,
    wasm,
)
from mgrade.deploy.c.host import compiler

Array = npt.NDArray[Any]

HERE = Path(__file__).resolve().parent
PRECISIONS = ("float32", "int8")
"""As `mgrade export` names them: int8 has int16 activations."""
# Everything is related to this contender.
OURS = "mgrade C, float32"
STEPS = 200
"""Steps of a run within C, and those over which outputs are compared."""
SAMPLE_SECONDS = 0.002
MOST_ERROR = 1e-4
"""Of a float32 contender, over the largest output: beyond it, something else is computed."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def config(quick: bool) -> ModelConfig:
    """The model: 198,272 multiply-adds a step, or for a smoke run a few."""
    if quick:
        return ModelConfig(inputs=16, outputs=10, dim=16, depth=2, taps=8, max_delay=8, sigma=0.3, projection=True)
    return ModelConfig(inputs=16, outputs=10, dim=64, depth=6, taps=64, max_delay=64, sigma=0.3, projection=True)


class Subject:
    """One model with random weights, its programs, and what they are to give."""

    def __init__(self, quick: bool):
        torch.manual_seed(0)
        self.model = Model(config(quick)).eval()
        random = np.random.default_rng(0)
        self.x = random.standard_normal((STEPS, self.model.config.inputs)).astype(np.float32)
        program = optimise(from_model(self.model))
        calibration = random.standard_normal((1, 500, self.model.config.inputs)).astype(np.float32)
        small = quantise(program, calibrate(program, [calibration]), precision="int16")
        self.programs: dict[str, Program] = {"float32": program, "int8": small}
        self.inputs = {name: quantise_input(each, self.x) for name, each in self.programs.items()}
        self.expected = {name: self._expected(name) for name in self.programs}

    def _expected(self, precision: str) -> Array:
        program = self.programs[precision]
        return dequantise_output(program, Interpreter(program).run(self.inputs[precision][None])[0])

    def errors(self, outputs: Array, precision: str) -> dict[str, float]:
        """The largest difference over the largest output: from the interpreter, and of integers from float32 too."""
        found = {"error": _distance(outputs, self.expected[precision])}
        if precision != "float32":
            found["error_to_float32"] = _distance(outputs, self.expected["float32"])
        return found

    def describe(self) -> dict[str, Any]:
        """Sizes."""
        c, programs = self.model.config, self.programs
        names = ("inputs", "outputs", "dim", "depth", "taps", "max_delay", "sigma", "projection", "readout")
        return {
            **{name: getattr(c, name) for name in names},
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "weight_bytes": {name: program.parameter_bytes for name, program in programs.items()},
            "state_bytes": {name: program.state_bytes for name, program in programs.items()},
        }


def _distance(y: Array, expected: Array) -> float:
    return float(np.abs(y - expected).max() / np.abs(expected).max())


@dataclass
class Contender:
    """`outputs` of all inputs from the beginning; `seconds` of one step, as the mean over so many."""

    outputs: Callable[[], Array]
    seconds: Callable[[int], float]
    precision: str = "float32"
    least: int = 1
    """Steps of a sample at least."""


def stepping(outputs: Callable[[], Array], step: Callable[[Array], object], x: Array) -> Contender:
    """A contender that is called from Python step by step."""
    rows = list(x)

    def seconds(count: int) -> float:
        begin = time.perf_counter()
        for t in range(count):
            step(rows[t % len(rows)])
        return (time.perf_counter() - begin) / count

    return Contender(outputs, seconds)


# Contenders in this process -------------------------------------------------------------------------------------------


def c_runs(subject: Subject, precision: str, each: bool) -> Contender:
    """C built for this machine: many steps in one call, or `each` in a call of its own from Python."""
    try:
        compiler()
    except ValueError as error:
        raise UnavailableError(str(error)) from None
    compiled = compile(subject.programs[precision])
    x = subject.inputs[precision].astype(compiled.program.precision)

    def outputs() -> Array:
        compiled.reset()
        return dequantise_output(compiled.program, compiled.run(x))

    def seconds(count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count // STEPS):
            compiled.run(x)
        return (time.perf_counter() - begin) / (count // STEPS * STEPS)

    if each:
        contender = stepping(outputs, compiled.step, x)
        contender.precision = precision
        return contender
    return Contender(outputs, seconds, precision, STEPS)


def _session(subject: Subject) -> Any:
    try:
        import onnxruntime

        from mgrade.deploy.onnx import to_onnx

        model = to_onnx(subject.programs["float32"]).SerializeToString()
    except (ImportError, ValueError) as error:
        raise UnavailableError(str(error)) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def onnx_run(subject: Subject) -> Contender:
    """onnxruntime as its examples call it: arrays in, arrays out."""
    session = _session(subject)
    names = [output.name.removeprefix("next_") for output in session.get_outputs()]
    feeds: dict[str, Array] = {}

    def step(x: Array) -> Array:
        feeds["x"] = x[None]
        y, *states = session.run(None, feeds)
        feeds.update(zip(names[1:], states, strict=True))
        return y[0]

    def outputs() -> Array:
        feeds.update((value.name, np.zeros(value.shape, np.float32)) for value in session.get_inputs())
        return np.stack([step(x) for x in subject.x])

    outputs()
    return stepping(outputs, step, subject.x)


def onnx_bound(subject: Subject) -> Contender:
    """onnxruntime at its best: everything bound once, two sets of state buffers that change places."""
    session = _session(subject)
    x = np.zeros((1, subject.x.shape[1]), np.float32)
    y = np.zeros(subject.expected["float32"][:1].shape, np.float32)
    states = {value.name: value.shape for value in session.get_inputs() if value.name != "x"}
    sets = [{name: np.zeros(shape, np.float32) for name, shape in states.items()} for _ in range(2)]
    bindings = []
    for before, after in (sets, sets[::-1]):
        binding = session.io_binding()
        for name, array in (("x", x), *before.items()):
            binding.bind_input(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
        for name, array in (("y", y), *((f"next_{name}", array) for name, array in after.items())):
            binding.bind_output(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
        bindings.append(binding)
    turn = 0

    def step(row: Array) -> Array:
        nonlocal turn
        x[0] = row
        session.run_with_iobinding(bindings[turn])
        turn ^= 1
        return y

    def outputs() -> Array:
        for array in (array for one in sets for array in one.values()):
            array.fill(0)
        return np.concatenate([step(row).copy() for row in subject.x])

    return stepping(outputs, step, subject.x)


def torch_model(subject: Subject) -> Contender:
    """Model.step as it is, which makes its kernels anew from the positions of their taps at every step."""
    return _in_torch(subject, subject.model.step, lambda: subject.model.initial_state(1))


def torch_folded(subject: Subject, compiled: bool) -> Contender:
    """The operations of the program, with its constants, by the functions of PyTorch; or through torch.compile."""
    step = litert.Step(subject.programs["float32"]).eval()
    run = torch.compile(step) if compiled else step

    def folded(x: torch.Tensor, state: list[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        y, *after = run(x, *state)
        return y, after

    return _in_torch(subject, folded, step.states)


def _in_torch(
    subject: Subject, run: Callable[..., tuple[torch.Tensor, Any]], begin_state: Callable[[], Any]
) -> Contender:
    state = begin_state()
    rows = [torch.from_numpy(row[None]) for row in subject.x]

    @torch.inference_mode()
    def step(t: int) -> torch.Tensor:
        nonlocal state
        y, state = run(rows[t % len(rows)], state)
        return y

    def outputs() -> Array:
        nonlocal state
        state = begin_state()
        return np.concatenate([step(t).numpy() for t in range(len(rows))])

    def seconds(count: int) -> float:
        begin = time.perf_counter()
        for t in range(count):
            step(t)
        return (time.perf_counter() - begin) / count

    return Contender(outputs, seconds)


# Contenders in processes of their own, which answer line by line ------------------------------------------------------


class Worker:
    """A process that answers requests, JSON by JSON; its own clock measures."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes)

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer; a RuntimeError where there is none."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the process ended"}
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def close(self) -> None:
        """Lets it end."""
        with contextlib.suppress(BrokenPipeError):
            self.process.communicate(timeout=30)

    def contender(self, x: Array, precision: str = "float32", **request: Any) -> Contender:
        """What it runs, as a contender."""

        def outputs() -> Array:
            return np.array(self.ask(x=x.tolist(), **request)["outputs"])

        def seconds(count: int) -> float:
            return 1e-6 * float(self.ask(steps=count, **request)["microseconds"])

        return Contender(outputs, seconds, precision, least=10)


def _save_wasm(subject: Subject, folder: Path) -> None:
    if missing := wasm.available():
        raise UnavailableError(missing)
    for precision, program in subject.programs.items():
        wasm.save_wasm(program, folder, f"model_{precision}")
    shutil.copy(HERE / "steps.js", folder)


def _fresh(stack: contextlib.ExitStack) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mgrade-bench-")))


class Workers:
    """Processes, started when first asked for and ended together."""

    def __init__(self, subject: Subject, python: str | None, stack: contextlib.ExitStack):
        self.subject, self.python, self.stack = subject, python or sys.executable, stack

    @functools.cached_property
    def node(self) -> Worker:
        """Node, with the WebAssembly modules beside it."""
        program = shutil.which("node")
        if program is None:
            raise UnavailableError("node is not installed")
        folder = _fresh(self.stack)
        _save_wasm(self.subject, folder)
        return self._start([program, "steps.js"], folder)

    @functools.cached_property
    def litert(self) -> Worker:
        """A Python that converts and runs the program with LiteRT."""
        check = "import litert_torch, ai_edge_litert.interpreter"
        found = subprocess.run([self.python, "-c", check], capture_output=True, check=False)
        if found.returncode:
            raise UnavailableError(
                "litert-torch and ai-edge-litert are not installed; --litert names a Python with them"
            )
        folder = _fresh(self.stack)
        save_program(self.subject.programs["float32"], folder / "program")
        paths = os.pathsep.join((str(HERE.parent / "src"), str(HERE.parent)))
        environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        return self._start([self.python, "-m", "benchmarks.litert", "program"], folder, environment)

    def _start(self, command: list[str], folder: Path, environment: Mapping[str, str] | None = None) -> Worker:
        worker = Worker(command, folder, environment)
        self.stack.callback(worker.close)
        return worker


def contenders(subject: Subject, workers: Workers, compiled: bool) -> dict[str, Callable[[], Contender]]:
    """Who takes part, by name."""

    def in_node(precision: str) -> Contender:
        return workers.node.contender(subject.x, precision, model=f"model_{precision}")

    def not_asked() -> Contender:
        raise UnavailableError("only with --compile")

    part = functools.partial
    return {
        OURS: part(c_runs, subject, "float32", False),
        "mgrade C, int8": part(c_runs, subject, "int8", False),
        "mgrade C, float32, called from Python": part(c_runs, subject, "float32", True),
        "mgrade C, int8, called from Python": part(c_runs, subject, "int8", True),
        "mgrade WebAssembly in Node, float32": part(in_node, "float32"),
        "mgrade WebAssembly in Node, int8": part(in_node, "int8"),
        "LiteRT, invoke alone": lambda: workers.litert.contender(subject.x, copy=False),
        "LiteRT, with its states": lambda: workers.litert.contender(subject.x, copy=True),
        "onnxruntime, bound": part(onnx_bound, subject),
        "onnxruntime, run": part(onnx_run, subject),
        "PyTorch, eager, constants folded": part(torch_folded, subject, False),
        "PyTorch, compiled, constants folded": part(torch_folded, subject, True) if compiled else not_asked,
        "PyTorch, eager, Model.step": part(torch_model, subject),
    }


def compare(subject: Subject, builds: Mapping[str, Callable[[], Contender]], repeats: int) -> dict[str, dict[str, Any]]:
    """Builds everyone, checks what they compute, and takes samples in rotation."""
    results: dict[str, dict[str, Any]] = {}
    ready: dict[str, tuple[Contender, int]] = {}
    for name, build in builds.items():
        with _noted(results, name):
            contender = build()
            results[name] = checked(subject, contender.outputs(), contender.precision)
            contender.seconds(contender.least)
            estimate = min(contender.seconds(max(10, contender.least)) for _ in range(2))
            whole = max(1, round(SAMPLE_SECONDS / estimate / contender.least))
            ready[name] = contender, whole * contender.least
            results[name]["steps_per_sample"] = whole * contender.least
    samples: dict[str, list[float]] = {name: [] for name in ready}
    order = list(ready)
    gc.collect()
    gc.disable()
    try:
        for turn in range(repeats):
            first = turn % max(len(order), 1)
            for name in order[first:] + order[:first]:
                contender, count = ready[name]
                contender.seconds(max(contender.least, count // 10))  # its weights come back into the cache
                samples[name].append(contender.seconds(count))
    finally:
        gc.enable()
    for name, times in samples.items():
        results[name] |= timing(times)
    return results


@contextlib.contextmanager
def _noted(results: dict[str, dict[str, Any]], name: str) -> Any:
    """Why there is no result, in its place."""
    try:
        yield
    except UnavailableError as reason:
        results[name] = {"unavailable": str(reason)}
    except Exception as error:
        results[name] = {"failed": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"}


def checked(subject: Subject, outputs: Array, precision: str) -> dict[str, Any]:
    """The errors; a ValueError if another function is computed."""
    errors = subject.errors(outputs, precision)
    if not errors["error"] <= (MOST_ERROR if precision == "float32" else 0.0):
        raise ValueError(f"its outputs differ from the interpreter's by {errors['error']:.2g} of the largest")
    return {"precision": precision, **errors}


def timing(times: list[float]) -> dict[str, Any]:
    """`measure.summary`, and the 10th percentile: what a step takes where nothing comes between."""
    tenth = statistics.quantiles(times, n=10)[0] if len(times) > 9 else min(times)
    return {"tenth": tenth, **measure.summary(times)}


def relate(results: Mapping[str, dict[str, Any]], ours: Mapping[str, Any]) -> None:
    """Adds how many times as long as mgrade's C everyone takes."""
    for result in results.values():
        if "tenth" in result and "tenth" in ours:
            result["over_mgrade_c"] = result["tenth"] / ours["tenth"]
            result["over_mgrade_c_median"] = result["median"] / ours["median"]


# In a browser ---------------------------------------------------------------------------------------------------------


def browser(subject: Subject, repeats: int, web: bool) -> dict[str, dict[str, Any]]:
    """WebAssembly in a page of headless Chromium, in rotation, and with `web` onnxruntime-web beside it."""
    names = {f"mgrade WebAssembly in Chromium, {precision}": f"model_{precision}" for precision in PRECISIONS}
    other = "onnxruntime-web in Chromium"
    results: dict[str, dict[str, Any]] = {}
    with contextlib.ExitStack() as stack:
        folder = _fresh(stack)
        with _noted(results, other):
            if not web:
                raise UnavailableError("only with --web, which installs it by npm into a temporary folder")
            _add_onnx_web(subject, folder)
            names[other] = "onnx"
        try:
            program = next(filter(None, map(shutil.which, BROWSERS)), None)
            if program is None:
                raise UnavailableError(f"none of {', '.join(BROWSERS)} is installed")
            _save_wasm(subject, folder)
            counts = {name: 10 if model == "onnx" else STEPS for name, model in names.items()}
            jobs = [(name, {"model": names[name], "x": subject.x.tolist()}) for name in names]
            jobs += [
                (name, {"model": names[name], "steps": counts[name]}) for _ in range(repeats + 5) for name in names
            ]
            answers = browse(program, folder, [job for _, job in jobs])
        except UnavailableError as reason:
            return {**{name: {"unavailable": str(reason)} for name in names}, **results}
        except Exception as error:
            return {**{name: {"failed": f"{type(error).__name__}: {error}"} for name in names}, **results}
    for name in names:
        mine = [answer for (owner, _), answer in zip(jobs, answers, strict=True) if owner == name]
        with _noted(results, name):
            if errors := [answer["error"] for answer in mine if "error" in answer]:
                raise RuntimeError(errors[0])
            precision = "int8" if name.endswith("int8") else "float32"
            results[name] = checked(subject, np.array(mine[0]["outputs"]), precision)
            results[name]["steps_per_sample"] = counts[name]
            results[name] |= timing([1e-6 * answer["microseconds"] for answer in mine[6:]])
    return results


def _add_onnx_web(subject: Subject, folder: Path) -> None:
    """The ONNX export, the shapes of its states, and the package from npm's registry."""
    npm = shutil.which("npm")
    if npm is None:
        raise UnavailableError("npm is not installed")
    try:
        from mgrade.deploy.onnx import to_onnx

        model = to_onnx(subject.programs["float32"])
    except ValueError as error:
        raise UnavailableError(str(error)) from None
    words = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder), "onnxruntime-web"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError("npm cannot install onnxruntime-web here")
    package = folder / "node_modules" / "onnxruntime-web" / "dist"
    for file in ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm"):
        shutil.copy(package / file, folder)
    (folder / "onnx.onnx").write_bytes(model.SerializeToString())
    shapes = {
        value.name: [size.dim_value for size in value.type.tensor_type.shape.dim]
        for value in model.graph.input
        if value.name != "x"
    }
    (folder / "onnx.shapes.json").write_text(json.dumps(shapes))


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, in a page that may read an exact clock; what it posts goes into a queue."""

    protocol_version = "HTTP/1.0"
    extensions_map = {  # noqa: RUF012
        **{".js": "text/javascript", ".mjs": "text/javascript", ".html": "text/html", ".wasm": "application/wasm"},
        **{".json": "application/json", "": "application/octet-stream"},
    }

    def __init__(self, *arguments: Any, posted: queue.Queue[bytes], **named: Any):
        self.posted = posted
        super().__init__(*arguments, **named)

    def end_headers(self) -> None:
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def do_POST(self) -> None:
        self.posted.put(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def browse(program: str, folder: Path, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers of a page in `folder` to all jobs."""
    (folder / "jobs.json").write_text(json.dumps(jobs))
    (folder / "page.html").write_text('<!doctype html><script type="module" src="steps.js"></script>\n')
    posted: queue.Queue[bytes] = queue.Queue()
    handler = functools.partial(_Handler, directory=str(folder), posted=posted)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={folder / 'user'}"]
        address = f"http://127.0.0.1:{server.server_port}/page.html"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen([program, *flags, "--remote-debugging-port=0", address], **quiet)
        try:
            answers: list[dict[str, Any]] = json.loads(posted.get(timeout=180))
            return answers
        except queue.Empty:
            raise RuntimeError("the page gave no answer within 180 s") from None
        finally:
            process.terminate()
            process.wait(30)
            server.shutdown()


# On chips -------------------------------------------------------------------------------------------------------------


def chips(subject: Subject) -> dict[str, dict[str, dict[str, Any]]]:
    """Chip -> precision -> instructions of a step, bytes of flash and RAM; emulated, the same on every run."""
    return {name: {precision: _on_chip(subject, name, precision) for precision in PRECISIONS} for name in chip.CHIPS}


def _on_chip(subject: Subject, name: str, precision: str) -> dict[str, Any]:
    if missing := chip.available(name):
        return {"unavailable": missing}
    results: dict[str, dict[str, Any]] = {}
    with _noted(results, precision), tempfile.TemporaryDirectory(prefix="mgrade-bench-") as folder:
        program = subject.programs[precision]
        for file, text in print_c(program, "model").items():
            (Path(folder) / file).write_text(text, encoding="utf-8")
        run = chip.run(folder, "model", subject.inputs[precision].astype(program.precision), chip=name)
        results[precision] = {
            **checked(subject, dequantise_output(program, run.outputs), precision),
            "instructions": run.instructions_max,
            "instructions_min": run.instructions_min,
            "flash": run.flash,
            "ram": run.ram,
            "stack": run.stack_bytes,
            "compiler": run.compiler,
        }
    return results[precision]


# The run --------------------------------------------------------------------------------------------------------------


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Parsed options."""
    parser = argparse.ArgumentParser(description="One streaming step, deployed: mgrade and other runtimes, one core")
    parser.add_argument("--out", type=Path, default=report.ROOT / "results" / "bench", help="folder for the JSON file")
    parser.add_argument("--repeats", type=int, default=300, help="samples per contender (default: %(default)s)")
    parser.add_argument("--compile", action="store_true", help="PyTorch through torch.compile too")
    parser.add_argument("--web", action="store_true", help="onnxruntime-web too: npm installs it, for this run")
    parser.add_argument("--litert", metavar="PYTHON", help="a Python that has litert-torch, if this one has not")
    parser.add_argument("--quick", action="store_true", help="a smoke run: a small model, two samples, no browser")
    parser.add_argument("--commit", help="what to record as commit where there is no git")
    options = parser.parse_args(argv)
    if options.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {options.repeats}")
    if options.quick:
        options.repeats = min(options.repeats, 2)
    options.skip_peers = True  # the peers of training
    return options


def versions(python: str | None) -> dict[str, str | None]:
    """The programs and packages that take part, beyond those of every benchmark; None for what is not there."""
    found: dict[str, str | None] = {}
    for package in ("onnx", "onnxruntime"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    said_by = "print(v('ai-edge-litert'), 'with litert-torch', v('litert-torch'))"
    ask = f"from importlib.metadata import version as v; {said_by}"
    commands: dict[str, Iterable[str]] = {
        "c_compiler": (shutil.which("gcc") or shutil.which("cc") or "clang", "--version"),
        "node": ("node", "--version"),
        "chromium": (next(filter(None, map(shutil.which, BROWSERS)), BROWSERS[0]), "--version"),
        "litert": (python or sys.executable, "-c", ask),
        "qemu": ("qemu-system-arm", "--version"),
    }
    for name, words in commands.items():
        try:
            said = subprocess.run([*words], capture_output=True, text=True, check=True).stdout
            found[name] = said.strip().splitlines()[0]
        except (OSError, subprocess.CalledProcessError):
            found[name] = None
    return found


def main(argv: list[str] | None = None) -> int:
    """Runs everything, prints tables, writes the file; the exit status."""
    options = parse(argv)
    torch.set_num_threads(1)
    document = report.header(options, "cpu")
    document["versions"] |= versions(options.litert)
    document["units"] = "seconds and bytes; errors over the largest output; over_mgrade_c: against " + OURS
    report.show_header(document)

    subject = Subject(options.quick)
    document["model"] = subject.describe()
    with contextlib.ExitStack() as stack:
        workers = Workers(subject, options.litert, stack)
        steps = compare(subject, contenders(subject, workers, options.compile), options.repeats)
    if options.quick:
        names = (*(f"mgrade WebAssembly in Chromium, {each}" for each in PRECISIONS), "onnxruntime-web in Chromium")
        steps |= {name: {"unavailable": "not in a smoke run"} for name in names}
    else:
        steps |= browser(subject, min(options.repeats, 100), options.web)
    relate(steps, steps[OURS])
    document["streaming_step"] = {"threads": 1, "contenders": steps}
    document["chips"] = chips(subject)
    show(document)
    return report.finish(document, options.out, "deploy.json")


def show(document: dict[str, Any]) -> None:
    """The two tables."""
    rows = [_row(name, result) for name, result in document["streaming_step"]["contenders"].items()]
    columns = ("contender", "us, 10th percentile", "us, median", "over mgrade C", "error")
    report.table("One streaming step, one core", columns, rows)
    rows = []
    for name, runs in document["chips"].items():
        for precision, run in runs.items():
            figures = [f"{run[key]:,}" if key in run else "" for key in ("instructions", "flash", "ram")]
            missing = run.get("unavailable") or run.get("failed")
            rows.append((name, precision, *([missing, "", ""] if missing else figures)))
    report.table("One streaming step, emulated", ("chip", "precision", "instructions", "flash, B", "RAM, B"), rows)


def _row(name: str, result: dict[str, Any]) -> tuple[str, ...]:
    if "tenth" not in result:
        missing = f"unavailable: {result['unavailable']}" if "unavailable" in result else f"FAILED {result['failed']}"
        return name, missing, "", "", ""
    return (
        name,
        f"{result['tenth'] * 1e6:.2f}",
        f"{result['median'] * 1e6:.2f}",
        f"{result['over_mgrade_c']:.2f}x" if "over_mgrade_c" in result else "",
        f"{result['error']:.1e}" if result["error"] else "none",
    )


if __name__ == "__main__":
    sys.exit(main())
