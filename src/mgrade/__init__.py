"""mgrade: compact sequence models that train in parallel and run one sample at a time, in constant memory.

>>> model = Model(ModelConfig(inputs=1, outputs=10))
>>> y, state = model(x)                 # a whole sequence, or any chunk of it
>>> y_t, state = model.step(x_t, state) # or one sample at a time: the same outputs
"""

from mgrade.nn import Model, ModelConfig, State, load

__version__ = "0.1.0"

__all__ = ["Model", "ModelConfig", "State", "__version__", "load"]
