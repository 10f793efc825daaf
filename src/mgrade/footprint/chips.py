"""Chips: their memory and speed, and whether a model fits.

Memory is in bytes. K and M on a microcontroller's data sheet are 1024-based; figures given as "about" or in the paper
are read as decimal, the smaller reading. `flash` 0 means a single memory: there is no internal flash, or weights cannot
be read from it in place, so parameters and buffer share the RAM.
"""

from __future__ import annotations

import difflib
from typing import NamedTuple

K, M = 1024, 1024 * 1024


class Chip(NamedTuple):
    """A chip, or a board if that is what people buy."""

    name: str
    core: str
    """The core that would run the model, by its name in `MACS_PER_CYCLE`; empty for others."""
    mhz: float | None
    ram: int
    flash: int
    source: str
    note: str = ""

    def fits(self, parameters: int, buffer: int) -> bool:
        """Whether this many bytes of parameters and of buffer fit, with nothing else in memory."""
        return fits(parameters, buffer, self.ram, self.flash)

    def capacity(self, precision: str) -> float | None:
        """Multiply-accumulates per second of one core; None if unknown."""
        rate = MACS_PER_CYCLE.get(self.core, {}).get(precision)
        return None if rate is None or self.mhz is None else rate * self.mhz * 1e6


# Assumptions, for compiled code on one core. float32: a whole step of a model, activations and norms included; int8:
# matrix products alone. Rounded down from emulated instruction counts of the Cortex-M55 (vector instructions), M4 and
# M0+, at one instruction per cycle, without caches or wait states. The M7 and M33 are assumed as fast as the M4.
MACS_PER_CYCLE: dict[str, dict[str, float]] = {
    "Cortex-M55": {"float32": 0.8, "int8": 1.5},
    "Cortex-M7": {"float32": 0.2, "int8": 0.35},
    "Cortex-M33": {"float32": 0.2, "int8": 0.35},
    "Cortex-M4": {"float32": 0.2, "int8": 0.35},
    "Cortex-M0+": {"float32": 0.0045},
}

_PAPER = "the paper, Appendix C (on-chip memory)"
CHIPS = (
    Chip("STM32N657", "Cortex-M55", 800, 4_200_000, 0, "Zephyr: boards/st/stm32n6570_dk", "4.2 MB; no flash inside"),
    Chip("STM32H743", "Cortex-M7", 480, 1 * M, 2 * M, "Zephyr: boards/st/nucleo_h743zi"),
    Chip("STM32F446", "Cortex-M4", 180, 128 * K, 512 * K, "Zephyr: boards/st/nucleo_f446re"),
    Chip("STM32F407", "Cortex-M4", 168, 192 * K, 1 * M, "Zephyr: boards/st/stm32f4_disco", "64 KB of the RAM apart"),
    Chip(
        "ESP32-S3", "Xtensa LX7", 240, 512 * K, 0, "Zephyr: boards/espressif/common", "the module's flash not counted"
    ),
    Chip("RP2040", "Cortex-M0+", 133, 264 * K, 2 * M, "Zephyr: boards/raspberrypi/rpi_pico", "the Pico's flash"),
    Chip("RP2350", "Cortex-M33", 150, 520 * K, 4 * M, "Zephyr: boards/raspberrypi/rpi_pico2", "the Pico 2's flash"),
    Chip("nRF52840", "Cortex-M4", 64, 256 * K, 1 * M, "Zephyr: dts/arm/nordic/nrf52840.dtsi", "Arduino Nano 33 BLE"),
    Chip("nRF5340", "Cortex-M33", 128, 512 * K, 1 * M, "Zephyr: boards/nordic/nrf5340dk", "application core"),
    Chip("Apollo4 Plus", "Cortex-M4", 192, 11 * M // 4, 2 * M, "Zephyr: boards/ambiq/apollo4p_evb"),
    Chip("MAX78000", "Cortex-M4", 100, 128 * K, 512 * K, "Zephyr: boards/adi/max78000evkit", "accelerator not counted"),
    Chip("MAX78002", "Cortex-M4", 120, 384 * K, 5 * M // 2, "Zephyr: boards/adi/max78002evkit", "likewise"),
    Chip("Coral Dev Board Micro", "Cortex-M7", 800, 64 * M, 0, "coral.ai: data sheet", "SDRAM; NAND is not mapped"),
    Chip("Coral Edge TPU", "", None, 8_000_000, 0, _PAPER),
    Chip("Syntiant NDP250", "", None, 6_000_000, 0, _PAPER),
    Chip("SiMa MLSoC", "", None, 4_000_000, 0, _PAPER, "about 4 MB"),
    Chip("Versal AI Edge Gen 2", "", None, 2_000_000, 0, _PAPER),
)


def fits(parameters: int, buffer: int, ram: int, flash: int) -> bool:
    """Parameters in flash and buffer in RAM, or both in RAM if there is no flash."""
    return parameters + buffer <= ram if flash == 0 else parameters <= flash and buffer <= ram


def find_chip(name: str) -> Chip:
    """The chip of that name, or the only one of a family, as STM32N6; case, spaces and dashes do not matter."""
    wanted = _plain(name)
    for chip in CHIPS:
        if _plain(chip.name) == wanted:
            return chip
    begins = [chip for chip in CHIPS if wanted and _plain(chip.name).startswith(wanted)]
    if len(begins) == 1 and _plain(begins[0].name).removeprefix(wanted).isdigit():  # but an ESP32 is not an ESP32-S3
        return begins[0]
    names = {_plain(chip.name): chip.name for chip in CHIPS}
    near = [chip.name for chip in begins] or [names[key] for key in difflib.get_close_matches(wanted, names, 1, 0.6)]
    every = ", ".join(chip.name for chip in CHIPS)
    hint = f"did you mean {' or '.join(map(repr, near))}? There" if near else "there"
    raise ValueError(f"there is no chip {name!r}; {hint} are: {every}")


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
