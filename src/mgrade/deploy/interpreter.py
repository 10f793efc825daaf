"""Runs a Program in NumPy, one step at a time, for many streams at once. This defines what a Program means."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mgrade.deploy import arithmetic
from mgrade.deploy.arithmetic import saturate, shift_right
from mgrade.deploy.program import Op, Program, StatePart, Unit
from mgrade.deploy.specs import BITS

Values = npt.NDArray[Any]
# After this many steps, a mean halves its total and its count, so that the counter does not overflow.
MOST_STEPS = 1 << 30


class Interpreter:
    """Runs `streams` independent streams through one program.

    Values are (streams, width): float32, or for integer programs int64.
    """

    def __init__(self, program: Program, streams: int = 1):
        if streams < 0:
            raise ValueError(f"streams must be at least 0, got {streams}")
        self.program, self.streams = program, streams
        self._wide: Any = np.int64 if program.integer else np.float32
        self._bits = BITS.get(program.precision, 0)
        self.reset()

    def reset(self) -> None:
        """Restarts every stream."""
        self.state = [
            {part.name: np.zeros((self.streams, *part.shape), _wide(part)) for part in self.program.state(index)}
            for index in range(len(self.program.ops))
        ]
        self.count = 0

    def step(self, x: npt.ArrayLike) -> Values:
        """x (streams, inputs), or token ids (streams) -> (streams, outputs).

        An integer program takes and returns integers: see `quantise_input` and `dequantise_output`.
        """
        return self.values(x)[-1]

    def values(self, x: npt.ArrayLike) -> list[Values]:
        """Runs one step and returns every value, the input first."""
        values = [checked(self.program, x, self.streams)]
        with np.errstate(all="ignore"):  # overflow becomes infinite, as in C
            for index, op in enumerate(self.program.ops):
                make = getattr(self, f"_{op.kind}")
                values.append(make(op, self.state[index], index + 1, *(values[i] for i in op.args)))
        self.count += 1
        return values

    def run(self, x: npt.ArrayLike) -> Values:
        """Continues with x (streams, time, inputs), or token ids (streams, time) -> (streams, time, outputs)."""
        x = np.asarray(x)
        if x.ndim != (2 if self.program.tokens else 3):
            raise ValueError(
                f"x must be (streams, time{'' if self.program.tokens else ', inputs'}), got shape {x.shape}"
            )
        outputs = [self.step(x[:, t]) for t in range(x.shape[1])]
        empty = np.zeros((self.streams, 0, self.program.outputs), self._wide)
        return np.stack(outputs, 1) if outputs else empty

    # Linear maps.

    def _rescaled(self, op: Op, total: Values, prefix: str = "") -> Values:
        """An integer sum rescaled to its value's exponent."""
        multiplier, down = op.arrays[f"{prefix}multiplier"], int(op.numbers[f"{prefix}down"])
        return arithmetic.rescale(total, multiplier, down, self._bits)

    def _linear(self, op: Op, state: dict[str, Values], value: int, x: Values) -> Values:
        weight, bias = (op.arrays[name].astype(self._wide) for name in ("weight", "bias"))
        if not self.program.integer:
            return x @ weight.T + bias
        return self._rescaled(op, x @ weight.T + (bias << int(op.numbers["bias_up"])))

    def _embed(self, op: Op, state: dict[str, Values], value: int, token: Values) -> Values:
        row = op.arrays["table"].astype(self._wide)[token]
        return self._rescaled(op, row << arithmetic.TABLE_BITS) if self.program.integer else row

    def _scale(self, op: Op, state: dict[str, Values], value: int, x: Values) -> Values:
        product = x * op.arrays["weight"].astype(self._wide)
        if not self.program.integer:
            return product
        return saturate(shift_right(product, int(op.numbers["weight_shift"])), self._bits)

    # Delays.

    def _push(self, line: Values, x: Values) -> int:
        """Writes x into the delay line, a ring buffer; returns the row it was written to."""
        at = self.count % line.shape[1]
        line[:, at] = x
        return at

    def _taps(self, op: Op, state: dict[str, Values], value: int, x: Values) -> Values:
        line, lag = state["line"], op.arrays["lag"].astype(np.int64)
        rows = (self._push(line, x) - lag) % line.shape[1]
        past = line[:, rows, np.arange(lag.shape[0])[:, None]]
        total = self._total(past * op.arrays["weight"].astype(self._wide), 2)
        return self._rescaled(op, total) if self.program.integer else total

    def _filter(self, op: Op, state: dict[str, Values], value: int, x: Values) -> Values:
        line, lag = state["line"], op.arrays["lag"].astype(np.int64)
        rows = (self._push(line, x) - lag) % line.shape[1]
        total = self._total(line[:, rows] * op.arrays["weight"].astype(self._wide), 1)
        return self._rescaled(op, total) if self.program.integer else total

    def _taps_token(self, op: Op, state: dict[str, Values], value: int, token: Values) -> Values:
        line, lag = state["line"], op.arrays["lag"].astype(np.int64)
        rows = (self._push(line, token + 1) - lag) % line.shape[1]
        # row 0: no token yet, which contributes nothing
        table = np.concatenate([np.zeros((1, lag.shape[0])), op.arrays["table"]]).astype(self._wide)
        past = table[line[:, rows], np.arange(lag.shape[0])[:, None]]
        total = self._total(past * op.arrays["weight"].astype(self._wide), 2)
        return self._rescaled(op, total << arithmetic.TABLE_BITS) if self.program.integer else total

    def _taps_input(self, op: Op, state: dict[str, Values], value: int, x: Values) -> Values:
        """The delayed input, mixed per channel; the bias counts only for delays within the stream so far."""
        line, lag = state["line"], op.arrays["lag"].astype(np.int64)
        weight, mix, bias = (op.arrays[name].astype(self._wide) for name in ("weight", "mix", "bias"))
        rows = (self._push(line, x) - lag) % line.shape[1]
        delayed = self._total(line[:, rows] * weight[..., None], 2)  # (streams, o, n)
        begun = np.where(lag <= self.count, weight, 0).sum(1)  # (o)
        if not self.program.integer:
            return self._total(delayed * mix, 2) + bias * begun.astype(np.float32)
        delayed = self._rescaled(op, delayed.transpose(0, 2, 1)).transpose(0, 2, 1)
        begun = self._rescaled(op, begun * int(op.numbers["one"]))
        return self._rescaled(op, (delayed * mix).sum(2) + bias * begun, "mix_")

    def _total(self, terms: Values, axis: int) -> Values:
        return terms.sum(axis, dtype=self._wide)

    # Recurrences.

    def _gated(self, op: Op, state: dict[str, Values], value: int, gate: Values, candidate: Values) -> Values:
        hidden = state["hidden"]
        if not self.program.integer:
            take = _sigmoid(gate)
            state["hidden"] = (1 - take) * hidden + take * candidate
            return state["hidden"]
        extra = int(op.numbers["extra"])
        take = arithmetic.sigmoid(gate, self.program.exponents[op.args[0]])
        state["hidden"] = hidden + shift_right(((candidate << extra) - hidden) * take, arithmetic.UNIT)
        return shift_right(state["hidden"], extra)

    def _rotate(self, op: Op, state: dict[str, Values], value: int, drive: Values) -> Values:
        """Pairs of real and imaginary parts: h = decay h + drive."""
        hidden, decay = state["hidden"], op.arrays["decay"].astype(self._wide)
        re, im, turn, lift = hidden[:, ::2], hidden[:, 1::2], decay[:, 0], decay[:, 1]
        kept = np.stack([turn * re - lift * im, lift * re + turn * im], -1).reshape(hidden.shape)
        if not self.program.integer:
            state["hidden"] = kept + drive
            return state["hidden"]
        at = int(op.numbers["state_exponent"])
        drive = shift_right(drive, self.program.exponents[op.args[0]] - at)
        state["hidden"] = arithmetic.bound(shift_right(kept, 30) + drive)
        return saturate(shift_right(state["hidden"], at - self.program.exponents[value]), self._bits)

    # Elementwise.

    def _norm(self, op: Op, state: dict[str, Values], value: int, x: Values) -> Values:
        scale, shift = (op.arrays[name].astype(self._wide) for name in ("scale", "shift"))
        if not self.program.integer:
            centred = x - x.mean(1, keepdims=True)
            variance = np.square(centred).mean(1, keepdims=True)
            return centred / np.sqrt(variance + np.float32(op.numbers["eps"])) * scale + shift
        width = x.shape[1]
        centred = width * x - x.sum(1, keepdims=True)
        power = np.square(centred).sum(1, keepdims=True) + int(op.numbers["epsilon"])
        root, half = arithmetic.reciprocal_root(power)
        unit = shift_right(centred * root, 62 - arithmetic.UNIT - half)
        return saturate(shift_right(unit * scale, int(op.numbers["scale_shift"])) + shift, self._bits)

    def _gelu(self, op: Op, state: dict[str, Values], value: int, x: Values) -> Values:
        if self.program.integer:
            return arithmetic.gelu(x, self.program.exponents[value])
        return x * _sigmoid(np.float32(1.5957691216057308) * (x + np.float32(0.044715) * x * x * x))

    def _glu(self, op: Op, state: dict[str, Values], value: int, x: Values, gate: Values) -> Values:
        if self.program.integer:
            return shift_right(x * arithmetic.sigmoid(gate, self.program.exponents[op.args[1]]), arithmetic.UNIT)
        return x * _sigmoid(gate)

    def _add(self, op: Op, state: dict[str, Values], value: int, a: Values, b: Values) -> Values:
        if not self.program.integer:
            return a + b
        exponents = [self.program.exponents[i] for i in (*op.args, value)]
        fine = max(exponents)
        total = (a << (fine - exponents[0])) + (b << (fine - exponents[1]))
        return saturate(shift_right(total, fine - exponents[2]), self._bits)

    # Readouts over all steps so far.

    def _mean(self, op: Op, state: dict[str, Values], value: int, x: Values) -> Values:
        total, steps = state["total"], state["steps"]
        if steps.max(initial=0) >= MOST_STEPS:
            total, steps = total >> 1 if self.program.integer else total / 2, steps // 2
        state["total"], state["steps"] = total + x, steps + 1
        count = int(state["steps"].max(initial=1))
        if self.program.integer:
            return arithmetic.divide(state["total"], count)
        return state["total"].astype(np.float32) / np.float32(count)

    def _sum(self, op: Op, state: dict[str, Values], value: int, x: Values) -> Values:
        total = state["total"] + x
        state["total"] = arithmetic.bound(total) if self.program.integer else total
        return state["total"].astype(self._wide)


def _wide(part: StatePart) -> Any:
    return np.dtype(part.dtype) if part.dtype.startswith("float") else np.int64


def _sigmoid(x: Values) -> Values:
    return np.float32(1) / (np.float32(1) + np.exp(-x))


def checked(program: Program, x: npt.ArrayLike, rows: int) -> Values:
    """Checks and converts x (rows, inputs), or token ids (rows): to float32, or to integers clipped to their bits."""
    x = np.asarray(x)
    shape = (rows,) if program.tokens else (rows, program.inputs)
    if x.shape != shape:
        raise ValueError(f"x must have shape {shape}, got {x.shape}")
    if x.dtype.kind not in ("iu" if program.tokens or program.integer else "biuf"):
        whole = "whole numbers" if program.tokens or program.integer else "numbers"
        raise ValueError(f"x must be {whole}, got {x.dtype}")
    if program.tokens:
        if x.size and (x.min() < 0 or x.max() >= program.inputs):
            raise ValueError(f"x must hold token ids from 0 to {program.inputs - 1}")
        return x.astype(np.int64)
    if program.integer:
        half = 1 << (BITS[program.precision] - 1)
        return np.clip(x.astype(np.int64), -half, half - 1)
    with np.errstate(over="ignore"):
        return x.astype(np.float32)


def quantise_input(program: Program, x: npt.ArrayLike) -> Values:
    """Converts real inputs to an integer program's units; token ids and the inputs of a float program are unchanged."""
    if program.tokens or not program.integer:
        return np.asarray(x)
    with np.errstate(over="ignore", invalid="ignore"):
        if program.input_units:
            offset, bits = _columns(program.input_units)
            from_there = np.asarray(x, np.float32) - offset.astype(np.float32)
            scaled = np.floor(from_there.astype(np.float64) * 2.0**bits + 0.5)
        else:
            scaled = np.floor(np.asarray(x, np.float64) * 2.0 ** program.exponents[0] + 0.5)
    half = 1 << (BITS[program.precision] - 1)
    return np.clip(np.nan_to_num(scaled), -half, half - 1).astype(np.int64)


def dequantise_output(program: Program, y: Values) -> npt.NDArray[np.float32]:
    """Converts a program's outputs to real numbers."""
    if not program.integer:
        return y.astype(np.float32)
    if program.output_units:
        offset, bits = _columns(program.output_units)
        return (offset + y * 2.0**-bits).astype(np.float32)
    return (y * 2.0 ** -program.exponents[-1]).astype(np.float32)


def _columns(units: tuple[Unit, ...]) -> tuple[Values, Values]:
    offset, bits = zip(*units, strict=True)
    return np.array(offset), np.array(bits, np.float64)
