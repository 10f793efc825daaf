"""docs/program.md, number by number: in Python's own numbers, which are never too large. For one stream."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from mgrade.deploy import Op, Program

TABLE = [round(2**24 / (1 + math.exp(k / 8))) for k in range(130)]


def R(x: int, n: int) -> int:  # noqa: N802
    """x / 2^n, rounded half up; within 64 bits all the way."""
    moved = x + (1 << (n - 1)) if n > 0 else x << -n
    assert -(1 << 63) <= moved < 1 << 63, f"{moved} leaves 64 bits"
    return moved >> max(n, 0)


def within(x: int, low: int, high: int) -> int:
    return min(max(x, low), high)


def C(x: int) -> int:  # noqa: N802
    return within(x, -32767, 32767)


def B(x: int) -> int:  # noqa: N802
    return within(x, 1 - (1 << 31), (1 << 31) - 1)


def sigmoid(x: int, exponent: int) -> int:
    u = C(R(x, exponent - 11))
    k, r = divmod(abs(u), 256)
    slope = TABLE[k + 1] - TABLE[k]
    low = TABLE[k] + R(slope * r - ((TABLE[k + 2] - TABLE[k + 1] - slope) * r * (256 - r) >> 9), 8)
    return low if u < 0 else (1 << 24) - low


def reciprocal(v: int) -> tuple[int, int]:
    half = 0
    for bits in (32, 16, 8, 4, 2):
        if v < 1 << (64 - bits):
            v, half = v << bits, half + bits // 2
    m = v >> 32
    root = 2362232013 - (1342177280 * m >> 32)
    for _ in range(4):
        error = (3 << 30) - (m * (root * root >> 30) >> 32)
        assert 0 <= error < 1 << 34
        assert max(root * root, root * error, m * (root * root >> 30)) < 1 << 64
        root = root * error >> 31
    return root, half


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


class Scalar:
    """One stream through a program."""

    def __init__(self, program: Program):
        self.program, self.t = program, 0
        self.past: list[list[Any]] = [[] for _ in program.ops]
        self.hidden: list[list[Any]] = [[0] * width for width in program.widths[1:]]
        self.steps = 0

    def step(self, x: Any) -> list[Any]:
        """x, a list of numbers or a token -> the outputs."""
        values = [x]
        for index, op in enumerate(self.program.ops):
            self.index, self.width = index, self.program.widths[index + 1]
            args = [values[value] for value in op.args]
            arrays = {name: array.tolist() for name, array in op.arrays.items()}
            if "lag" in arrays:
                self.past[index].insert(0, args[0])
            values.append(getattr(self, op.kind)(op, arrays, *args))
        self.t += 1
        return values[-1]

    def e(self, value: int) -> int:
        return self.program.exponents[value]

    def S(self, x: int) -> int:  # noqa: N802
        half = 1 << (int(self.program.precision[3:]) - 1)
        return within(x, -half, half - 1)

    def rescaled(self, op: Op, total: float, multiplier: int | Fraction, down: str = "down") -> Any:
        """S(R(multiplier total, down)) of whole numbers, that fit in 32 bits before; others as they are."""
        if not self.program.integer:
            return total
        assert -(1 << 31) <= total < 1 << 31, f"{total} leaves 32 bits"
        return self.S(R(int(32 * multiplier) * int(total), int(op.numbers[down]) + 5))

    def before(self, lag: int, channel: int) -> Any:
        """An input of so many steps ago."""
        past = self.past[self.index]
        return past[lag][channel] if lag < len(past) else 0

    def multipliers(self, arrays: dict[str, Any], name: str = "multiplier") -> list[int]:
        return arrays[name] if self.program.integer else [1] * self.width

    def byte_multipliers(self, arrays: dict[str, Any]) -> list[Any]:
        """Multipliers of one byte."""
        kept = self.multipliers(arrays)
        return [Fraction((16 + m % 16) * 2 ** (m >> 4), 32) for m in kept] if self.program.integer else kept

    def linear(self, op: Op, arrays: dict[str, Any], x: list[Any]) -> list[Any]:
        up = 1 << int(op.numbers["bias_up"]) if self.program.integer else 1
        rows = zip(arrays["weight"], arrays["bias"], self.byte_multipliers(arrays), strict=True)
        return [self.rescaled(op, sum(w * v for w, v in zip(row, x, strict=True)) + b * up, m) for row, b, m in rows]

    def embed(self, op: Op, arrays: dict[str, Any], token: int) -> list[Any]:
        up = 128 if self.program.integer else 1
        row = zip(arrays["table"][token], self.byte_multipliers(arrays), strict=True)
        return [self.rescaled(op, value * up, m) for value, m in row]

    def taps(self, op: Op, arrays: dict[str, Any], x: list[Any]) -> list[Any]:
        rows = zip(arrays["weight"], arrays["lag"], self.byte_multipliers(arrays), strict=True)
        return [
            self.rescaled(op, sum(w * self.before(lag, c) for w, lag in zip(weight, lags, strict=True)), m)
            for c, (weight, lags, m) in enumerate(rows)
        ]

    def filter(self, op: Op, arrays: dict[str, Any], x: list[Any]) -> list[Any]:
        rows = list(zip(arrays["weight"], arrays["lag"], strict=True))
        return [
            self.rescaled(op, sum(weight[c] * self.before(lag, c) for weight, lag in rows), m)
            for c, m in enumerate(self.byte_multipliers(arrays))
        ]

    def taps_token(self, op: Op, arrays: dict[str, Any], token: int) -> list[Any]:
        up, past = 128 if self.program.integer else 1, self.past[self.index]
        y = []
        for c, m in enumerate(self.multipliers(arrays)):
            row = [(w, lag) for w, lag in zip(arrays["weight"][c], arrays["lag"][c], strict=True) if lag < len(past)]
            y.append(self.rescaled(op, up * sum(w * arrays["table"][past[lag]][c] for w, lag in row), m))
        return y

    def taps_input(self, op: Op, arrays: dict[str, Any], x: list[Any]) -> list[Any]:
        multipliers, y = self.multipliers(arrays), []
        one = int(op.numbers["one"]) if self.program.integer else 1
        for c, last in enumerate(self.multipliers(arrays, "mix_multiplier")):
            taps = list(zip(arrays["weight"][c], arrays["lag"][c], strict=True))
            total = arrays["bias"][c] * self.rescaled(op, one * sum(w for w, k in taps if k <= self.t), multipliers[c])
            for i, mix in enumerate(arrays["mix"][c]):
                total += mix * self.rescaled(op, sum(w * self.before(lag, i) for w, lag in taps), multipliers[c])
            y.append(self.rescaled(op, total, last, "mix_down"))
        return y

    def gated(self, op: Op, arrays: dict[str, Any], gate: list[Any], candidate: list[Any]) -> list[Any]:
        hidden = self.hidden[self.index]
        pairs = zip(hidden, gate, candidate, strict=True)
        if not self.program.integer:
            self.hidden[self.index] = [h + logistic(g) * (c - h) for h, g, c in pairs]
            return self.hidden[self.index]
        extra, e = int(op.numbers["extra"]), self.e(op.args[0])
        hidden = [h + R(((c << extra) - h) * sigmoid(g, e), 24) for h, g, c in pairs]
        self.kept(hidden)
        return [R(h, extra) for h in hidden]

    def kept(self, hidden: list[int]) -> None:
        """What is remembered fits into what it is kept in."""
        bits = int(self.program.state(self.index)[0].dtype[3:])
        assert all(-(1 << (bits - 1)) <= h < 1 << (bits - 1) for h in hidden)
        self.hidden[self.index] = hidden

    def rotate(self, op: Op, arrays: dict[str, Any], drive: list[Any]) -> list[Any]:
        hidden = self.hidden[self.index]
        made: list[Any] = []
        for i, (a, b) in enumerate(arrays["decay"]):
            re, im, x, y = *hidden[2 * i : 2 * i + 2], *drive[2 * i : 2 * i + 2]
            if self.program.integer:
                into = self.e(op.args[0]) - int(op.numbers["state_exponent"])
                made += [B(R(a * re - b * im, 30) + R(x, into)), B(R(b * re + a * im, 30) + R(y, into))]
            else:
                made += [a * re - b * im + x, b * re + a * im + y]
        if not self.program.integer:
            self.hidden[self.index] = made
            return made
        self.kept(made)
        return [self.S(R(h, int(op.numbers["state_exponent"]) - self.e(self.index + 1))) for h in made]

    def norm(self, op: Op, arrays: dict[str, Any], x: list[Any]) -> list[Any]:
        both = list(zip(x, arrays["scale"], arrays["shift"], strict=True))
        n, total = len(x), sum(x)
        if not self.program.integer:
            mean = total / n
            root = math.sqrt(sum((v - mean) ** 2 for v in x) / n + op.numbers["eps"])
            return [(v - mean) / root * scale + shift for v, scale, shift in both]
        root, half = reciprocal(sum((n * v - total) ** 2 for v in x) + int(op.numbers["epsilon"]))
        at = int(op.numbers["scale_shift"])
        return [self.S(R(R((n * v - total) * root, 38 - half) * scale, at) + shift) for v, scale, shift in both]

    def gelu(self, op: Op, arrays: dict[str, Any], x: list[Any]) -> list[Any]:
        if not self.program.integer:
            return [v * logistic(1.5957691216 * (v + 0.044715 * v**3)) for v in x]
        y = []
        for v in x:
            u = C(R(v, self.e(op.args[0]) - 12))
            slope = 6536 + ((u * u >> 12) * 2338 >> 15)
            y.append(R(v * (sigmoid(R(u * slope, 13), 11) >> 9), 15))
        return y

    def glu(self, op: Op, arrays: dict[str, Any], x: list[Any], gate: list[Any]) -> list[Any]:
        if not self.program.integer:
            return [v * logistic(g) for v, g in zip(x, gate, strict=True)]
        return [R(v * sigmoid(g, self.e(op.args[1])), 24) for v, g in zip(x, gate, strict=True)]

    def add(self, op: Op, arrays: dict[str, Any], a: list[Any], b: list[Any]) -> list[Any]:
        pairs = zip(a, b, strict=True)
        if not self.program.integer:
            return [one + other for one, other in pairs]
        ea, eb, ey = self.e(op.args[0]), self.e(op.args[1]), self.e(self.index + 1)
        f = max(ea, eb, ey)
        return [self.S(R((one << (f - ea)) + (other << (f - eb)), f - ey)) for one, other in pairs]

    def scale(self, op: Op, arrays: dict[str, Any], x: list[Any]) -> list[Any]:
        pairs = zip(x, arrays["weight"], strict=True)
        if not self.program.integer:
            return [v * w for v, w in pairs]
        return [self.S(R(v * w, int(op.numbers["weight_shift"]))) for v, w in pairs]

    def mean(self, op: Op, arrays: dict[str, Any], x: list[Any]) -> list[Any]:
        self.steps += 1
        total = [h + v for h, v in zip(self.hidden[self.index], x, strict=True)]
        self.hidden[self.index] = total
        if not self.program.integer:
            return [v / self.steps for v in total]
        sizes = [(2 * abs(v) + self.steps) // (2 * self.steps) for v in total]
        return [-size if v < 0 else size for v, size in zip(total, sizes, strict=True)]

    def sum(self, op: Op, arrays: dict[str, Any], x: list[Any]) -> list[Any]:
        total = [h + v for h, v in zip(self.hidden[self.index], x, strict=True)]
        self.hidden[self.index] = [B(v) for v in total] if self.program.integer else total
        return self.hidden[self.index]
