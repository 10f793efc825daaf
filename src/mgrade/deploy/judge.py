"""A Program in the place of a model: tasks judge it as they judge a model, over whole batches."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mgrade.deploy.interpreter import Interpreter, dequantise_output, quantise_input
from mgrade.deploy.program import Program
from mgrade.nn import ModelConfig


class Streamed:
    """Calls like a model's, answered by the interpreter step by step."""

    training = False

    def __init__(self, program: Program, config: ModelConfig):
        self.program, self.config = program, config

    def eval(self) -> Streamed:
        """As a model has it."""
        return self

    def train(self, mode: bool = True) -> Streamed:
        """As a model has it."""
        return self

    def __call__(self, x: Tensor, *, lengths: Tensor | None = None) -> tuple[Tensor, None]:
        """x (batch, time, …) -> (batch, time, outputs), or (batch, outputs) after each row's last valid step."""
        values = quantise_input(self.program, x.numpy())
        outputs = dequantise_output(self.program, Interpreter(self.program, len(values)).run(values))
        if self.config.readout == "every":
            return torch.from_numpy(outputs), None
        ends = np.full(len(values), values.shape[1]) if lengths is None else lengths.numpy()
        return torch.from_numpy(outputs[np.arange(len(values)), ends - 1]), None
