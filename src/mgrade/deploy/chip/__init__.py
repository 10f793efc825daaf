"""Chip in the loop: generated C, compiled for an Arm Cortex-M and run with its instruction set under QEMU.

    from mgrade.deploy import chip

    measured = chip.run("vowels-c", "vowels", inputs, chip="cortex-m4")
    measured.outputs, measured.flash, measured.ram, measured.instructions

Outputs come back to the bit. Costs are exact and the same on every run: bytes as linked, stack as used, instructions
as executed. They are instructions, not cycles: no caches, no wait states.
"""

from mgrade.deploy.chip.build import FLAGS
from mgrade.deploy.chip.cores import COMPILERS, CORES, ChipError, Core, available
from mgrade.deploy.chip.measure import ChipRun, run

__all__ = ["COMPILERS", "CORES", "FLAGS", "ChipError", "ChipRun", "Core", "available", "run"]
