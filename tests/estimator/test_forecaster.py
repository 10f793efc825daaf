"""`StreamForecaster`: how series go on, from whole ones or sample by sample."""

import shutil

import numpy as np
import pytest

from estimator.waves import oscillations, small_forecaster
from mgrade import StreamForecaster
from mgrade.deploy import compile
from mgrade.estimator.forecaster import PIECE, _pieces


def test_it_foretells_the_next_sample(forecaster):
    assert forecaster.score(oscillations(seed=1)) > 0.98


def test_the_continuation_is_that_of_the_stream(forecaster):
    X = oscillations(3, seed=2)
    ahead = forecaster.predict(X, horizon=4)
    assert ahead.shape == (3, 2, 4)
    np.testing.assert_allclose(forecaster.predict(X), ahead[:, :, :1], atol=1e-9)
    for series, expected in zip(X, ahead, strict=True):
        stream = forecaster.stream()
        for sample in series.T:
            following = stream.step(sample)
        np.testing.assert_allclose(following, expected[:, 0], atol=1e-7)
        np.testing.assert_allclose(stream.forecast(4), expected.T, atol=1e-7)
        np.testing.assert_allclose(stream.step(expected[:, 0]), expected[:, 1], atol=1e-7)  # it stayed where it was


def test_forecasts_have_the_axes_of_the_series(forecaster):
    X = np.stack([one[:, :60] for one in oscillations(4)])
    turned = small_forecaster(layout="cases_time_channels", epochs=1, horizon=3).fit(X.transpose(0, 2, 1))
    assert turned.predict(X.transpose(0, 2, 1)).shape == (4, 3, 2)
    table = small_forecaster(epochs=1).fit(X[:, 0])
    assert table.predict(X[:, 0, :20], horizon=5).shape == (4, 5)


def test_one_long_series_is_enough():
    series = np.sin(0.3 * np.arange(700))
    forecaster = small_forecaster(epochs=30).fit([series])
    assert forecaster.score([series]) > 0.95


def test_a_large_share_held_out_leaves_a_series_to_learn_from():
    forecaster = small_forecaster(epochs=1, validation=0.99).fit(oscillations(12))
    assert forecaster.history_[0].validation is not None


def test_pieces_cover_a_series_and_predict_every_sample_of_it():
    for length in (2, PIECE, PIECE + 1, PIECE + 2, 2 * PIECE, 1000):
        series = np.arange(length)[:, None]
        pieces = _pieces([series])
        assert all(2 <= len(piece) <= PIECE + 1 for piece in pieces)
        foretold = {int(value) for piece in pieces for value in piece[1:, 0]}
        assert foretold == set(range(1, length))


@pytest.mark.skipif(not shutil.which("gcc"), reason="no C compiler: gcc is not installed")
def test_the_compiled_program_takes_and_gives_raw_samples(forecaster):
    series = oscillations(1, seed=3)[0]
    compiled = compile(forecaster.program("float32"))
    last = compiled.run(series.T.astype(np.float32))[-1]
    np.testing.assert_allclose(last, forecaster.predict([series])[0, :, 0], rtol=1e-3)


def test_a_budget_is_kept():
    forecaster = small_forecaster(budget="8KB", epochs=1).fit(oscillations())
    assert 2048 < forecaster.footprint()["bytes"] <= 8192


def test_save_and_load(forecaster, tmp_path):
    forecaster.save(tmp_path / "saved")
    again = StreamForecaster.load(tmp_path / "saved")
    X = oscillations(2, seed=4)
    np.testing.assert_array_equal(again.predict(X, 3), forecaster.predict(X, 3))


def test_bad_input_is_named(forecaster):
    with pytest.raises(ValueError, match="horizon must be a whole number"):
        forecaster.predict(oscillations(1), horizon=0)
    with pytest.raises(ValueError, match="horizon must be a whole number"):
        small_forecaster(horizon=None).fit(oscillations(1))
    with pytest.raises(ValueError, match="X must have a series of at least 2 steps"):
        small_forecaster().fit([np.zeros((2, 1))])
    with pytest.raises(ValueError, match="X must have at least 2 samples"):
        forecaster.score([np.zeros((2, 2))])
    with pytest.raises(ValueError, match="must have read a sample"):
        forecaster.stream().forecast(2)


@pytest.mark.parametrize("horizon", [0, -1, 1.5, True])
def test_a_horizon_is_a_whole_number(horizon):
    series = [np.sin(np.arange(30.0))[None]]
    stream = StreamForecaster(epochs=1, budget="8KB").fit(series).stream()
    stream.step([0.0])
    with pytest.raises(ValueError, match="horizon must be a whole number of at least 1, got"):
        stream.forecast(horizon)


def test_what_is_done_to_a_forecast_does_not_change_the_next(forecaster):
    series = oscillations(1)[0].T
    one, other = forecaster.stream(), forecaster.stream()
    for sample in series:
        said = one.step(sample)
        other.step(sample)
        said *= 0
    np.testing.assert_array_equal(one.forecast(3), other.forecast(3))


def test_a_channel_that_stands_still_does_not_count_in_a_score():
    moving = [one[:1] for one in oscillations()]
    alone = small_forecaster().fit(moving).score(moving)
    still = [np.concatenate([one, np.full_like(one, 101325.3)]) for one in moving]
    assert small_forecaster().fit(still).score(still) > alone - 0.1
    flat = [np.full((1, 20), 3.0)] * 4
    assert small_forecaster(epochs=1).fit(flat).score(flat) in (0.0, 1.0)
