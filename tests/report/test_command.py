"""`mgrade report`: the page, figures as files, and what is said where something is missing."""

import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from mgrade.cli import main
from mgrade.report import images


def report(*words):
    with pytest.raises(SystemExit) as stop:
        main(["report", *map(str, words)])
    return stop.value.code


def test_it_writes_the_page_and_every_figure(results, tmp_path, capsys):
    out, folder = tmp_path / "deep" / "page.html", tmp_path / "figures"
    assert not report("--results", results, "--out", out, "--figures", folder)
    assert out.read_text("utf-8").startswith("<!doctype html>")
    assert str(out) in capsys.readouterr().out
    drawings = sorted(folder.glob("*.svg"))
    assert len(drawings) > 15
    for drawing in drawings:
        root = ET.parse(drawing).getroot()
        assert "var(" not in drawing.read_text("utf-8")
        png = drawing.with_suffix(".png").read_bytes()
        assert png.startswith(b"\x89PNG")
        width = int.from_bytes(png[16:20], "big")
        assert width == pytest.approx(images.SCALE * float(root.get("width")), abs=1)


def test_without_a_renderer_there_is_svg_and_a_line(results, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    assert not report("--results", results, "--out", tmp_path / "page.html", "--figures", tmp_path / "figures")
    assert "pip install 'mgrade[report]'" in capsys.readouterr().err
    assert list((tmp_path / "figures").glob("*.svg"))
    assert not list((tmp_path / "figures").glob("*.png"))


def test_without_a_font_there_is_no_png_without_words(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "FAMILIES", ("No Such Family",))
    render, lacking = images.renderer()
    assert render is None
    assert "there is no font" in lacking


def test_nothing_but_its_own_is_replaced(results, tmp_path, capsys):
    page, folder = tmp_path / "page.html", tmp_path / "figures"
    empty = tmp_path / "results"
    empty.mkdir()
    for text in ("<!doctype html><title>mine</title>", '{"metrics": {}}'):
        page.write_text(text)
        assert report("--results", empty, "--out", page) == 2
        said = f"{page}: was not written by this command: choose another path, or move it away"
        assert said in capsys.readouterr().err.replace("\n", " ")
        assert page.read_text() == text
    page.write_text("")  # as a shell's redirection leaves it
    assert not report("--results", empty, "--out", page)
    assert not report("--results", results, "--out", page, "--figures", folder)
    drawing, *others = sorted(folder.glob("*.svg"))
    drawing.write_text("<svg>mine</svg>")
    for other in others:
        other.write_bytes(other.read_bytes()[:500])
    assert report("--results", results, "--out", page, "--figures", folder) == 2
    assert drawing.read_text() == "<svg>mine</svg>"
    assert {len(other.read_bytes()) for other in others} == {500}
    drawing.unlink()
    assert not report("--results", results, "--out", page, "--figures", folder)


def test_what_cannot_be_written_is_said(results, tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert report("--results", results, "--out", tmp_path / "file" / "page.html") == 2
    assert "file: must be a folder, is a file" in capsys.readouterr().err
    assert report("--results", results, "--out", tmp_path / "page.html", "--figures", tmp_path / "file") == 2
    assert "file: must be a folder, is a file" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()
    assert report("--results", tmp_path / "file") == 2
    assert "--results must be a folder" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_a_mistake_and_nothing_is_written(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert report("--results", "results") == 2
    line = "--results must be a folder, got results, which does not exist: a run creates it, the quickest is"
    assert capsys.readouterr().err == f"mgrade: {line} mgrade train vowels/mgrade\n"
    assert not list(tmp_path.iterdir())


def test_an_empty_folder_is_no_mistake(tmp_path):
    (tmp_path / "none").mkdir()
    command = [sys.executable, "-m", "mgrade", "report", "--results", "none", "--out", "page.html"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "mgrade train vowels/mgrade" in (tmp_path / "page.html").read_text("utf-8")
