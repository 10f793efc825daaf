"""Estimators: `fit` and `predict` as in scikit-learn, then a stream of samples, and a program for a chip.

>>> classifier = StreamClassifier(budget="64KB").fit(X, y)      # X (cases, channels, time), or a list of series
>>> classifier.predict_proba(X)
>>> stream = classifier.stream(); stream.step(sample)           # the same probabilities, one raw sample at a time
>>> classifier.export("c", "folder", precision="int8")

They need scikit-learn (`pip install 'mgrade[sklearn]'`) and build on `deploy`, which reads the files of saved
estimators but never imports this folder.
"""

from mgrade.estimator.classifier import StreamClassifier
from mgrade.estimator.forecaster import StreamForecaster
from mgrade.estimator.recordings import Recordings, read_csv, split
from mgrade.estimator.stream import ClassStream, ForecastStream

__all__ = [
    "ClassStream",
    "ForecastStream",
    "Recordings",
    "StreamClassifier",
    "StreamForecaster",
    "read_csv",
    "split",
]
