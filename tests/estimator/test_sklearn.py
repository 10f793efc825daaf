"""scikit-learn's own checks of estimators, on tables, and that nothing imports it before it is asked for."""

import subprocess
import sys

import pytest
from sklearn.utils.estimator_checks import check_estimator

from mgrade import StreamClassifier, StreamForecaster

ANY_LENGTH = {"check_n_features_in_after_fitting": "columns are steps, and a series so far may have any number of them"}


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (StreamClassifier(dim=8, depth=1, epochs=8, batch=32, rate=0.05, dropout=0.0), {}),
        (StreamForecaster(dim=4, depth=1, epochs=1), ANY_LENGTH),
    ],
    ids=["classifier", "forecaster"],
)
def test_scikit_learns_checks(estimator, expected):
    results = check_estimator(estimator, expected_failed_checks=expected, on_fail=None, on_skip=None)
    failed = {one["check_name"]: one["exception"] for one in results if one["status"] == "failed"}
    assert not failed
    assert {one["check_name"] for one in results if one["status"] == "xfail"} == expected.keys()
    assert sum(one["status"] == "passed" for one in results) > 35


def test_importing_mgrade_does_not_import_scikit_learn():
    code = "import sys, mgrade; assert not {'sklearn', 'scipy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_scikit_learn_the_message_says_what_to_install():
    code = "import sys; sys.modules['sklearn'] = None; import mgrade; mgrade.StreamClassifier"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ImportError: mgrade.StreamClassifier needs scikit-learn: pip install 'mgrade[sklearn]'" in done.stderr
