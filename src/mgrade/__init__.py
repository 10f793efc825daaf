"""mgrade: compact sequence models that train in parallel and run one sample at a time, in constant memory.

>>> model = Model(ModelConfig(inputs=1, outputs=10))
>>> y, state = model(x)                 # a whole sequence, or any chunk of it
>>> y_t, state = model.step(x_t, state) # or one sample at a time: the same outputs

`StreamClassifier` and `StreamForecaster` are scikit-learn estimators, imported when they are first asked for.
"""

from typing import TYPE_CHECKING, Any

from mgrade.nn import Model, ModelConfig, State, load

__version__ = "0.1.0"

__all__ = ["Model", "ModelConfig", "State", "__version__", "load"]

if TYPE_CHECKING:
    from mgrade.estimator import StreamClassifier as StreamClassifier
    from mgrade.estimator import StreamForecaster as StreamForecaster


def __getattr__(name: str) -> Any:
    """The estimators, which need scikit-learn, an extra: not before someone wants one."""
    if name not in ("StreamClassifier", "StreamForecaster"):
        raise AttributeError(f"module 'mgrade' has no attribute {name!r}")
    try:
        from mgrade import estimator
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "sklearn":
            raise
        raise ImportError(f"mgrade.{name} needs scikit-learn: pip install 'mgrade[sklearn]'") from None
    return getattr(estimator, name)
