"""From a trained model to a device: `Program`, its passes, quantisation, and the back ends that print it.

>>> program = optimise(from_model(model))                       # float32, the model's outputs
>>> small = quantise(program, calibrate(program, sequences))    # int8 weights, int16 activations
>>> compiled = compile(small)                                   # C, built for this machine
>>> compiled.step(quantise_input(small, x_t))
"""

from mgrade.deploy.c import Compiled, compile, print_c
from mgrade.deploy.choices import Choices, build
from mgrade.deploy.convert import from_model
from mgrade.deploy.export import check_target, read_export, verify, write_export
from mgrade.deploy.footprint import measure_program, open_program
from mgrade.deploy.interpreter import Interpreter, dequantise_output, quantise_input
from mgrade.deploy.passes import narrow, optimise, prune, trim
from mgrade.deploy.program import Op, Program, StatePart, Unit
from mgrade.deploy.quantise import Ranges, calibrate, quantise
from mgrade.deploy.source import Source, open_source
from mgrade.deploy.storage import load_program, parse_program, save_program

__all__ = [
    "Choices",
    "Compiled",
    "Interpreter",
    "Op",
    "Program",
    "Ranges",
    "Source",
    "StatePart",
    "Unit",
    "build",
    "calibrate",
    "check_target",
    "compile",
    "dequantise_output",
    "from_model",
    "load_program",
    "measure_program",
    "narrow",
    "open_program",
    "open_source",
    "optimise",
    "parse_program",
    "print_c",
    "prune",
    "quantise",
    "quantise_input",
    "read_export",
    "save_program",
    "trim",
    "verify",
    "write_export",
]
