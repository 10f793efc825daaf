"""A Program in place of a model, so that tasks can evaluate it over whole batches as they evaluate a model."""

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
    """Called like a model, but runs step by step: compiled, or interpreted where there is no C compiler."""

    training = False

    def __init__(self, program: Program, config: ModelConfig):
        self.program, self.config = program, config
        self._compiled = compile_if_possible(program)

    def eval(self) -> Streamed:
        """Does nothing; models have this method."""
        return self

    def train(self, mode: bool = True) -> Streamed:
        """Does nothing; models have this method."""
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
        """Runs rows in as many threads as PyTorch uses: calls into C release Python's global lock."""

        def one(row: int) -> Array:
            outputs = compiled.another().run(values[row, : ends[row]])
            return outputs if self.config.readout == "every" else outputs[-1]

        with ThreadPoolExecutor(torch.get_num_threads()) as threads:
            return np.stack(list(threads.map(one, range(len(values)))))
