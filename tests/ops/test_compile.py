"""`torch.compile` and `torch.library` see each operator as one node that behaves as it does eagerly."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from helpers import OPERATORS, TOLERANCE, assert_close, compiled, each_operator, some


def backwards(tensor):
    """The same tensor with its axes in the opposite order in memory."""
    return tensor.permute(*range(tensor.dim())[::-1]).contiguous().permute(*range(tensor.dim())[::-1])


class Recorder(TorchDispatchMode):
    """Notes every call of an operator of ours, forward and backward."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if function.namespace == "mgrade":
            self.calls.append((function, tree_map_only(torch.Tensor, torch.Tensor.detach, arguments)))
        return function(*arguments, **(options or {}))


def differentiable(value):
    """Takes a gradient if it can."""
    floating = isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
    return value.requires_grad_() if floating else value


@each_operator("reference", "c")
@pytest.mark.parametrize("layout", [torch.Tensor.contiguous, backwards])
@pytest.mark.parametrize(("time", "stateful"), [(1, False), (4, True)])
def test_pytorch_finds_the_operators_well_formed(operator, backend, layout, time, stateful):
    """Schemas, fake tensors, strides, gradients, with symbolic shapes: what compiling and exporting rely on."""
    tensors = {name: layout(t.detach()).requires_grad_() for name, t in operator.sample(2, time, 3).items()}
    if not stateful:
        del tensors[operator.state]
    with Recorder() as recorder:
        y, state = operator(tensors, reset=some(2, time) if stateful else None, backend=backend)
        torch.autograd.grad((y, state), list(tensors.values()), (layout(y.detach()), state.detach()))
    assert any("backward" in function.name() for function, _ in recorder.calls)
    for function, arguments in recorder.calls:
        if "backward" in function.name():
            torch.library.opcheck(function, arguments, test_utils=("test_schema", "test_faketensor"))
        else:
            torch.library.opcheck(function, tuple(map(differentiable, arguments)))


@each_operator("reference", "c")
def test_compiled_operators_and_gradients_equal_eager_ones(operator, backend):
    tensors, reset = operator.sample(2, 7, 3), some(2, 7)
    lengths = torch.tensor([7, 3])

    def loss(tensors, reset, lengths):
        y, state = operator(tensors, reset=reset, lengths=lengths, backend=backend)
        return y.abs().square().sum() + state.abs().sum()

    inputs = list(tensors.values())
    eager, expected = loss(tensors, reset, lengths), torch.autograd.grad(loss(tensors, reset, lengths), inputs)
    actual = compiled(loss, backend="aot_eager")(tensors, reset, lengths)
    assert_close(actual, eager, 1e-14)
    for grad, exact in zip(torch.autograd.grad(actual, inputs), expected, strict=True):
        assert_close(grad, exact, 1e-13)


@pytest.mark.parametrize("name", OPERATORS)
def test_one_compiled_operator_serves_every_length(name):
    operator = OPERATORS[name]
    compiles = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    run = compiled(lambda tensors: operator(tensors)[0], backend=compiles, dynamic=True)
    for time in (6, 7, 11, 30):  # shorter and longer than the history
        tensors = operator.sample(2, time, 3, torch.float32)
        assert_close(run(tensors), operator(tensors)[0], TOLERANCE[torch.float32])
    assert compiles.frame_count <= 2
