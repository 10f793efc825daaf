"""Headless Chromium for tests: one page, driven through the DevTools protocol over a pair of pipes."""

import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# Chromium reads commands from descriptor 3 and answers on 4; copies above both keep one from closing the other
LAUNCHER = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for end, number in zip(ends, (3, 4)):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Page:
    """A page: `open`, `evaluate`, `resize`; what it complains of gathers in `complaints`."""

    def __init__(self, send, receive):
        self._send, self._receive = send, receive
        self._buffer = b""
        self._numbers = itertools.count(1)
        self._session = None
        self.complaints = []
        self._loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, timeout=30, **parameters):
        """One command of the protocol, and its answer."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + timeout
        while True:
            answer = self._next(until, method)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def open(self, address, timeout=30):
        """Goes to an address and waits until it has loaded."""
        self._loaded = False
        answer = self.call("Page.navigate", url=address)
        assert "errorText" not in answer, f"{address}: {answer['errorText']}"
        until = time.monotonic() + timeout
        while not self._loaded:
            self._next(until, address)

    def evaluate(self, expression, timeout=30):
        """The value of a JavaScript expression; a promise is waited for, an exception fails the test."""
        more = {"returnByValue": True, "awaitPromise": True, "userGesture": True}
        answer = self.call("Runtime.evaluate", timeout, expression=expression, **more)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression, timeout=20):
        """Waits until an expression is true, and returns its value."""
        end = time.monotonic() + timeout
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < end, f"still not so after {timeout} s: {expression}; {self.complaints}"
            time.sleep(0.05)
        return value

    def resize(self, width, height=900, dark=False):
        """Another size of the window, light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def _next(self, until, wanted):
        """The next message; events are taken note of on the way."""
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._receive], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"Chromium did not answer in time: {wanted}; {self.complaints}"
            part = os.read(self._receive, 1 << 20)
            assert part, f"Chromium ended: {wanted}"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(line)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method, facts):
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.exceptionThrown":
            details = facts["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and facts["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(word.get("value", word.get("description"))) for word in facts["args"]))
        elif method == "Log.entryAdded" and facts["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{facts['entry']['text']} {facts['entry'].get('url', '')}")


@contextlib.contextmanager
def chromium(folder, *flags):
    """A page of a fresh headless Chromium whose files lie in `folder`; the test is skipped where there is none."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("chromium is not installed")
    usual = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"]
    theirs, send = os.pipe()
    receive, back = os.pipe()
    launcher = [sys.executable, "-S", "-c", LAUNCHER, str(theirs), str(back)]
    command = [program, *usual, f"--user-data-dir={folder / 'chromium'}", "--remote-debugging-pipe", *flags]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([*launcher, *command], pass_fds=(theirs, back), **quiet)
    os.close(theirs)
    os.close(back)
    try:
        yield Page(send, receive)
    finally:
        process.kill()
        process.wait()
        os.close(send)
        os.close(receive)
