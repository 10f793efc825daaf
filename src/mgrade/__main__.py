"""`mgrade` and `python -m mgrade`: the command line; a signal during the slow imports ends it without a traceback."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn


def main() -> None:
    """Runs the command line."""
    # Waiting threads sleep: spinning gains little on an idle machine and costs much on a busy one. OpenMP reads this
    # once, when PyTorch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    heeded = [number for number, handler in before.items() if handler != signal.SIG_IGN]
    for number in heeded:
        signal.signal(number, _leave)
    from mgrade.cli import main as command

    for number in heeded:
        signal.signal(number, before[number])
    command()


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Exits at once: no work has started, and half-imported modules need no cleanup."""
    if number == signal.SIGINT:
        print("mgrade: interrupted", file=sys.stderr, flush=True)
    os._exit(128 + number)


if __name__ == "__main__":
    main()
