"""Arduino libraries: their layout, and sketches that compile and run."""

import re

import pytest

from deploy.programs import integer, program_of
from deploy.tools import WARNINGS, checked, needs
from mgrade.deploy import write_export
from mgrade.deploy.about import About

# What a sketch finds on a board, as far as ours goes.
BOARD = """
#include <math.h>
#include <stdio.h>
struct Port {
    void begin(long) {}
    void println(int value) { printf("%d\\n", value); }
    void println(double value) { printf("%g\\n", value); }
    void println(const char *value) { printf("%s\\n", value); }
} Serial;
#include "SKETCH"
int main() { setup(); loop(); loop(); }
"""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(lambda: program_of(), id="float32"),
        pytest.param(lambda: program_of(tokens=True, readout="mean"), id="tokens"),
        pytest.param(lambda: integer(program_of(outputs=1, readout="sum")), id="int16-one-output"),
        pytest.param(lambda: integer(program_of(tokens=True), "int8"), id="int8-tokens"),
        pytest.param(lambda: integer(program_of("lru")), id="lru"),
    ],
)
def test_an_arduino_library_has_its_layout_and_compiles(tmp_path, program):
    program = program()
    write_export(program, "my_sensor", "arduino", tmp_path / "lib")
    folder = tmp_path / "lib"
    properties = dict(line.split("=", 1) for line in (folder / "library.properties").read_text().splitlines())
    required = {"name", "version", "author", "maintainer", "sentence", "paragraph", "category", "url", "architectures"}
    assert required <= properties.keys()
    assert (properties["name"], properties["includes"]) == ("My_sensor", "my_sensor.h")
    assert re.fullmatch(r"\d+\.\d+\.\d+", properties["version"])
    runtime = {"mgrade_integer.h", "mgrade_lanes.h", "mgrade_dots.h"} if program.integer else {"mgrade_float.h"}
    assert {path.name for path in (folder / "src").iterdir()} == {"my_sensor.h", "my_sensor.c", *runtime}

    sketch = folder / "examples" / "my_sensor" / "my_sensor.ino"
    (tmp_path / "board.cpp").write_text(BOARD.replace("SKETCH", str(sketch)))
    source = folder / "src"
    checked(needs("gcc"), "-std=c99", *WARNINGS, "-c", source / "my_sensor.c", "-o", "model.o", cwd=tmp_path)
    gxx = needs("g++")
    checked(
        gxx,
        *WARNINGS,
        "-fsyntax-only",
        "-x",
        "c++",
        source / "my_sensor.h",
        "-Wno-pragma-once-outside-header",
        cwd=tmp_path,
    )
    checked(gxx, *WARNINGS, "-I", source, "board.cpp", "model.o", "-o", "board", cwd=tmp_path)
    lines = checked("./board", cwd=tmp_path).splitlines()
    assert len(lines) == 2
    if program.outputs > 1:
        assert all(0 <= int(line) < program.outputs for line in lines)


def test_a_sketch_answers_once_a_window(tmp_path):
    program = integer(program_of(inputs=4, outputs=3, readout="mean"))
    known = About(labels=("a", "b", "c"), frame=2, window=4)
    write_export(program, "my_sensor", "arduino", tmp_path / "lib", known)
    sketch = tmp_path / "lib" / "examples" / "my_sensor" / "my_sensor.ino"
    assert "A frame of 2 samples in, one set of outputs out: 4 numbers a step" in sketch.read_text()
    (tmp_path / "board.cpp").write_text(BOARD.replace("SKETCH", str(sketch)))
    source = tmp_path / "lib" / "src"
    checked(needs("gcc"), "-std=c99", *WARNINGS, "-c", source / "my_sensor.c", "-o", "model.o", cwd=tmp_path)
    checked(needs("g++"), *WARNINGS, "-I", source, "board.cpp", "model.o", "-o", "board", cwd=tmp_path)
    (line,) = checked("./board", cwd=tmp_path).splitlines()  # of the two frames of a window
    assert line in known.labels
