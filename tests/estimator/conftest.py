"""Estimators fitted once for all tests; without scikit-learn there is nothing to test."""

import importlib.util

import pytest

collect_ignore_glob = [] if importlib.util.find_spec("sklearn") else ["test_*.py"]


@pytest.fixture(scope="session")
def fitted():
    from estimator.waves import small, waves

    return small().fit(*waves())


@pytest.fixture(scope="session")
def forecaster():
    from estimator.waves import oscillations, small_forecaster

    return small_forecaster().fit(oscillations())
