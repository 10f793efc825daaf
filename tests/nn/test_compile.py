"""A model is one graph to `torch.compile` and `torch.export`, and gives there what it gives eagerly."""

import io

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map

from helpers import PRESETS, assert_close, compiled, leaves, model_of, random_input, small, some

# PyTorch's own, while inductor is imported
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")


class OneStep(nn.Module):
    """What runs on a device: one sample and the state in, one output and the state out."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x_t, state):
        return self.model.step(x_t, state)


def exported(model, state, **options):
    return torch.export.export(
        OneStep(model), (random_input(model.config, len(state.total), 1)[:, 0], state), **options
    )


@pytest.mark.parametrize("preset", PRESETS)
def test_an_exported_model_takes_any_number_of_steps(preset):
    model = model_of(small(preset))
    any_number = ({1: torch.export.Dim("time", min=1, max=512)},)
    program = torch.export.export(model, (random_input(model.config, 2, 11),), dynamic_shapes=any_number).module()
    for time in (1, 2, 5, 40):
        x = random_input(model.config, 2, time)
        (got, after), (expected, state) = program(x), model(x)
        assert_close(got, expected, 1e-12)
        for name, tensor in leaves(state).items():
            assert_close(leaves(after)[name], tensor, 1e-12)


def training_step(model):
    def step(x, lengths, reset):
        y, state = model(x, lengths=lengths, reset=reset)
        return y.square().mean() + sum(hidden.abs().square().mean() for hidden in state.hidden if hidden.numel())

    return step


@pytest.mark.parametrize(
    ("preset", "backend"),
    [("mgrade", None), *((preset, "aot_eager") for preset in ("mgrade", "tcn", "lru"))],
    ids=lambda value: value or "inductor",
)
def test_a_compiled_training_step_equals_an_eager_one(preset, backend):
    model = model_of(small(preset, readout="mean", depth=1))
    step = training_step(model)
    run = compiled(step, backend)
    for time in (7, 11):  # the second length makes time symbolic
        inputs = (random_input(model.config, 2, time), torch.tensor([time, 4]), some(2, time))
        eager = step(*inputs)
        expected = torch.autograd.grad(eager, list(model.parameters()))
        loss = run(*inputs)
        assert_close(loss, eager, 1e-12)
        for grad, exact in zip(torch.autograd.grad(loss, list(model.parameters())), expected, strict=True):
            assert_close(grad, exact, 1e-10)


def test_a_compiled_model_streams():
    model = model_of(small("mgrade"))
    x = random_input(model.config, 2, 9)
    with torch.no_grad():
        y, last = model(x)
        run, state, outputs = compiled(model.step, "aot_eager"), model.initial_state(2), []
        for x_t in x.unbind(1):
            y_t, state = run(x_t, state)
            outputs.append(y_t)
    assert_close(torch.stack(outputs, 1), y, 1e-12)
    assert_close(state.hidden[1], last.hidden[1], 1e-12)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(("readout", "tokens"), [("every", False), ("mean", True)])
def test_an_exported_step_equals_the_models(preset, readout, tokens):
    model = model_of(small(preset, readout=readout, tokens=tokens)).eval()
    state = same = model.initial_state(2)
    program = exported(model, state).module()
    for x_t in random_input(model.config, 2, 12).unbind(1):
        (y, state), (expected, same) = program(x_t, state), model.step(x_t, same)
        assert_close(y, expected, 1e-12)
    for name, tensor in leaves(same).items():
        assert_close(leaves(state)[name], tensor, 1e-12, what=name)


def test_an_exported_step_serves_any_number_of_streams():
    model = model_of(small("mgrade")).eval()
    batch = torch.export.Dim("batch", min=1)
    state = model.initial_state(3)
    program = exported(model, state, dynamic_shapes=({0: batch}, tree_map(lambda _: {0: batch}, state))).module()
    for streams in (1, 5):
        x_t, state = random_input(model.config, streams, 1)[:, 0], model.initial_state(streams)
        assert_close(program(x_t, state)[0], model.step(x_t, state)[0], 1e-12)


@pytest.mark.parametrize("preset", ["mgrade", "lru"])
def test_an_exported_step_survives_saving(preset):
    model = model_of(small(preset)).eval()
    state, file = model.initial_state(2), io.BytesIO()
    torch.export.save(exported(model, state), file)
    file.seek(0)
    program = torch.export.load(file).module()
    x_t = random_input(model.config, 2, 1)[:, 0]
    (y, after), (expected, wanted) = program(x_t, state), model.step(x_t, state)
    assert_close(y, expected, 1e-12)
    assert type(after) is type(wanted)


def test_a_state_is_saved_and_loaded_without_trusting_pickle():
    _, state = model_of(small("mgrade"))(torch.randn(2, 5, 3, dtype=torch.float64))
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert type(loaded) is type(state)
    assert all(torch.equal(tensor, leaves(state)[name]) for name, tensor in leaves(loaded).items())
