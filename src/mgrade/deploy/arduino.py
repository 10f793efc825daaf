"""A Program as an Arduino library, ready for the Arduino IDE and PlatformIO."""

from __future__ import annotations

import json

import mgrade
from mgrade.deploy.about import About
from mgrade.deploy.c import print_c
from mgrade.deploy.program import Program

SKETCH = """// {what}
#include <{name}.h>

static {name}_state state;
{names}
void setup() {{
  Serial.begin(115200);
  {name}_init(&state);
}}

void loop() {{
{read}  static {name}_output output[{upper}_OUTPUTS];
  {name}_step(&state, input, output);
{window}{show}}}
"""
# Shows outputs at the end of a window only, then resets the state.
WINDOW = """  static int heard = 0;
  heard += {samples};
  if (heard + {samples} <= {upper}_WINDOW) return;
  heard = 0;
  {name}_init(&state);
"""
SHOW_LARGEST = """  int best = 0;
  for (int i = 1; i < {upper}_OUTPUTS; i++) {{
    if (output[i] > output[best]) best = i;
  }}
  Serial.println({best});
"""
VALUES = """{written}  for (int i = 0; i < {upper}_OUTPUTS; i++) Serial.println({value}[i]);
"""
WRITTEN = """  static float value[{upper}_OUTPUTS];
  {name}_write(output, value);
"""
READ = """  static {name}_input input[{upper}_INPUTS];  // wait for your sensor, and read it into this
"""
READINGS = """  static float reading[{upper}_INPUTS];  // wait for your sensor, and read it into this
  static {name}_input input[{upper}_INPUTS];
  {name}_read(reading, input);
"""


def arduino_files(program: Program, name: str, known: About | None = None) -> dict[str, str]:
    """The files of the library, by path; what is `known` about inputs and outputs goes into its example sketch."""
    known = known or About()
    library = name.capitalize()
    sentence = f"{name}: a streaming sequence model, one sample at a time in constant memory"
    properties = {
        "name": library,
        "version": mgrade.__version__,
        "author": "mgrade",
        "maintainer": "mgrade",
        "sentence": sentence,
        "paragraph": f"Exported by mgrade, {program.precision}: {program.state_bytes} bytes of state.",
        "url": "https://pypi.org/project/mgrade/",
        "category": "Data Processing",
        "architectures": "*",  # the runtime itself rejects a 16-bit int
        "includes": f"{name}.h",
    }
    manifest = {
        "name": library,
        "version": mgrade.__version__,
        "description": sentence,
        "keywords": ["machine learning", "time series"],
        "frameworks": "*",
        "platforms": "*",
        "headers": f"{name}.h",
    }
    upper = name.upper()
    parts = {"name": name, "upper": upper}
    best = "names[best]" if known.labels else "best"
    names = f"static const char *const names[] = {upper}_LABELS;\n" if known.labels else ""
    if known.classes and program.outputs > 1:
        show = SHOW_LARGEST.format(upper=upper, best=best)
    elif program.integer:
        show = VALUES.format(upper=upper, written=WRITTEN.format(**parts), value="value")
    else:
        show = VALUES.format(upper=upper, written="", value="output")
    real = program.tokens or not program.integer
    window = ""
    if known.window is not None:
        samples = "1" if known.frame == 1 else f"{upper}_FRAME"
        window = WINDOW.format(name=name, upper=upper, samples=samples)
    return {
        **{f"src/{path}": text for path, text in print_c(program, name, known=known).items()},
        "library.properties": "".join(f"{key}={value}\n" for key, value in properties.items()),
        "library.json": json.dumps(manifest, indent=2) + "\n",
        f"examples/{name}/{name}.ino": SKETCH.format(
            name=name,
            upper=upper,
            what=_what(program, known),
            read=(READ if real else READINGS).format(**parts),
            names=names if program.outputs > 1 else "",
            window=window,
            show=show,
        ),
    }


def _what(program: Program, known: About) -> str:
    """One sentence on what a step of the sketch takes and gives."""
    if program.tokens:
        return "A token id in, one set of outputs out."
    taken = "One sample" if known.frame == 1 else f"A frame of {known.frame} samples"
    numbers = f"{program.inputs} number{'s' if program.inputs > 1 else ''}"
    return f"{taken} in, one set of outputs out: {numbers} a step, as your sensor gives them."
