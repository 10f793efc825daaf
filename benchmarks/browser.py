"""A deployed step in headless Chromium: mgrade's WebAssembly and onnxruntime-web."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import queue
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import UnavailableError
from benchmarks.runtimes import BROWSERS, fresh_folder, save_wasm_modules
from benchmarks.subject import PRECISIONS, STEPS, Subject, checked, noted, timing


def browser(subject: Subject, repeats: int, web: bool) -> dict[str, dict[str, Any]]:
    """Times WebAssembly in headless Chromium and, with `web`, onnxruntime-web, in rotation."""
    names = {f"mgrade WebAssembly in Chromium, {precision}": f"model_{precision}" for precision in PRECISIONS}
    other = "onnxruntime-web in Chromium"
    results: dict[str, dict[str, Any]] = {}
    with contextlib.ExitStack() as stack:
        folder = fresh_folder(stack)
        with noted(results, other):
            if not web:
                raise UnavailableError("only with --web, which installs it by npm into a temporary folder")
            _add_onnx_web(subject, folder)
            names[other] = "onnx"
        try:
            program = next(filter(None, map(shutil.which, BROWSERS)), None)
            if program is None:
                raise UnavailableError(f"none of {', '.join(BROWSERS)} is installed")
            save_wasm_modules(subject, folder)
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
        with noted(results, name):
            if errors := [answer["error"] for answer in mine if "error" in answer]:
                raise RuntimeError(errors[0])
            precision = "int8" if name.endswith("int8") else "float32"
            results[name] = checked(subject, np.array(mine[0]["outputs"]), precision)
            results[name]["steps_per_sample"] = counts[name]
            results[name] |= timing([1e-6 * answer["microseconds"] for answer in mine[6:]])
    return results


def _add_onnx_web(subject: Subject, folder: Path) -> None:
    """Adds the ONNX export, the shapes of its states, and the package from npm."""
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
    """Serves a folder with headers that allow precise clocks; puts what pages post into a queue."""

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
    """Runs all jobs in a page in `folder`; returns their answers."""
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
