"""The runtimes of a deployed step: mgrade's C, WebAssembly in Node, onnxruntime, LiteRT and PyTorch."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import litert
from benchmarks.measure import UnavailableError
from benchmarks.subject import STEPS, Array, Subject
from mgrade.deploy import (
    compile,
    dequantise_output,
    save_program,
    wasm,
)
from mgrade.deploy.c.host import compiler

HERE = Path(__file__).resolve().parent
# All times are relative to this contender.
OURS = "mgrade C, float32"
SAMPLE_SECONDS = 0.002
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass
class Contender:
    """`outputs` of all inputs from a fresh state; `seconds` of one step, averaged over a number of steps."""

    outputs: Callable[[], Array]
    seconds: Callable[[int], float]
    precision: str = "float32"
    least: int = 1
    """The least number of steps per sample."""


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
    """C built for this machine: many steps in one call, or with `each` one call from Python per step."""
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
    """onnxruntime as in its examples: arrays in, arrays out."""
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
    """onnxruntime at its best: everything is bound once, with two sets of state buffers that swap."""
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
    """Plain Model.step, which checks at every step that its kernels are up to date."""
    return _in_torch(subject, subject.model.step, lambda: subject.model.initial_state(1))


def torch_folded(subject: Subject, compiled: bool) -> Contender:
    """The program's operations in PyTorch with its constants; optionally through torch.compile."""
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
    """A process that answers JSON requests and measures with its own clock."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes)

    def ask(self, **request: Any) -> dict[str, Any]:
        """Sends a request and returns the answer; raises a RuntimeError if there is none."""
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
        """Ends the process."""
        with contextlib.suppress(BrokenPipeError):
            self.process.communicate(timeout=30)

    def contender(self, x: Array, precision: str = "float32", **request: Any) -> Contender:
        """A contender that it runs."""

        def outputs() -> Array:
            return np.array(self.ask(x=x.tolist(), **request)["outputs"])

        def seconds(count: int) -> float:
            return 1e-6 * float(self.ask(steps=count, **request)["microseconds"])

        return Contender(outputs, seconds, precision, least=10)


def save_wasm_modules(subject: Subject, folder: Path) -> None:
    if missing := wasm.available():
        raise UnavailableError(missing)
    for precision, program in subject.programs.items():
        wasm.save_wasm(program, folder, f"model_{precision}")
    shutil.copy(HERE / "steps.js", folder)


def fresh_folder(stack: contextlib.ExitStack) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mgrade-bench-")))


class Workers:
    """Processes that start on first use and end together."""

    def __init__(self, subject: Subject, python: str | None, stack: contextlib.ExitStack):
        self.subject, self.python, self.stack = subject, python or sys.executable, stack

    @functools.cached_property
    def node(self) -> Worker:
        """Node with the WebAssembly modules."""
        program = shutil.which("node")
        if program is None:
            raise UnavailableError("node is not installed")
        folder = fresh_folder(self.stack)
        save_wasm_modules(self.subject, folder)
        return self._start([program, "steps.js"], folder)

    @functools.cached_property
    def litert(self) -> Worker:
        """Another Python that converts and runs the program with LiteRT."""
        check = "import litert_torch, ai_edge_litert.interpreter"
        found = subprocess.run([self.python, "-c", check], capture_output=True, check=False)
        if found.returncode:
            raise UnavailableError(
                "litert-torch and ai-edge-litert are not installed; --litert names a Python with them"
            )
        folder = fresh_folder(self.stack)
        save_program(self.subject.programs["float32"], folder / "program")
        paths = os.pathsep.join((str(HERE.parent / "src"), str(HERE.parent)))
        environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        return self._start([self.python, "-m", "benchmarks.litert", "program"], folder, environment)

    def _start(self, command: list[str], folder: Path, environment: Mapping[str, str] | None = None) -> Worker:
        worker = Worker(command, folder, environment)
        self.stack.callback(worker.close)
        return worker


def contenders(subject: Subject, workers: Workers, compiled: bool) -> dict[str, Callable[[], Contender]]:
    """All contenders by name."""

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
