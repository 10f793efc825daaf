"""What a playground is made from, what goes into it, and where it is written."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from deploy.programs import integer, perturbed, program_of, small
from mgrade.deploy import save_program, wasm, write_export
from mgrade.deploy.about import About, about, read_about
from mgrade.play import open_exhibit, site, write_site
from mgrade.play.server import POLICY
from mgrade.tasks import TASKS
from play.sites import exhibit, files_of


@pytest.fixture(autouse=True)
def _compiler():
    if missing := wasm.available():
        pytest.skip(missing)


def test_an_export_for_pages_is_shown_as_it_is(tmp_path):
    """Byte for byte the module that was exported, with what is known about it."""
    program, known = integer(program_of()), About(title="Gestures", labels=("up", "down", "left", "right"))
    write_export(program, "gestures", "wasm", tmp_path, known)
    shown = open_exhibit(tmp_path)
    assert shown.module == (tmp_path / "gestures.wasm").read_bytes()
    assert (shown.name, shown.about) == ("gestures", known)
    assert site(shown)["model.wasm"] == shown.module


@pytest.mark.parametrize("to", ["c", "arduino"])
def test_any_export_can_be_shown(tmp_path, to):
    program = program_of()
    write_export(program, "small", to, tmp_path)
    assert open_exhibit(tmp_path).module == wasm.to_wasm(program, "small")


def test_models_and_programs_can_be_shown(tmp_path):
    perturbed(small("mgrade")).save(tmp_path / "model")
    assert open_exhibit(tmp_path / "model").program.outputs == 4
    save_program(program_of(), tmp_path / "some.safetensors")
    assert open_exhibit(tmp_path / "some.safetensors").name == "some"


def test_what_cannot_be_shown_is_said_in_a_line(tmp_path):
    for name, message in (
        ("nothing", "is not an export"),
        ("folder", "is not an export"),
        ("text.txt", "not a safetensors"),
    ):
        path = tmp_path / name
        if name == "folder":
            path.mkdir()
        if name == "text.txt":
            path.write_text("hello")
        with pytest.raises(ValueError, match=message):
            open_exhibit(path)


def test_altered_exports_are_refused(tmp_path):
    write_export(program_of(), "small", "wasm", tmp_path, About())
    path, original = tmp_path / "export.json", (tmp_path / "export.json").read_text()
    path.write_text(json.dumps({**json.loads(original), "name": "../small"}))
    with pytest.raises(ValueError, match=r"export\.json: name must be at most 40 lowercase letters"):
        open_exhibit(tmp_path)
    path.write_text(json.dumps({**json.loads(original), "name": "other"}))
    with pytest.raises(ValueError, match=r"other\.wasm: cannot be read"):
        open_exhibit(tmp_path)
    path.write_text(original)
    (tmp_path / "small.wasm").write_bytes(b"hello")
    with pytest.raises(ValueError, match=r"small\.wasm: the module is not WebAssembly"):
        open_exhibit(tmp_path)
    (tmp_path / "small.wasm").write_bytes(wasm.to_wasm(program_of(outputs=2), "small"))
    with pytest.raises(ValueError, match=r"outputs must be 4 as in program\.safetensors, got 2"):
        open_exhibit(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": ["a"]}, "labels must be 4, one for each, got 1"),
        ({"labels": "abcd"}, "labels must be text"),
        ({"labels": [1, 2, 3, 4]}, "labels must be text"),
        ({"title": "x" * 81}, "title must be text of at most 80"),
        ({"samples_per_second": 5}, "samples_per_second must be whole, 1000 to 384000, got 5"),
        ({"samples_per_second": 8000.5}, "samples_per_second must be whole"),
        ({"steps_per_second": -1}, "steps_per_second must be a number above 0"),
        ({"steps_per_second": 0}, "steps_per_second must be a number above 0, got 0"),
        ({"steps_per_second": ""}, "steps_per_second must be a number above 0, got ''"),
        ({"steps_per_second": []}, r"steps_per_second must be a number above 0, got \[\]"),
        ({"steps_per_second": False}, "steps_per_second must be a number above 0, got False"),
        ({"gain": 0}, "gain must be a number above 0, got 0"),
        ({"classes": 1}, "classes must be true or false"),
        ({"symbols": ["a", "b"]}, "symbols must be 0, one for each, got 2"),
        ({"colour": "red"}, "no field 'colour'"),
        ({"version": 2}, "version must be 1, got 2"),
    ],
    ids=str,
)
def test_an_altered_about_is_refused(tmp_path, change, message):
    program = program_of()
    write_export(program, "small", "c", tmp_path, About())
    path = tmp_path / "about.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=rf"about\.json: {message}"):
        read_about(tmp_path, program)


def test_about_is_read_as_it_was_written(tmp_path):
    program, known = program_of(tokens=True), About(symbols=("a", "b", "c"), labels=tuple("wxyz"), steps_per_second=9.5)
    write_export(program, "small", "c", tmp_path, known)
    assert read_about(tmp_path, program) == known
    write_export(program, "small", "c", tmp_path / "other")
    assert read_about(tmp_path / "other", program) is None


def test_an_export_is_not_called_about(tmp_path):
    with pytest.raises(ValueError, match=r"name must not be 'about': about\.json is another file of the export"):
        write_export(program_of(), "about", "wasm", tmp_path)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_every_task_says_what_fits_its_models(name):
    """As many labels as outputs, and symbols only of tokens."""
    task = TASKS[name]()
    fields, known = task.model_fields(), about(task)
    assert len(known.labels) in (0, fields["outputs"])
    assert len(known.symbols) in (0, fields["inputs"] * fields["tokens"])
    assert known.classes == (task.classes is not None)
    assert not (fields["tokens"] and known.samples_per_second)


def test_test_data_goes_in_only_when_it_is_given():
    program = program_of()
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    without, files = files_of(program), files_of(program, examples=[(x, 2), (x[:1], None)])
    assert "examples.bin" not in without
    assert json.loads(without["playground.json"])["examples"] == []
    assert json.loads(files["playground.json"])["examples"] == [{"steps": 2, "label": 2}, {"steps": 1, "label": None}]
    np.testing.assert_array_equal(np.frombuffer(files["examples.bin"], "<f4"), [1, 2, 3, 4, 5, 6, 1, 2, 3])


class Run:
    """Stands for the run that `--run` names, of a task that says nothing but what its test sequence is."""

    task = SimpleNamespace(facts=lambda: {"classes": True})
    model = SimpleNamespace(config=SimpleNamespace(inputs=3, outputs=4))

    def __init__(self, x, label):
        self.sequence = np.array(x), label

    def test_sequences(self, count):
        return [self.sequence] * count


@pytest.mark.parametrize(
    ("tokens", "x", "label", "message"),
    [
        (False, [[1.0] * 3], 3, None),
        (False, [[1.0] * 3], None, None),
        (False, [[1.0] * 12], 0, "a sample of the run has 12 values, and the model reads 3 values"),
        (False, [2], 0, "a sample of the run is a token, and the model reads 3 values"),
        (False, [[1.0] * 3], 4, "the run has a class 4, and the model has outputs 0 to 3"),
        (True, [0, 2], 3, None),
        (True, [0, 3], 0, "the run has tokens from 0 to 3, and the model reads 0 to 2"),
        (True, [[1.0] * 3], 0, "a sample of the run has 3 values, and the model reads tokens"),
        (True, [0, 2], 4, "the run has a class 4"),
    ],
)
def test_test_data_must_fit_the_program(tmp_path, monkeypatch, tokens, x, label, message):
    monkeypatch.setattr("mgrade.play.exhibit.open_source", lambda folder: Run(x, label))
    save_program(program_of(tokens=tokens), tmp_path / "some.safetensors")
    options = {"run": tmp_path / "another", "test": 1}
    if message is None:
        assert len(open_exhibit(tmp_path / "some.safetensors", **options).examples) == 1
        return
    with pytest.raises(ValueError, match=message) as refusal:
        open_exhibit(tmp_path / "some.safetensors", **options)
    asked = f"--run must be the run that {tmp_path / 'some.safetensors'} was made from, got {tmp_path / 'another'}"
    assert str(refusal.value).startswith("--test: ")
    assert str(refusal.value).endswith(asked)


def test_too_much_test_data_is_refused():
    many = np.zeros((1 << 24, 3), np.float32)
    with pytest.raises(ValueError, match="test sequences must be at most"):
        files_of(program_of(), examples=[(many, 0)])


def test_a_playground_is_written_over_another_only(tmp_path):
    program = program_of()
    shown = exhibit(program)
    example = [(np.zeros((4, 3), np.float32), 0)]
    write_site(files_of(program, examples=example), tmp_path / "public")
    assert (tmp_path / "public" / "examples.bin").is_file()
    write_site(site(shown), tmp_path / "public")  # what was private in the last one is gone
    assert not (tmp_path / "public" / "examples.bin").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("my own")
    with pytest.raises(ValueError, match="has files and is not a playground"):
        write_site(site(shown), tmp_path / "mine")
    assert (tmp_path / "mine" / "index.html").read_text() == "my own"
    with pytest.raises(ValueError, match="is not a folder"):
        write_site(site(shown), tmp_path / "mine" / "index.html")


def test_the_page_has_the_servers_policy_wherever_it_is_hosted():
    assert f'content="{POLICY}"' in files_of(program_of())["index.html"].decode()


def test_no_file_of_the_page_asks_another_host():
    for name, data in files_of(program_of()).items():
        if not name.endswith((".wasm", ".svg")):
            assert b"http://" not in data.replace(b"http://www.w3.org", b""), name
            assert b"https://" not in data, name
