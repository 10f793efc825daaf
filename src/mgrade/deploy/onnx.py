"""A float32 Program as an ONNX model of one step, with standard operators; states are inputs and outputs.

    inputs   x (1, inputs) float32, or token (1) int64        state_3, ...: the state of operation 3
    outputs  y (1, outputs) float32                           next_state_3, ...: the value of state_3 at the next step

States start at zero; the model declares their shapes and types. Delay lines hold past rows, the newest last. The line
of a `taps_input` has one more column, which is 1 in rows that have been written; a `mean` counts its steps in an extra
state, state_3_steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import mgrade
from mgrade.deploy.interpreter import MOST_STEPS
from mgrade.deploy.program import Op, Program

if TYPE_CHECKING:
    import onnx

Array = npt.NDArray[Any]

FORMAT, VERSION = "mgrade-onnx", 1
# The first opset with LayerNormalization, and the IR version of its time: most runtimes support them.
OPSET, IR_VERSION = 17, 8
MOST_BYTES = 2_000_000_000  # one protobuf message


def to_onnx(program: Program) -> onnx.ModelProto:
    """The step of a float32 program; needs the package onnx."""
    if program.integer:
        raise ValueError(
            f"ONNX export is float32: precision must be float32, got int8 weights, {program.precision} values"
        )
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise ValueError("ONNX export needs the package onnx: pip install mgrade[onnx]") from None
    if program.parameter_bytes > MOST_BYTES:
        raise ValueError(f"an ONNX file holds {MOST_BYTES} bytes of weights, got {program.parameter_bytes}")
    return _Graph(program).model()


class _Graph:
    """Collects nodes, constants and states."""

    def __init__(self, program: Program):
        self.program = program
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[tuple[str, tuple[int, ...], bytes], tuple[str, Array]] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        x = ("token", np.int64, 1) if program.tokens else ("x", np.float32, 1, program.inputs)
        self.values = [self._input(*x)]
        for index, op in enumerate(program.ops):
            self.values.append(getattr(self, f"_{op.kind}")(op, index, *(self.values[value] for value in op.args)))
        self._node("Identity", self.values[-1], name="y")
        self.outputs.insert(0, _described("y", np.float32, [1, program.outputs]))

    def model(self) -> onnx.ModelProto:
        """The finished model."""
        from onnx import helper, numpy_helper

        arrays = [numpy_helper.from_array(array, name) for name, array in self.constants.values()]
        graph = helper.make_graph(self.nodes, "step", self.inputs, self.outputs, arrays)
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="mgrade")
        model.producer_version = mgrade.__version__
        properties = {"format": FORMAT, "version": str(VERSION), "precision": self.program.precision}
        helper.set_model_props(model, properties)
        return model

    # Pieces of a graph.

    def _node(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Appends a node; returns the name of its output."""
        from onnx import helper

        name = name or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def _constant(self, array: npt.ArrayLike, dtype: Any = np.float32) -> str:
        """The name of a constant; equal constants share one."""
        array = np.ascontiguousarray(np.asarray(array, dtype))
        key = (array.dtype.str, np.shape(array), array.tobytes())
        return self.constants.setdefault(key, (f"constant_{len(self.constants)}", array))[0]

    def _input(self, name: str, dtype: Any, *shape: int) -> str:
        self.inputs.append(_described(name, dtype, shape))
        return name

    def _state(self, index: int, *shape: int, dtype: Any = np.float32, part: str = "") -> str:
        return self._input(f"state_{index}{part}", dtype, *shape)

    def _next(self, index: int, *shape: int, dtype: Any = np.float32, part: str = "") -> str:
        """The name of a state's next value, which a node must produce."""
        name = f"next_state_{index}{part}"
        self.outputs.append(_described(name, dtype, shape))
        return name

    # Linear maps.

    def _linear(self, op: Op, index: int, x: str) -> str:
        return self._node("Gemm", x, *(self._constant(op.arrays[name]) for name in ("weight", "bias")), transB=1)

    def _embed(self, op: Op, index: int, token: str) -> str:
        return self._node("Gather", self._constant(op.arrays["table"]), token, axis=0)

    def _scale(self, op: Op, index: int, x: str) -> str:
        return self._node("Mul", x, self._constant(op.arrays["weight"][None]))

    # Delays.

    def _line(self, op: Op, index: int, newest: str, *width: int, dtype: Any = np.float32) -> tuple[str, Array]:
        """The delay line (rows, *width) including the newest row, and the row of every lag."""
        lag = op.arrays["lag"].astype(np.int64)
        past = int(lag.max(initial=0))
        if not past:
            return newest, lag
        line = self._node("Concat", self._state(index, past, *width, dtype=dtype), newest, axis=0)
        bounds = (self._constant([bound], np.int64) for bound in (1, past + 1, 0))
        self._node("Slice", line, *bounds, name=self._next(index, past, *width, dtype=dtype))
        return line, past - lag

    def _weighted(self, past: str, weight: Array) -> str:
        """past, weight (taps, o) -> the sum over taps (1, o), as a matrix product with ones, which runtimes do fast."""
        products = self._node("Mul", past, self._constant(weight))
        if len(weight) == 1:
            return products
        return self._node("MatMul", self._constant(np.ones((1, len(weight)))), products)

    def _taps(self, op: Op, index: int, x: str) -> str:
        weight = op.arrays["weight"]
        line, rows = self._line(op, index, x, len(weight))
        past = self._node("GatherElements", line, self._constant(rows.T, np.int64), axis=0)
        return self._weighted(past, weight.T)

    def _filter(self, op: Op, index: int, x: str) -> str:
        weight = op.arrays["weight"]
        line, rows = self._line(op, index, x, weight.shape[1])
        order = np.argsort(rows)
        length = int(op.arrays["lag"].max(initial=0)) + 1
        if np.array_equal(rows[order], np.arange(length)):  # every row once: nothing to gather
            return self._weighted(line, weight[order])
        return self._weighted(self._node("Gather", line, self._constant(rows, np.int64), axis=0), weight)

    def _taps_token(self, op: Op, index: int, token: str) -> str:
        """The line holds token ids plus one; zero means no token yet, which contributes nothing."""
        weight, table = op.arrays["weight"], op.arrays["table"]
        line, rows = self._line(op, index, self._node("Add", token, self._constant([1], np.int64)), dtype=np.int64)
        tokens = self._node("Gather", line, self._constant(rows.T, np.int64), axis=0)
        silent = np.concatenate([np.zeros((1, table.shape[1])), table])
        return self._weighted(self._node("GatherElements", self._constant(silent), tokens, axis=0), weight.T)

    def _taps_input(self, op: Op, index: int, x: str) -> str:
        """The column of ones makes the bias count only for delays within the stream so far."""
        weight = op.arrays["weight"]
        (channels, taps), width = weight.shape, self.program.widths[op.args[0]] + 1
        marked = self._node("Concat", x, self._constant([[1.0]]), axis=1)
        line, rows = self._line(op, index, marked, width)
        length = int(op.arrays["lag"].max(initial=0)) + 1
        mix = np.concatenate([op.arrays["mix"], op.arrays["bias"][:, None]], 1)
        if length <= 2 * taps:  # dense rows are no larger than the taps
            dense = np.zeros((channels, length), np.float32)
            np.add.at(dense, (np.arange(channels)[:, None], rows), weight)
            delayed = self._node("MatMul", self._constant(dense), line)  # (o, width)
        else:
            past = self._node("Gather", line, self._constant(rows, np.int64), axis=0)  # (o, taps, width)
            product = self._node("MatMul", self._constant(weight[:, None]), past)
            delayed = self._node("Reshape", product, self._constant([channels, width], np.int64))
        mixed = self._node("Mul", delayed, self._constant(mix))
        total = self._node("MatMul", mixed, self._constant(np.ones((width, 1))))
        return self._node("Reshape", total, self._constant([1, channels], np.int64))

    # Recurrences.

    def _gated(self, op: Op, index: int, gate: str, candidate: str) -> str:
        width = self.program.widths[index + 1]
        hidden, take = self._state(index, 1, width), self._node("Sigmoid", gate)
        change = self._node("Mul", take, self._node("Sub", candidate, hidden))
        return self._node("Add", hidden, change, name=self._next(index, 1, width))

    def _rotate(self, op: Op, index: int, drive: str) -> str:
        """h = decay h + drive on pairs of real and imaginary parts; a gather swaps the two parts of a pair."""
        decay, width = op.arrays["decay"], self.program.widths[index + 1]
        turn, lift = np.repeat(decay[:, 0], 2), np.repeat(decay[:, 1], 2) * np.tile([-1, 1], len(decay))
        hidden = self._state(index, 1, width)
        other = self._node("Gather", hidden, self._constant(np.arange(width) ^ 1, np.int64), axis=1)
        own = self._node("Mul", hidden, self._constant(turn[None]))
        kept = self._node("Add", own, self._node("Mul", other, self._constant(lift[None])))
        return self._node("Add", kept, drive, name=self._next(index, 1, width))

    # Elementwise.

    def _norm(self, op: Op, index: int, x: str) -> str:
        arrays = (self._constant(op.arrays[name]) for name in ("scale", "shift"))
        return self._node("LayerNormalization", x, *arrays, axis=-1, epsilon=float(op.numbers["eps"]))

    def _gelu(self, op: Op, index: int, x: str) -> str:
        """x sigmoid(1.5957691 x + 0.0713548 x^3), whose operators every runtime has."""
        factor = 1.5957691216057308
        square = self._node("Mul", self._node("Mul", x, x), self._constant([[0.044715 * factor]]))
        argument = self._node("Mul", x, self._node("Add", square, self._constant([[factor]])))
        return self._node("Mul", x, self._node("Sigmoid", argument))

    def _glu(self, op: Op, index: int, x: str, gate: str) -> str:
        return self._node("Mul", x, self._node("Sigmoid", gate))

    def _add(self, op: Op, index: int, a: str, b: str) -> str:
        return self._node("Add", a, b)

    # Readouts over all steps so far.

    def _mean(self, op: Op, index: int, x: str) -> str:
        """From MOST_STEPS on, halves the total and the count, so that the counter does not overflow."""
        width, whole, part = self.program.widths[index + 1], np.int64, "_steps"
        total, steps = self._state(index, 1, width, dtype=np.float64), self._state(index, 1, dtype=whole, part=part)
        many = self._node("GreaterOrEqual", steps, self._constant([MOST_STEPS], whole))
        share = self._node("Where", many, self._constant([0.5], np.float64), self._constant([1.0], np.float64))
        parts = self._node("Where", many, self._constant([2], whole), self._constant([1], whole))
        total = self._added(self._node("Mul", total, share), index, x)
        count = self._next(index, 1, dtype=whole, part=part)
        steps = self._node("Add", self._node("Div", steps, parts), self._constant([1], whole), name=count)
        return self._node("Div", total, self._node("Cast", steps, to=_type(np.float32)))

    def _sum(self, op: Op, index: int, x: str) -> str:
        return self._added(self._state(index, 1, self.program.widths[index + 1], dtype=np.float64), index, x)

    def _added(self, total: str, index: int, x: str) -> str:
        """Adds x to a total kept in double precision; returns it in single precision."""
        after = self._next(index, 1, self.program.widths[index + 1], dtype=np.float64)
        total = self._node("Add", total, self._node("Cast", x, to=_type(np.float64)), name=after)
        return self._node("Cast", total, to=_type(np.float32))


def _type(dtype: Any) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _described(name: str, dtype: Any, shape: Sequence[int]) -> onnx.ValueInfoProto:
    from onnx import helper

    return helper.make_tensor_value_info(name, _type(dtype), list(shape))
