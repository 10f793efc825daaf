"""`StreamClassifier`: series in, classes out, whole or sample by sample."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from estimator.waves import CLASSES, small, waves
from mgrade import StreamClassifier


def test_it_learns_series_of_unequal_length(fitted):
    X, y = waves(seed=1)
    assert fitted.score(X, y) >= 0.95
    assert list(fitted.classes_) == sorted(CLASSES)
    assert (fitted.n_channels_, fitted.n_features_in_) == (2, 2)
    probabilities = fitted.predict_proba(X)
    assert probabilities.shape == (len(X), 3)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    np.testing.assert_array_equal(fitted.classes_[probabilities.argmax(1)], fitted.predict(X))


def test_a_stream_gives_what_predict_proba_gives_of_the_prefix(fitted):
    series = waves(seed=2)[0][0]
    stream = fitted.stream()
    for _ in range(2):
        for t, sample in enumerate(series.T, 1):
            np.testing.assert_allclose(stream.step(sample), fitted.predict_proba([series[:, :t]])[0], atol=1e-9)
        assert stream.steps == len(series.T)
        stream.reset()


def test_what_stands_in_a_batch_beside_a_series_does_not_matter(fitted):
    X, _ = waves(seed=3)
    alone = np.concatenate([fitted.predict_proba([one]) for one in X])
    np.testing.assert_allclose(fitted.predict_proba(X), alone, atol=1e-12)


def test_both_layouts_and_three_axes_mean_the_same():
    X, y = waves(12, least=20, most=20)
    array = np.stack(X)
    expected = small(epochs=2).fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(small(epochs=2).fit(array, y).predict_proba(array), expected)
    turned = small(epochs=2, layout="cases_time_channels").fit(array.transpose(0, 2, 1), y)
    np.testing.assert_array_equal(turned.predict_proba([one.T for one in X]), expected)
    tensor = torch.tensor(array)
    np.testing.assert_array_equal(small(epochs=2).fit(tensor, y).predict_proba(tensor), expected)


def test_nested_lists_are_read_as_arrays_are():
    X, y = waves(8, least=9, most=12)
    expected = small(epochs=1).fit(X, y).predict_proba(X)
    nested = [one.tolist() for one in X]
    np.testing.assert_array_equal(small(epochs=1).fit(nested, y).predict_proba(nested), expected)
    flat = [one[0].tolist() for one in X]
    expected = small(epochs=1).fit([one[:1] for one in X], y).predict_proba([one[:1] for one in X])
    np.testing.assert_array_equal(small(epochs=1).fit(flat, y).predict_proba(flat), expected)
    with pytest.raises(ValueError, match=r"^X\[1\] must have rows of one length$"):
        small().fit([[[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [3.0]]], [0, 1])


def test_tensors_of_half_the_bits_are_read():
    X, y = np.random.default_rng(0).standard_normal((6, 2, 9)), [0, 1] * 3
    tensor = torch.tensor(X).bfloat16()
    whole = small(epochs=1).fit(tensor.double(), y)
    np.testing.assert_array_equal(small(epochs=1).fit(tensor, y).predict_proba(tensor), whole.predict_proba(tensor))


def test_a_table_holds_series_of_one_channel():
    X, y = waves(12, least=20, most=20)
    table = np.stack(X)[:, 0]
    classifier = small(epochs=2).fit(table, y)
    assert (classifier.n_features_in_, classifier.n_channels_) == (20, 1)
    np.testing.assert_array_equal(classifier.predict_proba(table[:, None]), classifier.predict_proba(table))
    assert classifier.predict(list(table[:, :7])).shape == (12,)
    with pytest.raises(ValueError, match="X has 7 features"):
        classifier.predict(table[:, :7])


def test_units_do_not_matter():
    X, y = waves(18)
    expected = small(epochs=3).fit(X, y).predict_proba(X)
    scaled = [1000 * one + 7 for one in X]
    np.testing.assert_allclose(small(epochs=3).fit(scaled, y).predict_proba(scaled), expected, atol=1e-3)


def test_the_best_epoch_is_kept():
    X, y = waves(60)
    y = np.where(np.random.default_rng(0).random(60) < 0.4, "slow", y)  # noise: there is something to overfit
    classifier = small(validation=0.15, patience=5, dropout=0.0, epochs=60).fit(X, y)
    losses = [epoch.validation for epoch in classifier.history_]
    assert len(losses) < 60
    assert classifier.best_epoch_ == 1 + int(np.argmin(losses)) == len(losses) - 5


def test_a_share_that_holds_out_no_case_is_refused():
    with pytest.raises(ValueError, match=r"validation must hold out at least one case, got 0.05 of 12$"):
        small(epochs=1, validation=0.05).fit(*waves(12))


def test_without_held_out_cases_training_goes_to_its_end():
    classifier = small(epochs=3, patience=1).fit(*waves(12))
    assert [epoch.validation for epoch in classifier.history_] == [None] * 3
    assert classifier.best_epoch_ == 3


def test_the_same_seed_gives_the_same_model_and_leaves_torch_alone():
    X, y = waves(12)
    before = torch.random.get_rng_state()
    first, second, other = (small(epochs=2, random_state=seed).fit(X, y).predict_proba(X) for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


def test_clone_pipeline_grid_search_and_pickle(fitted):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "model_")
    X, y = waves(12, least=20, most=20)
    tried = {
        "dim": [4, np.int64(8)],
        "rate": [np.float32(0.01)],
        "dropout": np.float32([0.25]),
        "validation": [np.float32(0)],
    }
    search = GridSearchCV(small(epochs=1), tried, cv=2).fit(X, y)
    assert search.best_estimator_.config_.dim in (4, 8)
    assert search.best_estimator_.config_.to_dict()["dropout"] == 0.25
    table = np.stack(X)[:, 0]
    assert make_pipeline(StandardScaler(), small(epochs=1)).fit(table, y).predict(table).shape == (12,)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))


@pytest.mark.parametrize("call", ["predict", "predict_proba", "stream", "footprint", "export", "save"])
def test_before_fit_nothing_can_be_asked(call):
    arguments = {"predict": ([],), "predict_proba": ([],), "export": ("c", "x"), "save": ("x",)}.get(call, ())
    with pytest.raises(NotFittedError):
        getattr(StreamClassifier(), call)(*arguments)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("dim", 0),
        ("epochs", 1.5),
        ("batch", "many"),
        ("rate", -1),
        ("validation", 1),
        ("layout", "time"),
        ("precision", "int4"),
        ("readout", "every"),
        ("budget", "much"),
        ("budget", 100),
        ("max_delay", -3),
        ("frame", 0),
        ("frame", 31),
        ("dropout", 1),
        ("device", "toaster"),
        ("verbose", "yes"),
        ("verbose", -1),
    ],
)
def test_a_bad_parameter_is_named(parameter, value):
    with pytest.raises(ValueError, match=f"^{parameter} must"):
        small(**{parameter: value}).fit(*waves(6))


def test_bad_series_are_named(fitted):
    X, y = waves(6)
    with pytest.raises(ValueError, match=r"X\[3\] must have 2 channels like X\[0\], got 1"):
        small().fit([*X[:3], X[3][:1], *X[4:]], y)
    with pytest.raises(ValueError, match=r"X\[1\] must be finite"):
        small().fit([X[0], X[1] * np.nan, *X[2:]], y)
    with pytest.raises(ValueError, match=r"X\[0\] must have at least one step"):
        small().fit([X[0][:, :0], *X[1:]], y)
    with pytest.raises(ValueError, match=r"X\[1\] must be within 3.4e\+38 of 0, got 1e\+300"):
        small().fit([X[0], X[1] * 0 + 1e300, *X[2:]], y)
    with pytest.raises(ValueError, match=r"X must be within 3.4e\+38 of 0, got 1e\+300"):
        small().fit(np.full((6, 9), 1e300), y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        small().fit(X, y[:-1])
    with pytest.raises(ValueError, match=r"y must have at least 2 classes, got 1 class: 'one'$"):
        small().fit(X, ["one"] * 6)
    with pytest.raises(ValueError, match="X must have 2 channels as in fit, got 20; layout is"):
        fitted.predict(np.zeros((3, 20, 2)))
    with pytest.raises(ValueError, match="sample must be 2 finite numbers"):
        fitted.stream().step([1.0])


def test_verbose_says_how_it_goes(capsys):
    small(epochs=2, verbose=1, validation=0.15).fit(*waves(12))
    assert capsys.readouterr().out.count("validation loss") == 2


def test_a_fit_that_fails_leaves_what_was_fitted_before():
    X, y = waves()
    classifier = small(epochs=2).fit(X, y)
    before, kept = classifier.predict_proba(X), {**vars(classifier)}
    with pytest.raises(ValueError, match="rate"):
        classifier.set_params(rate=1e30).fit([one[:1] for one in X], y[::-1])
    np.testing.assert_array_equal(classifier.set_params(rate=kept["rate"]).predict_proba(X), before)
    assert {**vars(classifier)} == kept
    new = small(rate=1e30)
    with pytest.raises(ValueError, match="rate"):
        new.fit(X, y)
    with pytest.raises(NotFittedError):
        new.predict(X)


def test_a_channel_far_from_zero_for_its_spread_is_warned_about():
    X, y = waves()
    far = [one + np.array([[0.0], [1e10]]) for one in X]
    with pytest.warns(UserWarning, match=r"channel 1 must vary by at least 1e-06 of its mean .* subtract an offset"):
        classifier = small().fit(far, y)
    assert classifier.score(far, y) >= 0.9  # by the other channel


def test_a_spread_next_to_nothing_is_warned_about():
    X, y = waves()
    with pytest.warns(UserWarning, match=r"channel 1 must vary by at least 1e-30 to be told .* smaller units"):
        small().fit([one * np.array([[1.0], [1e-33]]) for one in X], y)


def test_what_holds_no_plain_numbers_is_refused_and_a_stream_takes_no_more_than_a_prediction():
    X, y = waves()
    classifier = small().fit(X, y)
    masked = np.ma.masked_array(X[0], X[0] > 0)
    for given in (masked[None], [X[1], masked]):
        with pytest.raises(ValueError, match=r"^X must not be masked"):
            classifier.predict(given)
    with pytest.raises(ValueError, match=r"^X must not be masked"):
        small().fit([masked, *X[1:]], y)
    cells = np.empty((len(X), 2), object)
    for row, one in zip(cells, X, strict=True):
        row[:] = list(one)
    frame = type("Frame", (), {"values": cells, "shape": cells.shape, "ndim": 2, "__len__": lambda self: len(cells)})()
    for table in (cells, frame):
        with pytest.raises(ValueError, match=r"^X must hold numbers, got series in its cells"):
            small().fit(table, y)
    stream = classifier.stream()
    for sample in (["a", "b"], [None, {}]):
        with pytest.raises(ValueError, match=r"^sample must be 2 finite numbers, got "):
            stream.step(sample)
    with pytest.raises(ValueError, match=r"^sample must be within 3.4e\+38 of 0, got 1e\+300$"):
        stream.step([1e300, 0.0])
    assert np.isfinite(stream.step([1.0, 0.0])).all()
    assert stream.steps == 1


def test_units_may_be_tiny():
    X, y = waves()
    tiny = [one * 1e-27 for one in X]
    assert small().fit(tiny, y).score(tiny, y) >= 0.95
