"""Exports: choices, names, what is found on data, and the exact bytes of a Program."""

import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from deploy.programs import PRESETS, READOUTS, integer, program_of, small
from deploy.tools import WARNINGS, checked, needs
from mgrade import Model
from mgrade._files import replace
from mgrade.deploy import (
    Choices,
    Source,
    build,
    from_model,
    load_program,
    measure_program,
    open_program,
    read_export,
    verify,
    wasm,
    write_export,
)
from mgrade.deploy.about import About
from mgrade.deploy.c.printer import TAKEN, check_name
from mgrade.deploy.export import TARGETS, _every_file, check_folder
from mgrade.deploy.source import as_name
from mgrade.deploy.storage import program_bytes
from mgrade.footprint import CHIPS
from mgrade.tasks.highfreq import HighFrequency
from mgrade.tasks.lorenz import Lorenz
from mgrade.tasks.selective_copying import SelectiveCopying

# Folders --------------------------------------------------------------------------------------------------------------


def test_an_export_leaves_nothing_of_an_earlier_one(tmp_path):
    folder = tmp_path / "x"
    write_export(program_of(), "first", "arduino", folder, About(title="Gestures"))
    (folder / "mine.txt").write_text("kept")
    assert write_export(program_of(), "second", "c", folder)["replaced"] == "first, arduino"
    left = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    made = {"main.c", "mgrade_float.h", "program.safetensors", "second.c", "second.h", "second_test.h"}
    assert left == {"export.json", "mine.txt", *made}
    assert set(json.loads((folder / "export.json").read_text())["files"]) == made
    assert "replaced" not in write_export(program_of(seed=1), "second", "c", folder)


def test_an_export_that_names_files_elsewhere_leaves_them_alone(tmp_path):
    folder, outside = tmp_path / "x", tmp_path / "outside.txt"
    outside.write_text("kept")
    write_export(program_of(), "first", "c", folder)
    description = json.loads((folder / "export.json").read_text())
    description["files"] += ["../outside.txt", str(outside), "", 3]
    (folder / "export.json").write_text(json.dumps(description))
    write_export(program_of(), "second", "c", folder)
    assert outside.is_file()
    assert not (folder / "first.c").exists()


def test_an_export_that_cannot_be_written_leaves_the_earlier_one(tmp_path, monkeypatch):
    folder = tmp_path / "x"
    write_export(program_of(seed=1), "model", "c", folder)
    earlier = {path.name: path.read_bytes() for path in folder.iterdir()}
    calls = itertools.count()

    def full(path, content):
        if next(calls) == 2:
            raise OSError(28, "No space left on device")
        replace(path, content)

    monkeypatch.setattr("mgrade.deploy.export.replace", full)
    with pytest.raises(ValueError, match="x: cannot be written: No space left on device"):
        write_export(program_of(seed=2), "other", "c", folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == earlier
    monkeypatch.undo()
    write_export(program_of(seed=2), "other", "c", folder)
    assert not (folder / "model.c").exists()


def test_exports_to_one_folder_come_one_after_the_other(tmp_path, monkeypatch):
    move, moving = os.replace, []

    def slowly(path, to):
        if Path(to).parent == tmp_path / "x":
            moving.append(threading.get_ident())
            time.sleep(0.01)
        move(path, to)

    monkeypatch.setattr("os.replace", slowly)
    programs = [program_of(seed=seed) for seed in range(3)]
    names = ["one", "two", "three"]
    work = [(program, name, "c", tmp_path / "x") for program, name in zip(programs, names, strict=True)]
    with ThreadPoolExecutor(3, initializer=threading.Barrier(3).wait) as pool:
        list(pool.map(lambda given: write_export(*given), work))
    assert len(list(itertools.groupby(moving))) == len({*moving})
    description, program = read_export(tmp_path / "x")
    assert program_bytes(program) == program_bytes(programs[names.index(description["name"])])
    assert {path.name for path in (tmp_path / "x").iterdir()} == {*description["files"], "export.json"}


def test_moves_that_are_interrupted_leave_no_export(tmp_path, monkeypatch):
    folder = tmp_path / "x"
    write_export(program_of(seed=1), "model", "c", folder)
    calls, move = itertools.count(), os.replace

    def interrupted(path, to):
        if Path(to).parent == folder and next(calls) == 2:
            raise KeyboardInterrupt
        move(path, to)

    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_export(program_of(seed=2), "model", "c", folder)
    with pytest.raises(ValueError, match=r"export\.json: cannot be read"):
        read_export(folder)
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize("to", TARGETS)
def test_what_an_export_will_write_is_known_before_there_is_a_program(tmp_path, to):
    """Of both precisions together, to the last file; else one of another's could be met after all the work."""
    if to == "wasm" and (missing := wasm.available()):
        pytest.skip(missing)
    written = set()
    for precision in ("float32",) if to == "onnx" else ("float32", "int8"):
        program = program_of() if precision == "float32" else integer(program_of())
        folder = tmp_path / precision
        written |= set(write_export(program, "small", to, folder, About(title="Gestures"))["files"])
    for path in (*written, "export.json"):
        folder = tmp_path / "another's" / path.replace("/", "-")
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_text("kept")
        with pytest.raises(ValueError, match=re.escape(f"already has a {path} and is not an export")):
            check_folder(folder, "small", to)
    assert set(_every_file("small", to)) == written - {"about.json", "program.safetensors"}


@pytest.mark.parametrize("text", ['{"my": 1}', "not json", '{"format": "mgrade-export", "files": []}'])
def test_what_only_looks_like_an_export_is_not_written_over(tmp_path, text):
    (tmp_path / "export.json").write_text(text)
    (tmp_path / "model.c").write_text("mine")
    with pytest.raises(
        ValueError, match=r"already has a \w+\.\w+ and (is not an export|it does not belong to the export there)"
    ):
        write_export(program_of(), "model", "c", tmp_path)
    assert (tmp_path / "model.c").read_text() == "mine"
    assert (tmp_path / "export.json").read_text() == text


def test_a_folder_in_the_place_of_a_file_is_refused_before_anything_is_written(tmp_path):
    (tmp_path / "model.c").mkdir()
    with pytest.raises(ValueError, match=r"model\.c cannot be written: something else is in its place"):
        write_export(program_of(), "model", "c", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.c"]


def test_files_of_an_earlier_export_behind_a_link_or_with_impossible_names_stay(tmp_path):
    folder, outside = tmp_path / "x", tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("kept")
    write_export(program_of(), "first", "c", folder)
    (folder / "link").symlink_to(outside)
    description = json.loads((folder / "export.json").read_text())
    description["files"] += ["link/victim", "a\0b", "\ud800", "n" * 300, "link"]
    (folder / "export.json").write_text(json.dumps(description))
    write_export(program_of(), "second", "c", folder)
    assert (outside / "victim").read_text() == "kept"
    assert not (folder / "first.c").exists()


# Choices and names ----------------------------------------------------------------------------------------------------


def test_choices_are_checked_when_made():
    for fields, message in (
        ({"precision": "int16"}, "precision must be one of float32, int8"),
        ({"precision": "int8", "activations": "float32"}, "activations must be one of int16, int8"),
        ({"precision": "int8", "state_bits": 8}, "state_bits must be 16 or 32, got 8"),
        ({"state_bits": 16}, "require precision int8"),
    ):
        with pytest.raises(ValueError, match=message):
            Choices(**fields)


@pytest.mark.parametrize("cc", ["gcc", "clang-19", "arm-none-eabi-gcc"])
def test_no_program_is_called_as_a_header_that_c_includes_from_its_own(tmp_path, cc):
    """A program's folder may come before those of C: <string.h> would then find ours in the place of <strings.h>."""
    headers = (
        "assert",
        "ctype",
        "errno",
        "float",
        "inttypes",
        "limits",
        "locale",
        "math",
        "setjmp",
        "signal",
        "stdarg",
    )
    headers += ("stddef", "stdint", "stdio", "stdlib", "string", "time", "wchar", "wctype")
    (tmp_path / "all.c").write_text("".join(f"#include <{name}.h>\n" for name in headers))
    made = checked(needs(cc), "-std=gnu11", "-M", "all.c", cwd=tmp_path)
    found = [Path(word) for word in made.replace("\\\n", " ").split()[2:]]
    folders = {path.parent for path in found}
    roots = {folder for folder in folders if not folders & {*folder.parents}}  # not those of <sys/types.h>
    met = {path.stem for path in found if path.parent in roots and re.fullmatch("[a-z][a-z0-9_]*", path.stem)}
    assert len(met) > len(headers)
    assert met <= {*TAKEN}


def test_any_folder_gives_a_name_that_c_takes():
    for text in ("", "x", "My Model!", "9lives", "mgrade", "mg_x", "ü", "a" * 99, "9" * 99, *TAKEN):
        assert check_name(as_name(text)) == as_name(text)
    assert as_name("High-freq_2") == "high_freq_2"


def test_an_export_is_whole_or_not_there(tmp_path):
    program = program_of()
    with pytest.raises(ValueError, match="name must be at most 40 lowercase letters"):
        write_export(program, "No", "c", tmp_path / "x")
    with pytest.raises(ValueError, match="to must be one of"):
        write_export(program, "model", "rust", tmp_path / "x")
    if not wasm.available():
        for name in ("export", "package"):  # export.json and package.json are there already
            with pytest.raises(ValueError, match=f"name must not be '{name}'"):
                write_export(program, name, "wasm", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_without_the_compiler_of_webassembly_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(wasm, "available", lambda: "WebAssembly cannot be built here")
    with pytest.raises(ValueError, match="WebAssembly cannot be built here"):
        write_export(program_of(), "model", "wasm", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_without_onnx_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ValueError, match="ONNX export needs the package onnx"):
        write_export(program_of(), "model", "onnx", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_only_c_is_verified(tmp_path):
    write_export(program_of(), "model", "arduino", tmp_path)
    with pytest.raises(ValueError, match="only an export to c runs on a chip, this one is to arduino"):
        verify(tmp_path, "cortex-m4")


def test_the_test_vector_of_an_export_passes(tmp_path):
    program = integer(program_of(readout="mean"))
    write_export(program, "model", "c", tmp_path)
    checked(needs("gcc"), "-std=c99", "-O1", *WARNINGS, "main.c", "model.c", "-o", "main", cwd=tmp_path)
    assert " 0 outputs out of tolerance" in checked("./main", cwd=tmp_path)


def test_the_test_vector_of_tiny_outputs_passes_and_can_fail(tmp_path):
    model = Model(small("mgrade"))
    with torch.no_grad():
        for parameter in model.readout.head.parameters():
            parameter *= 1e-7
    write_export(from_model(model), "model", "c", tmp_path)
    build = (needs("gcc"), "-std=c99", "-O1", "main.c", "model.c", "-o", "main", "-lm")
    checked(*build, cwd=tmp_path)
    assert " 0 outputs out of tolerance" in checked("./main", cwd=tmp_path)
    header = tmp_path / "model_test.h"
    outputs = header.read_text().partition("model_test_outputs")
    header.write_text(outputs[0] + outputs[1] + re.sub(r"e-\d+", "e-20", outputs[2]))
    checked(*build, cwd=tmp_path)
    assert subprocess.run(["./main"], cwd=tmp_path, check=False).returncode == 1


OWN_DATA = [
    HighFrequency(validation=4, test=4),
    SelectiveCopying(length=24, values=4, symbols=4, validation=4, test=4),
    Lorenz(trajectories=6, validation=5, test=4, length=30, burn_in=20, overlap_trajectories=3),
]


@pytest.mark.parametrize("task", OWN_DATA, ids=lambda task: type(task).__name__)
def test_ranges_are_found_on_a_tasks_own_data(task):
    model = Model(small("mgrade", **task.model_fields()))
    source = Source("model", model, task)
    program = build(source, Choices("int8"))
    assert program.precision == "int16"
    found = source.judge(program, examples=3)
    assert 0 <= found[task.metric.removeprefix("test_")] < (float("inf") if type(task) is Lorenz else 1.001)
    assert all(np.array_equal(a, b) for a, b in zip(source.calibration(), source.calibration(), strict=True))


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_model_of_two_documents_is_refused_before_it_reads_any(precision):
    model = Model(small("mgrade", pair=True, readout="mean"))
    with pytest.raises(ValueError, match="compares two documents: it has no single stream to export"):
        build(Source("model", model, None), Choices(precision))


# Footprint ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
def test_a_footprint_is_the_programs_bytes_to_the_last(preset):
    for readout in READOUTS[:3]:
        program = program_of(preset, readout=readout, tokens=readout == "mean")
        for one in (program, integer(program)):
            figures = measure_program(one)
            kind = ("float32", "float32") if one is program else ("int8", "int16")  # as `mgrade export` calls them
            assert (figures["precision"], figures["activations"]) == kind
            assert figures["parameters"]["bytes"] == one.parameter_bytes == figures["needs"]["parameters"]
            assert figures["buffer"]["bytes"] == one.state_bytes == figures["needs"]["buffer"]
            for what in ("parameters", "buffer"):
                for unit in ("count", "bytes"):
                    parts = [part[what][unit] for part in figures["components"].values()]
                    assert sum(parts) == figures[what][unit]
            assert sum(part["operations"] for part in figures["components"].values()) == len(one.ops)
            assert sum(array["count"] for array in figures["arrays"]) == figures["parameters"]["count"]
            assert figures["fits"] == {chip.name: True for chip in CHIPS}


def test_a_program_is_found_in_a_folder_or_a_file_and_nowhere_else(tmp_path):
    program = program_of()
    write_export(program, "model", "c", tmp_path / "x")
    found = open_program(str(tmp_path / "x"))
    assert measure_program(found) == measure_program(open_program(str(tmp_path / "x" / "program.safetensors")))
    assert found.state_bytes == load_program(tmp_path / "x" / "program.safetensors").state_bytes
    assert read_export(tmp_path / "x")[0]["state_bytes"] == program.state_bytes
    assert open_program("listops/mgrade") is None
    assert open_program(str(Path(__file__).parent)) is None
    with pytest.raises(ValueError, match="is not a safetensors file"):
        open_program(__file__)
