"""`mgrade` and `python -m mgrade`: the command line, which a signal also ends quietly while it is being imported."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn


def main() -> None:
    """Runs the command line."""
    # Threads that wait for one another sleep: spinning gains little on a free machine, and loses much on a busy one.
    # OpenMP reads this once, when PyTorch is imported.
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
    """Leaves at once: nothing has been begun, and what is half imported need not be taken down."""
    if number == signal.SIGINT:
        print("mgrade: interrupted", file=sys.stderr, flush=True)
    os._exit(128 + number)


if __name__ == "__main__":
    main()
