"""A task's figures of a program are those of its interpreter, whoever runs it."""

import numpy as np
import pytest
import torch

from deploy.programs import inputs_of, integer, program_of
from mgrade.deploy.c import host
from mgrade.deploy.judge import Streamed
from mgrade.nn import ModelConfig


def test_the_last_steps_are_those_of_all():
    program = program_of("mgrade", readout="every")
    config = ModelConfig.mgrade(inputs=program.inputs, outputs=program.outputs, dim=4, depth=1)
    streamed, x = Streamed(program, config), torch.from_numpy(inputs_of(program, streams=2, time=9))
    assert torch.equal(streamed(x, last=3)[0], streamed(x)[0][:, 6:])


@pytest.mark.parametrize("why", [ValueError("no C compiler found"), RuntimeError("gcc failed")])
@pytest.mark.parametrize("readout", ["mean", "every"])
def test_compiled_and_interpreted_give_the_same_outputs(readout, why, monkeypatch):
    program = integer(program_of("mgrade", readout=readout))
    config = ModelConfig.mgrade(inputs=program.inputs, outputs=program.outputs, dim=4, depth=1, readout=readout)
    x = torch.from_numpy(np.asarray(inputs_of(program, streams=5, time=23), np.float32))
    lengths = None if readout == "every" else torch.tensor([23, 1, 7, 22, 12])
    compiled = Streamed(program, config)(x, lengths=lengths)[0]

    def none(_):
        raise why

    monkeypatch.setattr(host, "compile", none)
    interpreted = Streamed(program, config)(x, lengths=lengths)[0]
    assert compiled.shape == ((5, program.outputs) if lengths is not None else (5, 23, program.outputs))
    assert torch.equal(compiled, interpreted)
    assert compiled.unique().numel() > 1
