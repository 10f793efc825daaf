"""What the header of an export says: names, scales, how samples become steps, which model it is."""

import dataclasses
import hashlib
import re
import shutil

import numpy as np
import pytest

from deploy.programs import integer, program_of, run
from mgrade.deploy import dequantise_output, print_c, quantise_input
from mgrade.deploy.about import About
from mgrade.deploy.program import Unit
from mgrade.deploy.storage import program_bytes

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wdouble-promotion", "-Werror")
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


def test_a_header_says_scales_and_labels_in_a_way_that_c_takes(tmp_path):
    program = integer(program_of("mgrade", inputs=2, outputs=3, readout="mean"))
    labels = ('plain "quoted"', "back\\slash ??/ \n", "grün")
    coarse = dataclasses.replace(program, exponents=(-3, *program.exponents[1:]))
    for one, scale in ((program, 2.0 ** program.exponents[0]), (coarse, 0.125)):
        header = print_c(one, known=About(labels=labels))["model.h"]
        assert "Outputs cover all samples since then" in header
        (tmp_path / "model.h").write_text(header)
        (tmp_path / "show.c").write_text(
            '#include <stdio.h>\n#include "model.h"\nint main(void) {\n'
            "    static const char *const names[MODEL_OUTPUTS] = MODEL_LABELS;\n"
            '    printf("%.17g\\n", (double)MODEL_INPUT_SCALE);\n'
            '    for (int i = 0; i < MODEL_OUTPUTS; i++) printf("%s%c", names[i], 0);\n    return 0;\n}\n'
        )
        run(tmp_path, "gcc", "-std=c99", "-trigraphs", "-Wall", "-Werror", "-Wno-trigraphs", "show.c", "-o", "show")
        shown, _, names = run(tmp_path, "./show").stdout.partition(b"\n")
        assert float(shown) == scale
        assert tuple(names.decode().split("\0")[:-1]) == labels
    every = print_c(program_of("mgrade", readout="every"))["model.h"]
    assert "LABELS" not in every
    assert "since then" not in every
    assert "_read" not in every  # which takes real numbers as they are


def test_a_header_says_how_samples_become_steps_and_answers(tmp_path):
    program = program_of("mgrade", inputs=6)
    known = About(channels=("a*/", "b\\", "grün"), frame=2, window=40)
    (tmp_path / "model.h").write_text(header := print_c(program, known=known)["model.h"])
    assert "/* 2 samples, oldest first, each of 3 channels: a*_, b_, gr_n */" in header
    assert "takes a frame of 2 samples" in header
    assert "#define MODEL_FRAME 2 " in header
    assert "#define MODEL_WINDOW 40 " in header
    run(tmp_path, "gcc", "-std=c99", "-Wall", "-Werror", "-fsyntax-only", "-x", "c", "model.h")
    plain = print_c(program)["model.h"]
    assert "/* 6 channels */" in plain
    assert "_FRAME" not in plain
    assert "_WINDOW" not in plain
    for wrong, message in ((About(frame=4), "frame must divide the 6 inputs"), (About(channels=("a",)), "must be 6")):
        with pytest.raises(ValueError, match=message):
            print_c(program, known=wrong)


def test_a_header_tells_one_model_from_another():
    def said(program):
        return re.search(r'MODEL_PROGRAM "([0-9a-f]{16})"', print_c(program)["model.h"])[1]

    one = program_of("mgrade", seed=1)
    assert said(one) == said(program_of("mgrade", seed=1)) != said(program_of("mgrade", seed=2))
    assert said(one) == hashlib.sha256(program_bytes(one)).hexdigest()[:16]


@pytest.mark.parametrize("precision", ["int16", "int8"])
def test_a_header_reads_and_writes_in_units_as_the_interpreter_does(tmp_path, precision):
    program = integer(program_of("mgrade", inputs=3, outputs=2), precision)
    units = (Unit(101325.0, 3), Unit(0.0, 100), Unit(-0.5, -90)), (Unit(1000.5, 7), Unit(0.0, -40))
    program = dataclasses.replace(program, input_units=units[0], output_units=units[1])
    rng, half = np.random.default_rng(0), 1 << (8 * np.dtype(precision).itemsize - 1)
    size = np.array([2.0**-unit.bits for unit in units[0]]) * half
    x = (rng.normal(0, size, (200, 3)) + [unit.offset for unit in units[0]]).astype(np.float32)
    y = rng.integers(-half, half, (200, 2))
    rows = ", ".join("{" + ", ".join(float(v).hex() + "f" for v in row) + "}" for row in x)
    given = ", ".join("{" + ", ".join(map(str, row)) + "}" for row in y)
    header = print_c(program)["model.h"]
    assert "_BITS" not in header
    (tmp_path / "model.h").write_text(header)
    (tmp_path / "show.c").write_text(
        '#include <stdio.h>\n#include "model.h"\n'
        f"static const float x[][MODEL_INPUTS] = {{{rows}}};\nstatic const model_output y[][2] = {{{given}}};\n"
        "int main(void) {\n    model_input input[MODEL_INPUTS];\n    float real[MODEL_OUTPUTS];\n"
        f"    for (int i = 0; i < {len(x)}; i++) {{\n"
        "        model_read(x[i], input);\n        model_write(y[i], real);\n"
        '        printf("%d %d %d %.9g %.9g\\n", input[0], input[1], input[2], (double)real[0], (double)real[1]);\n'
        "    }\n    return 0;\n}\n"
    )
    run(tmp_path, "gcc", "-std=c99", *WARNINGS, "-fsanitize=undefined", "show.c", "-o", "show")
    shown = np.array(run(tmp_path, "./show").stdout.split(), float).reshape(-1, 5)
    np.testing.assert_array_equal(shown[:, :3], quantise_input(program, x))
    np.testing.assert_allclose(shown[:, 3:], dequantise_output(program, y), rtol=1e-6)


@pytest.mark.parametrize("precision", ["int16", "int8"])
def test_a_header_rounds_real_numbers_as_the_interpreter_does(tmp_path, precision):
    program = integer(program_of("mgrade", inputs=1), precision)
    half, unit = 1 << (8 * np.dtype(precision).itemsize - 1), 2.0 ** -program.exponents[0]
    rng = np.random.default_rng(0)
    edges = [0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.5, 1e30, -1e30]
    edges += [half - 1, half - 0.5, half, -half, -half - 0.5, -half + 0.5]
    near = np.nextafter(np.float32([0.5, -0.5, 1.5, -1.5]), np.float32(0))
    real = np.float32([*(np.array(edges) * unit), *(near * np.float32(unit)), *rng.normal(0, half * unit, 500)])
    real = np.append(real, np.float32([np.inf, -np.inf]))
    numbers = ", ".join(float(value).hex() + "f" for value in real[:-2])
    (tmp_path / "model.h").write_text(print_c(program)["model.h"])
    (tmp_path / "show.c").write_text(
        '#include <math.h>\n#include <stdio.h>\n#include "model.h"\n'
        f"static const float real[] = {{{numbers}, INFINITY, -INFINITY, NAN}};\n"
        f"int main(void) {{\n    for (int i = 0; i <= {len(real)}; i++) {{\n        model_input input[1];\n"
        '        model_read(real + i, input);\n        printf("%d\\n", input[0]);\n    }\n    return 0;\n}\n'
    )
    run(tmp_path, "gcc", "-std=c99", *WARNINGS, "-fsanitize=undefined", "show.c", "-o", "show")
    shown = [int(line) for line in run(tmp_path, "./show").stdout.split()]
    run(tmp_path, "gcc", "-std=c99", "-O3", "-ffast-math", "show.c", "-o", "fast")
    assert [int(line) for line in run(tmp_path, "./fast").stdout.split()] == shown
    with np.errstate(invalid="ignore"):
        expected = np.clip(np.floor(real.astype(np.float64) / unit + 0.5), -half, half - 1)
    assert shown == [*expected.astype(int).tolist(), 0]
    np.testing.assert_array_equal(quantise_input(program, real[:, None])[:-2, 0], shown[:-3])
