"""Models whose parts are wrapped, taken away, or materialised after they were built."""

import pytest
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from helpers import assert_close, model_of, random_input, small, steps_of
from mgrade import Model

WRAPPERS = {"compiled": lambda layer: torch.compile(layer, backend="eager"), "checkpointed": checkpoint_wrapper}


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # the compiler's own
@pytest.mark.parametrize("wrapped", [(0,), (0, 1)])
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_wrapped_layers_run(wrap, wrapped):
    model = model_of(small("mgrade"))
    x = random_input(model.config, 2, 9)
    expected, state = model(x)
    for index in wrapped:
        model.layers[index] = wrap(model.layers[index])
    y, other = model(x)
    assert_close(y, expected, 1e-12)
    assert_close(other.history[1], state.history[1], 1e-12)
    assert_close(model(x, last=2)[0], expected[:, -2:], 1e-12)
    assert_close(steps_of(model, x), expected, 1e-12)


def test_a_layer_without_its_mlp_streams():
    model = model_of(small("mgrade"))
    x = random_input(model.config, 2, 9)
    model.layers[0].mlp = None
    assert_close(steps_of(model, x), model(x)[0], 1e-12)


@pytest.mark.parametrize("readout", ["every", "last", "mean"])
def test_a_model_without_a_head_gives_features(readout):
    model = model_of(small("mgrade", readout=readout))
    x, head = random_input(model.config, 2, 9), model.readout.head
    expected = model(x)[0]
    model.readout.head = torch.nn.Identity()
    features, _ = model(x)
    assert features.shape[-1] == model.config.dim
    assert_close(head(features), expected, 1e-12)
    assert_close(model(x[:, 6:], model(x[:, :6])[1])[0], features[:, 6:] if readout == "every" else features, 1e-12)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("vocabulary", [5, 300])
def test_a_model_of_tokens_is_whole_after_it_was_built_without_memory(assign, vocabulary):
    model = model_of(small("mgrade", tokens=True, inputs=vocabulary))
    x = random_input(model.config, 2, 9)
    with torch.device("meta"):
        other = Model(model.config)
    if not assign:
        other.double().to_empty(device="cpu")
    other.load_state_dict(model.state_dict(), assign=assign)
    assert_close(other(x)[0], model(x)[0], 0)
