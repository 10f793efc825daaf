"""Long series: several samples at a step, the same answers whole and streamed, and no more training than it takes."""

import shutil

import numpy as np
import pytest
import torch

from estimator.waves import small
from mgrade import StreamClassifier
from mgrade.deploy import compile, dequantise_output, quantise_input
from mgrade.estimator import series
from mgrade.estimator.base import FEWEST_EPOCHS, MOST_EPOCHS, STEPS_IN_ALL, _epochs
from mgrade.estimator.learn import _batches


def tones(count=24, seed=0, samples=400):
    """Long series (2 channels, time) in raw units: one of two pitches, from any phase, and how each sounds."""
    source = np.random.default_rng(seed)
    y = np.where(np.arange(count) % 2, "high", "low")
    X = []
    for label in y:
        time = np.arange(samples + source.integers(0, 50))
        phase = source.uniform(0, 6) + (0.5 if label == "low" else 0.8) * time
        X.append(100 + 30 * np.stack([np.sin(phase), np.cos(phase)]))
    return X, y


@pytest.fixture(scope="module")
def fitted():
    return small(epochs=15).fit(*tones())


def test_long_series_are_read_in_about_a_hundred_steps(fitted):
    assert fitted.frame_ == 4
    assert fitted.config_.inputs == 2 * 4
    assert (fitted.n_channels_, len(fitted.mean_)) == (2, 2)
    assert fitted.score(*tones(seed=1)) >= 0.95


@pytest.mark.parametrize(("samples", "frame"), [(100, 1), (199, 1), (200, 2), (1000, 10)])
def test_how_many_samples_make_a_step(samples, frame):
    assert StreamClassifier()._frames([samples] * 3, 1) == (frame, samples // frame)


def test_a_stream_gives_what_predict_proba_gives_of_the_prefix(fitted):
    one = tones(1, seed=2)[0][0][:, :30]
    stream = fitted.stream()
    for _ in range(2):
        for t, sample in enumerate(one.T, 1):
            np.testing.assert_allclose(stream.step(sample), fitted.predict_proba([one[:, :t]])[0], atol=1e-9)
        assert stream.steps == 30
        stream.reset()


def test_frames_hold_samples_in_their_order():
    one = np.arange(14.0).reshape(7, 2)
    (steps,) = series.framed([one], 3)
    np.testing.assert_array_equal(steps, [np.arange(6), np.arange(6, 12)])
    values, lengths = series.pad([one, one[:2]], torch.float64)
    cut, steps_each = series.cut(values, lengths, 3, torch.zeros_like(lengths))
    assert steps_each.tolist() == [2, 0]
    np.testing.assert_array_equal(cut[0, :2], steps)
    later, steps_each = series.cut(values, lengths, 3, torch.tensor([1, 0]))
    assert steps_each.tolist() == [2, 0]
    np.testing.assert_array_equal(later[0, :2], series.framed([one[1:]], 3)[0])


@pytest.mark.skipif(not shutil.which("gcc"), reason="no C compiler: gcc is not installed")
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-3), ("int8", 0.1)])
def test_the_exported_program_takes_a_frame_of_raw_samples(fitted, tmp_path, precision, tolerance):
    description = fitted.export("c", tmp_path / "tones", precision)
    assert description["inputs"] == 8
    assert description["deviation"] < tolerance
    program = fitted.program(precision)
    X, _ = tones(6, seed=3)
    compiled = compile(program, flags=("-O1",))
    for one, expected in zip(X, fitted.predict_proba(X), strict=True):
        compiled.reset()
        (steps,) = series.framed([one.T], fitted.frame_)
        y = dequantise_output(program, compiled.run(quantise_input(program, steps.astype(np.float32))))[-1]
        np.testing.assert_allclose(torch.softmax(torch.tensor(y), 0), expected, atol=tolerance)


def test_frames_are_saved(fitted, tmp_path):
    fitted.save(tmp_path)
    again = StreamClassifier.load(tmp_path)
    X, _ = tones(4, seed=4)
    assert (again.frame_, again.n_channels_) == (4, 2)
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert again.footprint() == fitted.footprint()


def test_a_series_shorter_than_a_frame_can_be_among_the_others():
    X, y = tones(8)
    classifier = small(epochs=1, frame=8).fit([X[0][:, :3], *X[1:]], y)
    assert classifier.predict([X[0][:, :3]]).shape == (1,)
    assert all(one.shape[0] >= 8 for one in classifier.sample_)


def test_much_data_is_gone_through_less_often():
    assert _epochs(1000) == MOST_EPOCHS
    assert _epochs(STEPS_IN_ALL // 30) == 30
    assert _epochs(10**9) == FEWEST_EPOCHS
    assert len(small(epochs=None).fit(*tones(4, samples=20)).history_) == MOST_EPOCHS


def test_batches_hold_every_case_once_and_similar_lengths_together():
    torch.manual_seed(0)
    lengths = torch.randint(1, 200, (100,))
    batches = _batches(lengths, 8)
    assert torch.cat(batches).sort().values.tolist() == list(range(100))
    spread = torch.stack([lengths[batch].max() - lengths[batch].min() for batch in batches]).float().mean()
    assert spread < 60


def test_frames_are_no_wider_than_whole_numbers_allow():
    X = [np.random.default_rng(i).standard_normal((9, 6000)) for i in range(4)]
    y = [0, 1, 0, 1]
    classifier = StreamClassifier(dim=4, depth=1, epochs=1).fit(X, y)
    assert classifier.frame_ == 512 // 9
    assert classifier.program().integer
    with pytest.raises(ValueError, match="frame must be at most 56 for 9 channels at int8, got 57"):
        StreamClassifier(dim=4, depth=1, epochs=1, frame=57).fit(X, y)
    assert StreamClassifier(dim=4, depth=1, epochs=1, frame=57, precision="float32").fit(X, y).frame_ == 57


def test_a_caller_may_use_one_array_for_all_samples(fitted):
    series, stream, buffer = tones(1)[0][0], fitted.stream(), np.empty(tones(1)[0][0].shape[0])
    for sample in series.T:
        buffer[:] = sample
        said = stream.step(buffer)
        buffer[:] = 1e6
    np.testing.assert_allclose(said, fitted.predict_proba([series])[0], atol=1e-9)
