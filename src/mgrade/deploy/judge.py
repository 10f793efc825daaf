"""A Program in the place of a model: tasks judge it as they judge a model, over whole batches."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mgrade.deploy.c.host import Compiled, compile_if_possible
from mgrade.deploy.interpreter import Interpreter, dequantise_output, quantise_input
from mgrade.deploy.program import Program
from mgrade.nn import ModelConfig

Array = npt.NDArray[Any]


class Streamed:
    """Calls like a model's, answered step by step: by the compiled program, or without a C compiler the interpreter."""

    training = False

    def __init__(self, program: Program, config: ModelConfig):
        self.program, self.config = program, config
        self._compiled = compile_if_possible(program)

    def eval(self) -> Streamed:
        """As a model has it."""
        return self

    def train(self, mode: bool = True) -> Streamed:
        """As a model has it."""
        return self

    def __call__(self, x: Tensor, *, lengths: Tensor | None = None, last: int | None = None) -> tuple[Tensor, None]:
        """x (batch, time, …) -> (batch, time, outputs), or its `last` steps; or (batch, outputs) after each row's last
        valid step."""
        values = quantise_input(self.program, x.numpy())
        whole = np.full(len(values), values.shape[1])
        ends = whole if lengths is None or self.config.readout == "every" else lengths.numpy()
        outputs = torch.from_numpy(dequantise_output(self.program, self._run(values, ends)))
        return outputs if last is None else outputs[:, outputs.shape[1] - last :], None

    def _run(self, values: Array, ends: Array) -> Array:
        if self._compiled is not None:
            return self._execute(self._compiled, values, ends)
        outputs = Interpreter(self.program, len(values)).run(values)
        return outputs if self.config.readout == "every" else outputs[np.arange(len(values)), ends - 1]

    def _execute(self, compiled: Compiled, values: Array, ends: Array) -> Array:
        """Row by row, in as many threads as PyTorch has: the C program holds no lock of Python's."""

        def one(row: int) -> Array:
            outputs = compiled.another().run(values[row, : ends[row]])
            return outputs if self.config.readout == "every" else outputs[-1]

        with ThreadPoolExecutor(torch.get_num_threads()) as threads:
            return np.stack(list(threads.map(one, range(len(values)))))
