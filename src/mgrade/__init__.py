"""mgrade: compact sequence models that train in parallel and run one sample at a time, in constant memory.

>>> model = Model(ModelConfig(inputs=1, outputs=10))
>>> y, state = model(x)                 # a whole sequence, or any chunk of it
>>> y_t, state = model.step(x_t, state) # or one sample at a time: the same outputs

`StreamClassifier` and `StreamForecaster` are scikit-learn estimators. All names are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["Model", "ModelConfig", "State", "__version__", "load"]

if TYPE_CHECKING:
    from mgrade.estimator import StreamClassifier as StreamClassifier
    from mgrade.estimator import StreamForecaster as StreamForecaster
    from mgrade.nn import Model, ModelConfig, State, load

_ESTIMATORS = ("StreamClassifier", "StreamForecaster")


def __getattr__(name: str) -> Any:
    """Imports PyTorch, which takes seconds, and scikit-learn, which is optional, only when a name needs them."""
    if name in ("nn", "ops"):
        return import_module(f"mgrade.{name}")
    if name in __all__:
        return getattr(import_module("mgrade.nn"), name)
    if name not in _ESTIMATORS:
        raise AttributeError(f"module 'mgrade' has no attribute {name!r}")
    try:
        return getattr(import_module("mgrade.estimator"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "sklearn":
            raise
        raise ImportError(f"mgrade.{name} needs scikit-learn: pip install 'mgrade[sklearn]'") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ESTIMATORS})
