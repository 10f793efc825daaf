"""Runs a program under QEMU and reads the report of its harness; harness.c is the other side."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mgrade.deploy.chip.cores import QEMU, ChipError, Core

# Every instruction takes 2^7 ns of the emulated clock, more than two ticks of either board's counter. The difference of
# two readings is off by less than one tick, so it gives the number of instructions exactly.
_SHIFT = 7
_LOOP = 2 + 2 * 5000  # instructions of the harness's loop, to check the counter
_MOST = 10**9  # instructions of a step; beyond, the counter wraps

_DONE, _FAULT, _MISMATCH, _NO_FILE, _WRAPPED = 0, 101, 102, 103, 104


class Report(NamedTuple):
    """The words of the harness's report."""

    input_letter: int
    input_bytes: int
    inputs: int
    output_letter: int
    output_bytes: int
    outputs: int
    state_bytes: int
    stack_bytes: int
    code_bytes: int
    constant_bytes: int
    static_bytes: int
    empty_ticks: int
    loop_ticks: int
    step: int
    fault_status: int
    fault_address: int
    fault_code: int


def emulate(
    program: Path, core: Core, inputs: npt.NDArray[Any], timeout: float
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], Report]:
    """Runs `inputs` (sequences, steps, inputs); returns outputs (sequences, steps, outputs), instructions, report."""
    folder = program.parent
    sequences, steps, width = inputs.shape
    header = struct.pack("<5I", ord(inputs.dtype.kind), inputs.itemsize, width, sequences * steps, steps)
    little = np.ascontiguousarray(inputs, inputs.dtype.newbyteorder("<"))
    (folder / "inputs.bin").write_bytes(header + little.tobytes())
    status, said = _qemu(program, core, timeout)
    if status not in (_DONE, _FAULT, _MISMATCH, _WRAPPED):
        what = "could not use its files" if status == _NO_FILE else f"ended with status {status}"
        raise ChipError(f"{core.name}: the emulator {what}{': ' if said else ''}{said}")

    report = Report(*struct.unpack(f"<{len(Report._fields)}I", (folder / "report.bin").read_bytes()))
    if status == _MISMATCH:
        wanted = _dtype(report.input_letter, report.input_bytes)
        raise ValueError(f"inputs must be {wanted} (steps, {report.inputs}), got {inputs.dtype} {inputs.shape[1:]}")
    if status == _FAULT:
        raise ChipError(f"{core.name}: step {report.step}: {_fault(program, report)}")
    if status == _WRAPPED:
        raise ChipError(f"{core.name}: step {report.step} takes more than {_MOST:,} instructions")
    kind = _dtype(report.output_letter, report.output_bytes).newbyteorder("<")
    outputs = np.frombuffer((folder / "outputs.bin").read_bytes(), kind).reshape(sequences, steps, report.outputs)
    ticks = np.frombuffer((folder / "ticks.bin").read_bytes(), "<u4").reshape(sequences, steps)
    return outputs.astype(kind.newbyteorder("=")), _instructions(core, ticks, report), report


def _qemu(program: Path, core: Core, timeout: float) -> tuple[int, str]:
    """Runs the emulator; returns its exit status and the last line that it printed, except warnings."""
    machine = ["-M", core.machine, "-kernel", program.name, "-icount", f"shift={_SHIFT},sleep=off"]
    nothing = ["-nographic", "-monitor", "none", "-serial", "none", "-nic", "none"]
    words = [QEMU, *machine, *nothing, "-semihosting-config", "enable=on,target=native"]
    try:
        done = subprocess.run(
            words, cwd=program.parent, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise ChipError(f"{core.name}: the run did not end within {timeout:g} s") from None
    said = [line for line in done.stderr.decode(errors="replace").splitlines() if "warning:" not in line]
    return done.returncode, said[-1] if said else ""


def _instructions(core: Core, ticks: npt.NDArray[np.uint32], report: Report) -> npt.NDArray[np.int64]:
    """Instructions of each step from its first to its return, without those of the harness around it."""
    ticks_each = 2**_SHIFT * core.counter / 1e9
    counted = np.rint(np.array([report.empty_ticks, report.loop_ticks]) / ticks_each).astype(np.int64)
    around = counted[0] - 1  # `empty` has one instruction
    if counted[1] - around != _LOOP:
        raise ChipError(f"{core.name}: this QEMU's counter gives {counted[1] - around} for {_LOOP} instructions")
    return np.rint(ticks / ticks_each).astype(np.int64) - around


def _dtype(letter: int, size: int) -> np.dtype[Any]:
    return np.dtype(f"{chr(letter)}{size}")


# Bits of the Configurable Fault Status Register, the most specific first.
_FAULTS = (
    (1 << 4 | 1 << 12 | 1 << 20, "the stack overflowed"),
    (1 << 16, "undefined instruction"),
    (1 << 0 | 1 << 8, "jump to an address without code"),
    (1 << 17 | 1 << 18, "jump to an address that is not a function"),
    (1 << 19, "an instruction of a unit that the chip lacks"),
    (1 << 24, "unaligned access"),
    (1 << 25, "division by zero"),
    (1 << 1 | 1 << 7 | 1 << 9 | 1 << 15, "access to address {address:#010x}, where there is no memory"),
)


def _fault(program: Path, report: Report) -> str:
    status = report.fault_status
    unknown = f"a fault of status {status:#010x}"
    what = next((words for bits, words in _FAULTS if status & bits), unknown).format(address=report.fault_address)
    return f"{what}, {_place(program, report.fault_code)}" if report.fault_code else what


def _place(program: Path, code: int) -> str:
    """The function, file and line of an address."""
    words = ["arm-none-eabi-addr2line", "-f", "-s", "-e", str(program), f"{code:#x}"]
    lines = subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()
    return f"in {lines[0]} ({lines[1]})" if len(lines) > 1 and lines[0] != "??" else f"at {code:#010x}"
