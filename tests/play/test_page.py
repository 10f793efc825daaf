"""The page in Chromium: its controls, what it shows, at every size, and from any server."""

import functools
import http.server
import threading

import numpy as np
import pytest

from deploy.programs import inputs_of, integer, program_of
from mgrade.deploy.about import About
from mgrade.play import write_site
from play.pages import RATE, press, sound_program
from play.sites import assert_answers, files_of, served


def test_keys_and_what_is_shown(page):
    """Space, full stop and R; figures of the cost; the answer is the largest of the bars."""
    program = program_of(readout="mean")
    about = About(title="Small <b>", labels=("a", "b", "<i>", "d"))
    with served(files_of(program, about)) as server:
        page.open(server.address)
        page.until("window.playground && playground.playing")
        press(page, " ")
        page.until("!playground.playing")
        steps = page.evaluate("playground.engine.steps")
        press(page, ".")
        page.until(f"playground.engine.steps === {steps + 1}")
        press(page, "r")
        page.until("playground.engine.since === 0")
        press(page, ".")
        page.until("playground.engine.since === 1 && document.getElementById('cost').textContent.includes('µs')")
        page.until("document.querySelector('.best') !== null")
        shown = page.evaluate("document.querySelector('.best .name').textContent")
        outputs = page.evaluate("Array.from(playground.engine.outputs)")
        assert shown == ("a", "b", "<i>", "d")[int(np.argmax(outputs))]
        assert page.evaluate("document.getElementById('winner').textContent") == shown
        assert page.evaluate("document.querySelector('h1').textContent") == "Small <b>"
        cost = page.evaluate("document.getElementById('cost').innerText")
        assert f"{program.parameter_bytes:,} B" in cost
        assert page.evaluate("crossOriginIsolated")  # fine timers
        assert page.complaints == []


@pytest.mark.parametrize("kind", ["sound", "channels", "tokens"])
def test_no_size_is_too_small(page, kind):
    """From a phone to a wide screen, light and dark, nothing sticks out, whatever the source."""
    names = tuple(f"a rather long name of class {index}" for index in range(3))
    program, about = {
        "sound": (sound_program(readout="mean"), About(labels=names, samples_per_second=RATE)),
        "channels": (integer(program_of(inputs=12, outputs=3)), About(title="x" * 80, labels=names)),
        "tokens": (program_of(tokens=True, inputs=40, outputs=3), About()),
    }[kind]
    examples = [(inputs_of(program, 1, 30)[0], 1)]
    with served(files_of(program, about, examples)) as server:
        for width, dark in ((360, False), (700, True), (1600, True)):
            page.resize(width, 800, dark)
            page.open(server.address)
            page.until("window.playground")
            sources = page.evaluate("Array.from(document.querySelectorAll('#sources input:enabled'), (i) => i.value)")
            assert "test" in sources
            for source in sources:
                page.evaluate(f"playground.choose('{source}'), playground.play()")
                page.until("playground.engine.steps > 0")
                wide = page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, f"{source} at {width}: {wide}"
                out = page.evaluate(STICKING_OUT)
                assert out == [], f"{source} at {width}: {out}"
        assert page.complaints == []


STICKING_OUT = """
Array.from(document.querySelectorAll("main *"))
  .filter((one) => one.getBoundingClientRect().width > 0)
  .filter((one) => one.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
  .map((one) => `${one.tagName}.${one.className}`)
"""


def test_a_folder_runs_from_any_static_server(page, tmp_path):
    """The same files, without the headers and the token."""
    program = program_of()
    files = files_of(program)
    write_site(files, tmp_path / "public")
    assert {path.name: path.read_bytes() for path in (tmp_path / "public").iterdir()} == files
    handler = functools.partial(Quiet, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page.open(f"http://127.0.0.1:{server.server_port}/public/")
        page.until("window.playground && playground.engine.steps > 10")
        record = page.evaluate("playground.record()")
        assert page.complaints == []
        server.shutdown()
    assert_answers(program, record, 10)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass
