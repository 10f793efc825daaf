"""The page's sources: what it is fed is what was meant, and what it answers is what the interpreter says."""

import numpy as np
import pytest

from browser import chromium
from deploy.programs import inputs_of, integer, program_of
from mgrade.deploy.about import About
from play.pages import (
    FAKE,
    FAST,
    RATE,
    SOUND,
    give_file,
    heard,
    press,
    run_until,
    since,
    sound_program,
    visit,
    write_wav,
)
from play.sites import assert_answers, files_of, served


def test_microphone(tmp_path):
    """A synthetic one: its tone arrives at the model's rate, and every answer is the interpreter's."""
    seconds = np.arange(4 * 48000) / 48000
    clip = write_wav(tmp_path / "tone.wav", 0.4 * np.sin(2 * np.pi * 440 * seconds), 48000)
    program = sound_program()
    flags = (*FAKE, f"--use-file-for-fake-audio-capture={clip}%noloop")
    with served(files_of(program, SOUND)) as server, chromium(tmp_path, *flags) as page:
        visit(page, server, "microphone")
        record = run_until(page, 3000)
        assert "resampled to 8000 Hz" in page.evaluate("said")
        assert page.complaints == []
    assert_answers(program, record, 3000)
    heard = np.array(record["inputs"])[-1500:, 0]
    spectrum = np.abs(np.fft.rfft(heard * np.hanning(len(heard))))
    assert abs(np.argmax(spectrum) * RATE / len(heard) - 440) < 6
    assert 0.3 * SOUND.gain < np.abs(heard).max() < 0.5 * SOUND.gain


def test_microphone_word_by_word(tmp_path):
    """Frames of sound and a pooled readout: steps are taken while there is a sound, each begun anew."""
    seconds = np.arange(48000) / 48000
    word = np.where(seconds < 0.3, 0.4 * np.sin(2 * np.pi * 300 * seconds), 0)
    clip = write_wav(tmp_path / "words.wav", np.tile(word, 4), 48000)
    program = integer(program_of(inputs=40, outputs=3, readout="mean"))
    flags = (*FAKE, f"--use-file-for-fake-audio-capture={clip}%noloop")
    with served(files_of(program, SOUND)) as server, chromium(tmp_path, *flags) as page:
        visit(page, server, "microphone")
        record = run_until(page, 250)
        assert page.complaints == []
    assert_answers(program, record, 250)
    begins = [step for step in record["begins"] if step >= record["first"]]
    assert len(begins) >= 2
    lengths = np.diff(begins)
    assert (lengths > 0.3 * RATE / 40).all()
    assert (lengths < 0.85 * RATE / 40).all()  # not the whole second: silence was left out


@pytest.mark.parametrize("precision", ["float32", "int16", "int8"])
def test_wav(page, tmp_path, precision):
    """A file of the model's own rate goes in exactly as it is."""
    program = sound_program(readout="mean")
    program = program if precision == "float32" else integer(program, precision)
    samples = np.random.default_rng(0).uniform(-0.9, 0.9, 300)
    clip = write_wav(tmp_path / "clip.wav", samples, RATE)
    with served(files_of(program, SOUND)) as server:
        record = heard(page, server, clip, 700)
        assert page.complaints == []
    begins = [step for step in record["begins"] if step + 300 in record["begins"]]
    once = since(record, begins[-1])
    stored = np.round(samples * 32767) / 32768
    np.testing.assert_array_equal(np.float32(once["inputs"][:300])[:, 0], np.float32(stored * SOUND.gain))
    assert_answers(program, once, 300)


def test_a_file_that_cannot_be_is_said_and_no_more(page, tmp_path):
    (tmp_path / "no.wav").write_bytes(b"nothing of the kind")
    clip = write_wav(tmp_path / "mono.wav", np.zeros(10), RATE)
    with served(files_of(program_of())) as server:
        visit(page, server, "wav")
        for path, message in ((tmp_path / "no.wav", "this is not a WAV file"), (clip, "has 1 channels")):
            give_file(page, path)
            page.until(f"document.querySelector('.said').textContent.includes({message!r})")
        assert page.evaluate("document.querySelector('[value=microphone]').disabled")
        assert "reads 3 channels" in page.evaluate("document.getElementById('reason').textContent")
        assert page.complaints == []


def test_drawn_signal(page):
    """What a pointer draws is what the model reads, over and over; arrow keys draw too."""
    program = integer(program_of())
    with served(files_of(program, FAST)) as server:
        page.resize(1000)
        visit(page, server, "drawn")
        page.evaluate("document.querySelector('.controls button:last-of-type').click()")  # silence
        draw_a_line(page)
        page.evaluate("document.querySelector('.sketch').focus()")
        for key in ("ArrowRight", "ArrowRight", "ArrowUp"):
            page.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        record = run_until(page, 120)
        assert page.complaints == []
    assert_answers(program, record, 120)
    drawn = np.array(record["inputs"])[:60, 0]
    assert np.isclose(drawn, 1.5, atol=0.06).sum() in range(28, 34)  # half of the points, at half of the height
    assert np.isclose(drawn, 0.3).sum() == 1


def set_range(page, low, high):
    """Into the two boxes of the chosen channel; what is said then."""
    enter = "([low, high]) => { const boxes = document.querySelectorAll('.controls input'); boxes[0].value = low;"
    enter += " boxes[1].value = high; boxes[1].dispatchEvent(new Event('change')); }"
    page.evaluate(f"({enter})([{low!r}, {high!r}])")
    return page.evaluate("document.querySelector('.said').textContent")


def test_a_drawing_goes_as_far_as_one_says(page):
    """In the units of each channel, which need not lie about zero; the shape stays."""
    program = program_of()
    with served(files_of(program, FAST)) as server:
        page.resize(1000)
        visit(page, server, "drawn")
        standard = np.array(run_until(page, 60)["inputs"])[:60]
        caption = "document.querySelector('#scope figcaption').textContent"
        assert page.evaluate(caption) == "Input: 3 channels"
        page.evaluate("playground.choose('drawn')")  # from its first point
        for low, high in (("5", "5"), ("6", "5"), ("", "5"), ("0", "1e16")):
            assert "from a number to a larger one" in set_range(page, low, high)
        assert set_range(page, "20", "30") == ""
        record = run_until(page, 60)
        raw = np.array(record["inputs"])[:60]
        assert_answers(program, record, 60)
        np.testing.assert_allclose(raw[:, 0], 25 + standard[:, 0] * 5 / 3, atol=1e-5)
        np.testing.assert_array_equal(raw[:, 1:], standard[:, 1:])
        choose = "(channel) => { const select = document.querySelector('.controls select'); select.value = channel;"
        choose += " select.dispatchEvent(new Event('change'));"
        choose += " return Array.from(document.querySelectorAll('.controls input'), (box) => box.value) }"
        assert page.evaluate(f"({choose})(1)") == ["-3", "3"]
        assert page.evaluate(f"({choose})(0)") == ["20", "30"]
        page.evaluate("document.querySelector('.controls button:last-of-type').click()")  # silence: the middle
        draw_a_line(page)
        assert set_range(page, "100000", "100100") == ""
        run_until(page, 60)
        page.until(f"{caption} === 'Input: 3 channels, each on its own scale'")
        assert set_range(page, "20", "30") == ""
        drawn = np.array(run_until(page, 60)["inputs"])[:60, 0]
        assert np.isclose(drawn, 27.5, atol=0.1).sum() in range(28, 34)
        assert np.isclose(drawn, 25).sum() >= 60 - 34
        steps = page.evaluate("playground.engine.steps")
        page.evaluate("document.querySelector('.controls input').focus()")
        press(page, ".")  # of a number, not the key for one step
        assert page.evaluate("playground.engine.steps") == steps
        assert page.complaints == []


def draw_a_line(page):
    """With a pointer, over the middle half of the drawing, at three quarters of its height."""
    corners = "(({x, y, width, height}) => [x, y, width, height])"
    x, y, width, height = page.evaluate(f"{corners}(document.querySelector('.sketch').getBoundingClientRect())")
    for kind, across in (("mousePressed", 0.25), ("mouseMoved", 0.75), ("mouseReleased", 0.75)):
        place = {"x": x + across * width, "y": y + 0.25 * height}
        page.call("Input.dispatchMouseEvent", type=kind, button="left", buttons=1, clickCount=1, **place)


@pytest.mark.parametrize("tokens", [False, True], ids=["numbers", "tokens"])
def test_test_data(page, tokens):
    """Sequence after sequence, each from the beginning, with its right class below."""
    program = program_of(tokens=tokens, inputs=5, outputs=3, readout="mean")
    examples = [(inputs_of(program, 1, 9 + index, seed=index)[0], index) for index in range(3)]
    about = About(labels=("one", "two", "three"), symbols=tuple("abcde") if tokens else (), steps_per_second=100.0)
    with served(files_of(program, about, examples)) as server:
        visit(page, server, "test")
        record = run_until(page, 40)
        options = page.evaluate("Array.from(document.querySelectorAll('.pick option'), (one) => one.textContent)")
        assert page.complaints == []
    assert options == ["1 of 3: one", "2 of 3: two", "3 of 3: three"]
    assert_answers(program, record, 40)
    fed = np.float32(record["inputs"][:30])
    expected = np.concatenate([x.reshape(len(x), -1) for x, _ in examples])
    np.testing.assert_array_equal(fed, expected)
    assert [step - record["first"] for step in record["begins"] if step >= record["first"]][:4] == [0, 9, 19, 30]


def test_begin_anew_is_for_what_feeds_it_as_well(page):
    program = program_of(readout="mean")
    examples = [(inputs_of(program, 1, 9, seed=seed)[0], seed) for seed in range(2)]
    with served(files_of(program, FAST, examples)) as server:
        visit(page, server, "test")
        page.evaluate("playground.choose('test')")
        page.evaluate("for (let i = 0; i < 12; i++) playground.step()")  # the second sequence has begun
        page.evaluate("playground.reset()")
        page.evaluate("for (let i = 0; i < 9; i++) playground.step()")
        record = page.evaluate("playground.record()")
        assert page.complaints == []
    np.testing.assert_array_equal(np.float32(record["inputs"][-9:]), examples[1][0])
    assert record["begins"][-1] == record["first"] + len(record["inputs"]) - 9


def test_a_stream_begins_anew_after_every_window(page):
    """As `mgrade stream` does, whatever feeds it."""
    program = program_of(inputs=4, readout="mean")
    about = About(window=14, frame=2, steps_per_second=100.0)
    with served(files_of(program, about)) as server:
        visit(page, server, "drawn")
        record = run_until(page, 40)
        assert "restarts every 14 samples" in page.evaluate("document.getElementById('subtitle').textContent")
        assert page.complaints == []
    assert_answers(program, record, 40)
    assert [step - record["first"] for step in record["begins"] if step >= record["first"]][:6] == list(range(0, 36, 7))


def test_frames_are_samples_of_channels(page, tmp_path):
    """A step of two samples of three channels: from a file of three, and from a drawing of three."""
    program = program_of(inputs=6)
    about = About(frame=2, channels=("ax", "ay", "a rather long name"), steps_per_second=100.0)
    samples = np.random.default_rng(0).uniform(-0.9, 0.9, (41, 3))
    clip = write_wav(tmp_path / "three.wav", samples, RATE)
    with served(files_of(program, about)) as server:
        played = heard(page, server, clip, 45)
        assert page.evaluate("playground.engine.channels") == 3
        assert "3 channels: ax, ay" in page.evaluate("document.getElementById('scope').textContent")
        page.evaluate("playground.choose('drawn')")
        options = page.evaluate("Array.from(document.querySelectorAll('.controls option'), (one) => one.textContent)")
        drawn = run_until(page, 60)
        values = np.array(page.evaluate("playground.source.values.map((one) => Array.from(one))"))
        assert "reads 3 channels" in page.evaluate("document.getElementById('reason').textContent")
        assert page.complaints == []
    assert options == ["ax", "ay", "a rather long name"]
    whole = since(played, next(step for step in played["begins"] if step + 20 in played["begins"]))
    stored = np.float32(np.round(samples * 32767) / 32768)[:40]
    np.testing.assert_array_equal(np.float32(whole["inputs"][:20]), stored.reshape(20, 6))
    assert_answers(program, drawn, 60)
    np.testing.assert_allclose(drawn["inputs"][:30], values.T.reshape(30, 6), atol=1e-6)


def test_typed_tokens(page):
    program = program_of(tokens=True, inputs=5)
    about = About(symbols=tuple("wri01"), steps_per_second=100.0)
    with served(files_of(program, about)) as server:
        visit(page, server, "drawn")
        enter = "(text) => { const box = document.querySelector('.typed input'); box.value = text;"
        enter += " box.dispatchEvent(new Event('input')); return document.querySelector('.said').textContent }"
        assert "no token x" in page.evaluate(f"({enter})('w1x')")
        assert "no token" not in page.evaluate(f"({enter})('w1 i0')")
        page.evaluate("playground.reset()")
        record = run_until(page, 8)
        assert page.complaints == []
    assert_answers(program, record, 8)
    assert [x for (x,) in record["inputs"][:8]] == [0, 4, 2, 3] * 2


def test_a_source_chosen_while_the_microphone_opens_wins(page):
    program = sound_program()
    with served(files_of(program, SOUND)) as server:
        visit(page, server, "microphone")
        page.evaluate("void playground.play(), globalThis.microphone = playground.source, playground.choose('drawn')")
        record = run_until(page, 100)
        assert page.evaluate("microphone.next()") is None  # and it listens no more
        assert page.complaints == []
    assert_answers(program, record, 100)


def test_a_source_chosen_while_playing_plays_on(page):
    """Also the microphone; and a file that is missing is asked for."""
    with served(files_of(sound_program(), SOUND)) as server:
        page.open(server.address)
        page.until("window.playground && playground.playing")
        page.evaluate("playground.choose('microphone')")
        page.until("playground.playing")
        page.evaluate("playground.choose('wav')")
        assert not page.evaluate("playground.playing")
        page.evaluate("document.getElementById('play').click()")
        page.until("document.querySelector('.said').textContent === 'Choose a WAV file first.'")
        assert not page.evaluate("playground.playing")
        assert page.complaints == []
