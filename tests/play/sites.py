"""Small playgrounds for the tests of this folder, and what the interpreter says about them."""

import contextlib
import threading

import numpy as np
import pytest

from mgrade.deploy import Interpreter, dequantise_output, quantise_input, wasm
from mgrade.deploy.about import About
from mgrade.play import Exhibit, Server, site


def exhibit(program, about=None, examples=()):
    """A program with its module; the test is skipped where none can be made."""
    if missing := wasm.available():
        pytest.skip(missing)
    return Exhibit("small", program, wasm.to_wasm(program, "small"), about or About(), tuple(examples))


def files_of(program, about=None, examples=()):
    return site(exhibit(program, about, examples))


@contextlib.contextmanager
def served(files):
    """A server for the length of a test."""
    with Server(files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def replayed(program, record):
    """What the interpreter gives for the inputs that a page recorded; it begins anew where the page did."""
    interpreter, outputs = Interpreter(program), []
    assert record["first"] in record["begins"], "the record begins in the middle of a stream"
    for number, x in enumerate(record["inputs"], record["first"]):
        if number in record["begins"]:
            interpreter.reset()
        whole = np.array(x, np.int64) if program.tokens else quantise_input(program, np.float32([x]))
        outputs.append(dequantise_output(program, interpreter.step(whole))[0])
    return np.stack(outputs)


def assert_answers(program, record, steps):
    """At least so many steps, and every output the interpreter's: to rounding, and of whole numbers to the bit."""
    outputs = np.float32(record["outputs"])
    assert len(outputs) >= steps
    expected = replayed(program, record)
    if program.integer:
        np.testing.assert_array_equal(outputs, expected)
    else:
        np.testing.assert_allclose(outputs, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
