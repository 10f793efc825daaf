"""Series that a second of training tells apart, and estimators small enough for it."""

import numpy as np

from mgrade import StreamClassifier, StreamForecaster

CLASSES = np.array(["rising", "slow", "swift"])
OFFSET, WIDTH = np.array([5.0, -300.0]), np.array([0.5, 40.0])


def waves(count=36, seed=0, least=18, most=30):
    """Series (2 channels, time) of unequal length and raw units, and which of three kinds each is."""
    source = np.random.default_rng(seed)
    labels = np.arange(count) % 3
    series = []
    for label in labels:
        time = np.arange(source.integers(least, most + 1))
        phase = source.uniform(0, 2 * np.pi)
        clean = time / 12 - 1 if label == 0 else np.sin(time * (0.35 if label == 1 else 1.4) + phase)
        both = np.stack([clean, np.roll(clean, 1)]) + 0.1 * source.standard_normal((2, len(time)))
        series.append(both * WIDTH[:, None] + OFFSET[:, None])
    return series, CLASSES[labels]


def small(**parameters):
    return StreamClassifier(**{"dim": 12, "depth": 1, "epochs": 40, "rate": 0.02, "random_state": 0, **parameters})


def small_forecaster(**parameters):
    sizes = {"dim": 12, "depth": 1, "epochs": 40, "rate": 0.02, "random_state": 0}
    return StreamForecaster(**{**sizes, **parameters})


def oscillations(count=12, seed=0, steps=60):
    """Noiseless series (2 channels, time) in raw units: where they go is in where they have been."""
    source = np.random.default_rng(seed)
    series = []
    for phase in source.uniform(0, 2 * np.pi, count):
        angle = 0.4 * np.arange(steps + source.integers(0, 9)) + phase
        series.append(np.stack([np.sin(angle), np.cos(angle)]) * WIDTH[:, None] + OFFSET[:, None])
    return series
