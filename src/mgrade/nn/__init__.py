"""Modules: convolutions, recurrences, the one block that composes them, and the model.

Every module runs over any number of steps with its state in and out. mGRADE and the paper's baselines are
settings of one block (`ModelConfig`), not copies of it.
"""

from mgrade.nn.block import GLU, MLP, Block
from mgrade.nn.config import ModelConfig
from mgrade.nn.convolution import DelayConv, DilatedConv
from mgrade.nn.model import Model, State
from mgrade.nn.readout import PairHead, Readout
from mgrade.nn.recurrence import LRU, MinGRU
from mgrade.nn.storage import load

__all__ = [
    "GLU",
    "LRU",
    "MLP",
    "Block",
    "DelayConv",
    "DilatedConv",
    "MinGRU",
    "Model",
    "ModelConfig",
    "PairHead",
    "Readout",
    "State",
    "load",
]
