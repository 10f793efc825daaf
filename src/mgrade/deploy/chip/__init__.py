"""Chip in the loop: compiles generated C for an Arm Cortex-M and runs it under QEMU.

    from mgrade.deploy import chip

    measured = chip.run("vowels-c", "vowels", inputs, chip="cortex-m4")
    measured.outputs, measured.flash, measured.ram, measured.instructions

Outputs are exact to the bit. Costs are exact and reproducible: bytes as linked, stack as used, instructions as
executed. These are instructions, not cycles: caches and wait states are not modelled.
"""

from mgrade.deploy.chip.build import FLAGS
from mgrade.deploy.chip.cores import COMPILERS, CORES, ChipError, Core, available
from mgrade.deploy.chip.measure import ChipRun, run

__all__ = ["COMPILERS", "CORES", "FLAGS", "ChipError", "ChipRun", "Core", "available", "run"]
