"""A float32 program in LiteRT, for benchmarks/deploy.py: a process of its own, in a Python that has litert-torch.

Its argument is a program that mgrade saved. It answers requests line by line: {"x": ...} with the outputs from the
beginning; {"steps": n, "copy": ...} with microseconds a step, the states copied from outputs to inputs or left alone.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mgrade.deploy import Op, Program, load_program


class Step(nn.Module):
    """One step of a program: x and the states of its layers -> y and the next states."""

    def __init__(self, program: Program):
        super().__init__()
        known = {"linear", "filter", "gated", "norm", "gelu", "add"}
        if unknown := {op.kind for op in program.ops} - known:
            raise ValueError(f"no translation of {', '.join(sorted(unknown))}")
        self.program = program
        for index, op in enumerate(program.ops):
            arrays = {"weight": _rows(op)} if op.kind == "filter" else op.arrays
            for name, array in arrays.items():
                self.register_buffer(f"{name}_{index}", torch.from_numpy(np.array(array)))

    def states(self) -> list[Tensor]:
        """Zeros for a delay line's past rows, newest last, or for a hidden state."""
        shapes = []
        for index, op in enumerate(self.program.ops):
            if op.kind == "filter":
                shapes.append((int(op.arrays["lag"].max()), self.program.widths[index + 1]))
            elif op.kind == "gated":
                shapes.append((1, self.program.widths[index + 1]))
        return [torch.zeros(shape) for shape in shapes]

    def forward(self, x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        values, left, after = [x], list(states), []
        for index, op in enumerate(self.program.ops):
            a, *b = (values[value] for value in op.args)
            array = {name: getattr(self, f"{name}_{index}") for name in op.arrays if name != "lag"}
            if op.kind == "linear":
                values.append(functional.linear(a, array["weight"], array["bias"]))
            elif op.kind == "filter":
                line = torch.cat([left.pop(0), a])
                after.append(line[1:])
                values.append((line * array["weight"]).sum(0, keepdim=True))
            elif op.kind == "gated":
                hidden = left.pop(0)
                values.append(hidden + torch.sigmoid(a) * (b[0] - hidden))
                after.append(values[-1])
            elif op.kind == "norm":
                scale, shift = array["scale"], array["shift"]
                values.append(functional.layer_norm(a, a.shape[-1:], scale, shift, float(op.numbers["eps"])))
            elif op.kind == "gelu":
                values.append(functional.gelu(a, approximate="tanh"))
            else:
                values.append(a + b[0])
        return values[-1], *after


def _rows(op: Op) -> Any:
    """A filter's weights (rows of its line, channels), oldest first."""
    lag = op.arrays["lag"].astype(int)
    weight = np.zeros((lag.max() + 1, op.arrays["weight"].shape[1]), np.float32)
    weight[lag.max() - lag] = op.arrays["weight"]
    return weight


class Runner:
    """The converted step on one thread."""

    def __init__(self, program: Program):
        import litert_torch
        from ai_edge_litert.interpreter import Interpreter

        step = Step(program).eval()
        x, states = torch.zeros(1, program.inputs), step.states()
        converted = litert_torch.convert(step, (x, *states))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "step.tflite"
            converted.export(str(path))
            content = path.read_bytes()
        self.interpreter = Interpreter(model_content=content, num_threads=1)
        self.interpreter.allocate_tensors()
        signature = self.interpreter.get_signature_runner("serving_default")
        inputs, outputs = signature.get_input_details(), signature.get_output_details()
        self.x, *self.before = (inputs[f"args_{i}"]["index"] for i in range(len(inputs)))
        self.y, *self.after = (outputs[f"output_{i}"]["index"] for i in range(len(outputs)))
        self.silence, *self.zeros = (tensor.numpy() for tensor in (x, *states))

    def step(self, x: Any) -> Any:
        """One step, including everything that a caller must do."""
        self.interpreter.set_tensor(self.x, x)
        self.interpreter.invoke()
        y = self.interpreter.get_tensor(self.y)
        for before, after in zip(self.before, self.after, strict=True):
            self.interpreter.set_tensor(before, self.interpreter.get_tensor(after))
        return y

    def outputs(self, x: Any) -> Any:
        """(time, inputs) -> (time, outputs), from a zero state."""
        for before, zero in zip(self.before, self.zeros, strict=True):
            self.interpreter.set_tensor(before, zero)
        return np.concatenate([self.step(row[None]) for row in np.asarray(x, np.float32)])

    def microseconds(self, steps: int, copy: bool) -> float:
        """Microseconds per step; without `copy`, states do not advance."""
        begin = time.perf_counter()
        for _ in range(steps):
            if copy:
                self.step(self.silence)
            else:
                self.interpreter.invoke()
        return 1e6 * (time.perf_counter() - begin) / steps


def main() -> None:
    """Answers requests until there are none left."""
    told, sys.stdout = sys.stdout, sys.stderr  # keeps output of libraries out of the answers
    runner = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            runner = runner or Runner(load_program(sys.argv[1]))
            if "x" in request:
                answer = {"outputs": runner.outputs(request["x"]).tolist()}
            else:
                answer = {"microseconds": runner.microseconds(request["steps"], request["copy"])}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"}
        print(json.dumps(answer), file=told, flush=True)


if __name__ == "__main__":
    main()
