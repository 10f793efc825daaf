"""The header of an export: inputs, scales, labels, how samples become steps and answers, and the model's digest."""

from __future__ import annotations

import hashlib
import re

import numpy as np

from mgrade.deploy.about import About
from mgrade.deploy.program import Program, Unit
from mgrade.deploy.storage import program_bytes

# The comment on a program whose outputs are pooled.
POOLED = """
 * Outputs cover all samples since then. If a stream never ends, call it again after as many samples as the training
 * sequences had, and use the outputs right before that."""
# Converts real numbers to an integer program's inputs as `quantise_input` does, without a library.
READ = """
/* A scaled number as an input: rounded half up and clipped to the range of an input. */
static inline {name}_input {name}_whole(float scaled) {{
    uint32_t bits;
    memcpy(&bits, &scaled, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0; /* NaN becomes 0, even with -ffast-math */
    if (scaled <= {low}.0f) return {low};
    if (scaled >= {high}.0f) return {high};
    const int32_t down = (int32_t)scaled;
    const float rest = scaled - (float)down;
    return ({name}_input)(down + (rest >= 0.5f) - (rest < -0.5f));
}}

/* Converts a sample of real numbers to inputs. */
static inline void {name}_read(const float *real, {name}_input *input) {{
{units}    for (int i = 0; i < {upper}_INPUTS; i++) input[i] = {name}_whole({scaled});
}}
"""
# And outputs to real numbers.
WRITE = """
/* Converts outputs to real numbers. */
static inline void {name}_write(const {name}_output *output, float *real) {{
{units}    for (int i = 0; i < {upper}_OUTPUTS; i++) real[i] = {real};
}}
"""
# The offset and scale of every channel.
UNITS = """    static const float units[{upper}_{what}][2] = {{
{rows}
    }};
"""


def header_parts(program: Program, name: str, known: About) -> dict[str, str]:
    """The parts of `model.h.in` that depend on the program and on what is `known` about it."""
    return {
        "TAKES": "one sample" if known.frame == 1 else f"a frame of {known.frame} samples",
        "INPUT_NOTE": _input_note(program, known),
        "CONSTANTS": _constants(program, name, known),
        "READ": _read(program, name) + _write(program, name),
        "SINCE": POOLED if program.pooled else "",
    }


def _input_note(program: Program, known: About) -> str:
    frame = known.frame
    if program.tokens:
        return f"a token id, 0 to {program.inputs - 1}"
    names = f": {', '.join(map(_commented, known.channels))}" if known.channels else ""
    channels = f"{program.inputs // frame} channel{'s' if program.inputs > frame else ''}{names}"
    return channels if frame == 1 else f"{frame} samples, oldest first, each of {channels}"


def _read(program: Program, name: str) -> str:
    """The function that converts real numbers to inputs; none if inputs are real numbers themselves."""
    if program.tokens or not program.integer:
        return ""
    half = 1 << (8 * np.dtype(program.precision).itemsize - 1)
    parts = {"name": name, "upper": name.upper(), "low": f"{-half}", "high": f"{half - 1}"}
    scaled = "(real[i] - units[i][0]) * units[i][1]" if program.input_units else f"real[i] * {name.upper()}_INPUT_SCALE"
    return READ.format(**parts, scaled=scaled, units=_table(program.input_units, name, "INPUTS"))


def _write(program: Program, name: str) -> str:
    """The function that converts outputs to real numbers; none if they are real numbers themselves."""
    if not program.integer:
        return ""
    real = "units[i][0] + (float)output[i] / units[i][1]"
    if not program.output_units:
        real = f"(float)output[i] / {name.upper()}_OUTPUT_SCALE"
    parts = {"name": name, "upper": name.upper(), "real": real}
    return WRITE.format(**parts, units=_table(program.output_units, name, "OUTPUTS"))


def _table(units: tuple[Unit, ...], name: str, what: str) -> str:
    if not units:
        return ""
    rows = "\n".join(f"        {{{_real(offset)}, {_real(2.0**bits)}}}," for offset, bits in units)
    return UNITS.format(upper=name.upper(), what=what, rows=rows)


def _constants(program: Program, name: str, known: About) -> str:
    upper, exponents = name.upper(), program.exponents
    digest = hashlib.sha256(program_bytes(program)).hexdigest()[:16]
    lines = [f'#define {upper}_PROGRAM "{digest}" /* identifies the model: the SHA-256 of its Program, shortened */']
    if known.frame > 1:
        lines.append(f"#define {upper}_FRAME {known.frame} /* samples per step */")
    if known.window is not None:
        lines.append(f"#define {upper}_WINDOW {known.window} /* samples per answer: then call init again */")
    if program.integer and not program.tokens and not program.input_units:
        lines += [
            f"#define {upper}_INPUT_BITS {exponents[0]} /* fraction bits: input = round(real * 2^bits), */",
            f"#define {upper}_INPUT_SCALE {_real(2.0 ** exponents[0])} /* which is round(real * scale) */",
        ]
    if program.integer and not program.output_units:
        lines += [
            f"#define {upper}_OUTPUT_BITS {exponents[-1]} /* fraction bits: output / 2^bits is the real value */",
            f"#define {upper}_OUTPUT_SCALE {_real(2.0 ** exponents[-1])} /* and so is output / scale */",
        ]
    if known.labels:
        names = ", ".join(map(_quoted, known.labels))
        lines.append(f"#define {upper}_LABELS {{{names}}} /* names of the outputs */")
    return "".join(f"{line}\n" for line in lines)


def _real(value: float) -> str:
    """A single-precision number as an exact C constant."""
    text = f"{value:.17g}"
    return text + ("f" if any(c in text for c in ".e") else ".0f")


def _quoted(text: str) -> str:
    """A C string; non-ASCII bytes, and those that could end it or begin a trigraph, are written in octal."""
    plain = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode())
    return f'"{plain}"'


def _commented(text: str) -> str:
    """The text made safe for a C comment."""
    return re.sub(r"[^ -~]|[\\?]|(?<=\*)/|(?<=/)\*", "_", text)
