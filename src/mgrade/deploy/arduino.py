"""An Arduino library of a Program: the Arduino IDE and PlatformIO take it as it is."""

from __future__ import annotations

import json

import mgrade
from mgrade.deploy.c import print_c
from mgrade.deploy.program import Program

SKETCH = """// One sample in, one set of outputs out: feed it what your sensor gives, {what}.
#include <{name}.h>

static {name}_state state;
{names}
void setup() {{
  Serial.begin(115200);
  {name}_init(&state);
}}

void loop() {{
  static {name}_input input[{upper}_INPUTS];  // read your sensor into this
  static {name}_output output[{upper}_OUTPUTS];
  {name}_step(&state, input, output);
{show}}}
"""
LARGEST = """  int best = 0;
  for (int i = 1; i < {upper}_OUTPUTS; i++) {{
    if (output[i] > output[best]) best = i;
  }}
  Serial.println({best});
"""
ONLY = "  Serial.println({real});\n"


def arduino_files(program: Program, name: str, labels: tuple[str, ...] = ()) -> dict[str, str]:
    """The files of the library, by path; `labels` are what the outputs are called."""
    library = name.capitalize().replace("_", "")
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
        "architectures": "*",  # the runtime itself refuses an int of 16 bits
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
    real = f"ldexp(output[0], -({upper}_OUTPUT_BITS))" if program.integer else "output[0]"
    best = "names[best]" if labels else "best"
    names = f"static const char *const names[] = {upper}_LABELS;\n" if labels else ""
    show = LARGEST.format(upper=upper, best=best) if program.outputs > 1 else ONLY.format(real=real)
    what = "a token id a step" if program.tokens else f"{program.inputs} numbers a step"
    if program.integer and not program.tokens:
        what += f", each as round(number * {upper}_INPUT_SCALE)"
    return {
        **{f"src/{path}": text for path, text in print_c(program, name, labels=labels).items()},
        "library.properties": "".join(f"{key}={value}\n" for key, value in properties.items()),
        "library.json": json.dumps(manifest, indent=2) + "\n",
        f"examples/{name}/{name}.ino": SKETCH.format(
            name=name, upper=upper, what=what, names=names if program.outputs > 1 else "", show=show
        ),
    }
