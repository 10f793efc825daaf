"""What the header of an export says: inputs, scales, labels, how samples become steps and answers, and which model."""

from __future__ import annotations

import hashlib
import re

import numpy as np

from mgrade.deploy.about import About
from mgrade.deploy.program import Program, Unit
from mgrade.deploy.storage import program_bytes

# What a header says of a stream whose outputs are pooled.
POOLED = """
 * Outputs are about all samples since then: where a stream never stops, begin it anew every so many samples, as many as
 * the sequences had that the model learned from, and take the outputs after the last of them."""
# How an integer program's header makes inputs of real numbers: as `quantise_input` does, and without a library.
READ = """
/* A scaled number as an input: rounded half up, and held at the ends of what an input can be. */
static inline {name}_input {name}_whole(float scaled) {{
    uint32_t bits;
    memcpy(&bits, &scaled, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0; /* what is not a number is nothing, with -ffast-math too */
    if (scaled <= {low}.0f) return {low};
    if (scaled >= {high}.0f) return {high};
    const int32_t down = (int32_t)scaled;
    const float rest = scaled - (float)down;
    return ({name}_input)(down + (rest >= 0.5f) - (rest < -0.5f));
}}

/* Makes inputs of a sample of real numbers. */
static inline void {name}_read(const float *real, {name}_input *input) {{
{units}    for (int i = 0; i < {upper}_INPUTS; i++) input[i] = {name}_whole({scaled});
}}
"""
# And real numbers of outputs.
WRITE = """
/* Makes real numbers of outputs. */
static inline void {name}_write(const {name}_output *output, float *real) {{
{units}    for (int i = 0; i < {upper}_OUTPUTS; i++) real[i] = {real};
}}
"""
# Where channels are counted from, and how finely.
UNITS = """    static const float units[{upper}_{what}][2] = {{
{rows}
    }};
"""


def header_parts(program: Program, name: str, known: About) -> dict[str, str]:
    """The parts of `model.h.in` that say what is known of a program."""
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
    """The function that makes inputs of real numbers, where inputs are not real numbers themselves."""
    if program.tokens or not program.integer:
        return ""
    half = 1 << (8 * np.dtype(program.precision).itemsize - 1)
    parts = {"name": name, "upper": name.upper(), "low": f"{-half}", "high": f"{half - 1}"}
    scaled = "(real[i] - units[i][0]) * units[i][1]" if program.input_units else f"real[i] * {name.upper()}_INPUT_SCALE"
    return READ.format(**parts, scaled=scaled, units=_table(program.input_units, name, "INPUTS"))


def _write(program: Program, name: str) -> str:
    """The function that makes real numbers of outputs, where they are not real numbers themselves."""
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
    lines = [f'#define {upper}_PROGRAM "{digest}" /* which model this is: how the SHA-256 of its Program begins */']
    if known.frame > 1:
        lines.append(f"#define {upper}_FRAME {known.frame} /* samples that a step takes */")
    if known.window is not None:
        lines.append(f"#define {upper}_WINDOW {known.window} /* samples of an answer: then begin anew */")
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
        lines.append(f"#define {upper}_LABELS {{{names}}} /* what the outputs are called */")
    return "".join(f"{line}\n" for line in lines)


def _real(value: float) -> str:
    """A number of single precision as a constant of C, exactly."""
    text = f"{value:.17g}"
    return text + ("f" if any(c in text for c in ".e") else ".0f")


def _quoted(text: str) -> str:
    """A string of C: all that is not plain ASCII, or could end the string or begin a trigraph, as octal bytes."""
    plain = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode())
    return f'"{plain}"'


def _commented(text: str) -> str:
    """As a comment of C can hold it."""
    return re.sub(r"[^ -~]|[\\?]|(?<=\*)/|(?<=/)\*", "_", text)
