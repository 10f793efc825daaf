"""What the tests of the page in Chromium do with it: visit, feed, wait, and read what it recorded."""

import wave

import numpy as np

from deploy.programs import program_of
from mgrade.deploy.about import About

RATE = 8000
FAKE = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
FAST = About(steps_per_second=100.0)
SOUND = About(title="Tones", labels=("low", "high", "none"), samples_per_second=RATE, gain=2.0)


def sound_program(**fields):
    """One channel of sound in, three classes out."""
    return program_of(**{"inputs": 1, "outputs": 3, "dim": 8, **fields})


def write_wav(path, samples, rate):
    """samples (time), or (time, channels)."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.int16(np.round(samples * 32767)).tobytes())
    return path


def visit(page, server, source=None):
    """Opens the page, stops it and lets it begin anew, with a source chosen."""
    page.open(server.address)
    page.until("window.playground")
    page.evaluate("playground.pause()")
    if source:
        page.evaluate(f"playground.choose('{source}')")


# Stops the page by itself: on a busy machine, whoever asks from outside comes so late that the record has moved on.
STOP_AFTER = """
globalThis.first = playground.engine.steps;
globalThis.reached = false;
globalThis.watch = setInterval(() => {
  if (playground.engine.steps < first + STEPS) return;
  clearInterval(watch);
  globalThis.said = document.querySelector(".said").textContent;
  playground.pause();
  globalThis.reached = true;
}, 5);
"""


def run_until(page, steps):
    """Plays for so many steps more; what was fed and answered since a stream began."""
    page.evaluate(STOP_AFTER.replace("STEPS", str(steps)))
    page.evaluate("playground.play()")
    page.until("reached")
    return since(page.evaluate("playground.record()"), page.evaluate("first"))


def since(record, first):
    """The part of a record that begins with step `first`."""
    begin = first - record["first"]
    assert begin >= 0
    return {**record, "first": first, "inputs": record["inputs"][begin:], "outputs": record["outputs"][begin:]}


def give_file(page, path):
    root = page.call("DOM.getDocument")["root"]["nodeId"]
    node = page.call("DOM.querySelector", nodeId=root, selector="input[type=file]")["nodeId"]
    page.call("DOM.setFileInputFiles", files=[str(path)], nodeId=node)


def heard(page, server, clip, steps):
    """Plays a file for so many steps, and more; what was fed and answered."""
    visit(page, server, "wav")
    before = page.evaluate("playground.engine.steps")
    give_file(page, clip)
    page.until(f"playground.engine.steps >= {before + steps}")
    page.evaluate("playground.pause()")
    return page.evaluate("playground.record()")


def press(page, key):
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key=key, text=key)
