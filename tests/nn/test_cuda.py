"""Models on a GPU: the same numbers, streams, precisions and graphs as on the CPU."""

import pytest
import torch

from helpers import PRESETS, TOLERANCE, assert_close, compiled, in_pieces, leaves, random_input, small, some
from mgrade import Model, load

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
]
NORMED = {"preset": "mgrade", "norm": "none", "projection": True, "branch_norms": ("conv", "recurrence", "mlp")}
every_preset = pytest.mark.parametrize("preset", [*PRESETS, pytest.param(NORMED, id="normed")])
restarts = pytest.mark.parametrize("share", [0.0, 0.02], ids=["plain", "resets"])


def on_gpu(preset, share=0.0, time=300, **fields):
    """A model and what it reads, in float32."""
    fields |= preset if isinstance(preset, dict) else {"preset": preset}
    config = small(**fields, dim=33, max_delay=40, taps=5)
    reset = some(4, time, share).cuda() if share else None
    options = {"lengths": torch.tensor([time, 0, 1, 2 * time // 3]).cuda(), "reset": reset}
    return Model(config).cuda(), random_input(config, 4, time, torch.float32).cuda(), options


@every_preset
@restarts
@pytest.mark.parametrize("tokens", [False, True], ids=["values", "tokens"])
def test_a_gpu_gives_what_the_cpu_gives_in_float64(preset, share, tokens):
    model, x, options = on_gpu(preset, share, readout="mean", tokens=tokens)
    twin = Model(model.config).double()
    twin.load_state_dict(model.state_dict())
    y, state = model(x, **options)
    exact = {name: value if value is None else value.cpu() for name, value in options.items()}
    expected, last = twin(x.cpu() if tokens else x.cpu().double(), **exact)
    assert_close(y.cpu(), expected, 1e-5)
    for name, tensor in leaves(last).items():
        assert_close(leaves(state)[name].cpu(), tensor, 1e-5, what=name)
    grads = torch.autograd.grad(y.square().sum(), list(model.parameters()))
    wanted = torch.autograd.grad(expected.square().sum(), list(twin.parameters()))
    for (name, _), grad, truth in zip(model.named_parameters(), grads, wanted, strict=True):
        assert_close(grad.cpu(), truth, 1e-4, what=name)


@every_preset
@restarts
@pytest.mark.parametrize("readout", ["every", "mean"])
def test_pieces_and_single_steps_are_the_whole(preset, share, readout):
    model, x, options = on_gpu(preset, share, time=60, readout=readout)
    valid = (torch.arange(60).cuda() < options["lengths"][:, None]) if readout == "every" else ...
    with torch.no_grad():
        _, begun = model(torch.randn_like(x))
        y, state = model(x, begun, **options)
        for cuts in ((0, 1, 1, 17, 60), range(61)):
            pieces, last = in_pieces(model, x, begun, cuts, **options)
            assert_close(pieces[valid], y[valid], TOLERANCE[torch.float32])
            for name, tensor in leaves(state).items():
                assert_close(leaves(last)[name], tensor, TOLERANCE[torch.float32], what=name)


@every_preset
def test_the_last_outputs_alone_are_those_of_the_whole(preset):
    model, x, _ = on_gpu(preset)
    parameters = list(model.parameters())
    last, whole = model(x, last=16)[0], model(x)[0][:, -16:]
    assert_close(last, whole, TOLERANCE[torch.float32])
    grads, wanted = (torch.autograd.grad(y.square().sum(), parameters) for y in (last, whole))
    for (name, _), one, other in zip(model.named_parameters(), grads, wanted, strict=True):
        assert_close(one, other, 1e-4, what=name)


@every_preset
def test_an_input_never_changes_an_earlier_output(preset):
    model, x, _ = on_gpu(preset)
    y, _ = model(x)
    for value in (float("nan"), float("inf"), 7.0):
        changed = x.clone()
        changed[:, 130] = value
        assert torch.equal(model(changed)[0][:, :130], y[:, :130])


@every_preset
@restarts
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_model_trains_under_autocast(preset, share, dtype):
    model, x, options = on_gpu(preset, share, readout="mean")
    exact, _ = model(x, **options)
    with torch.autocast("cuda", dtype):
        y, state = model(x, **options)
        y, _ = model(x, state, **options)
        y, _ = model(x, **options)
    assert_close(y, exact, 30 * torch.finfo(dtype).eps)
    y.float().square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize(("preset", "backend"), [("mgrade", None), ("mgrade", "aot_eager"), ("tcn", "aot_eager")])
@restarts
def test_a_compiled_training_step_equals_an_eager_one(preset, backend, share):
    model, x, options = on_gpu(preset, share, readout="mean")

    def step(x, lengths, reset):
        return model(x, lengths=lengths, reset=reset)[0].square().mean()

    eager = step(x, **options)
    expected = torch.autograd.grad(eager, list(model.parameters()))
    loss = compiled(step, backend)(x, **options)
    assert_close(loss, eager, 1e-5)
    for grad, exact in zip(torch.autograd.grad(loss, list(model.parameters())), expected, strict=True):
        assert_close(grad, exact, 1e-4)


def test_a_model_goes_from_the_gpu_to_a_file_and_back(tmp_path):
    model, x, _ = on_gpu("mgrade")
    model.save(tmp_path)
    assert torch.equal(load(tmp_path).cuda()(x)[0], model(x)[0])
