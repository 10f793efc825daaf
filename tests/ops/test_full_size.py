"""On CUDA: with the batches of a real training, where programs go round their loops many times, gradients are right,
and they are the same every time."""

import pytest
import torch

from helpers import assert_close, relative_error
from mgrade.nn import Model, ModelConfig
from mgrade.ops import plain
from mgrade.train import cross_entropy
from mgrade.train.evaluate import precision

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
BATCH, TIME = 64, 1024
SIZES = [(304, 152), (256, 128), (128, 128), (64, 64), (512, 160), (33, 66), (10, 32)]
MODELS = {
    "mgrade 128": ("mgrade", {"dim": 128, "projection": True, "activations": ["recurrence"]}),
    "mgrade 112": ("mgrade", {"dim": 112, "norm": "none", "branch_norms": ["conv", "recurrence", "mlp"]}),
    "mgrade 64": ("mgrade", {"dim": 64}),
    "mgrade 32": ("mgrade", {"dim": 32, "taps": 2, "max_delay": 16, "norm": "pre"}),
    "dcls 168": ("dcls", {"dim": 168}),
    "tcn 152": ("tcn", {"dim": 152}),
    "mingru 120": ("mingru", {"dim": 120}),
    "lru 160": ("lru", {"dim": 160, "expansion": 1.6}),
    "lru 33": ("lru", {"dim": 33}),
}


def signal(channels, dtype):
    """(batch, time, channels) with time contiguous."""
    return torch.randn(BATCH, channels, TIME, device="cuda").to(dtype).transpose(1, 2)


@pytest.mark.parametrize("sums", [True, False])
@pytest.mark.parametrize(
    ("name", "dtype", "tolerance"),
    [("bfloat16", torch.bfloat16, 1e-4), ("tf32", torch.float32, 2e-3), ("float32", torch.float32, 1e-5)],
)
@pytest.mark.parametrize(("rows", "columns"), SIZES)
def test_the_gradient_of_a_matrix_is_the_sum_over_all_steps(rows, columns, name, dtype, tolerance, sums):
    from mgrade.ops.linear.triton import outer

    a, b = signal(rows, dtype), signal(columns, dtype)
    products, alone = torch.einsum("btn,btm->nm", a.double(), b.double()), a.double().sum((0, 1))
    with precision(name, a.device):
        found = [outer(a, b, sums=sums).flatten() for _ in range(3)]
    for total in found:
        assert_close(total[: rows * columns], products.flatten(), tolerance)
        assert_close(total[rows * columns :], alone if sums else alone[:0], 1e-5)
        assert torch.equal(total, found[0])


def made(kind):
    preset, fields = MODELS[kind]
    return Model(getattr(ModelConfig, preset)(inputs=1, outputs=10, depth=2, **fields)).cuda()


def gradients(model, x, pull):
    y = model(x)[0]
    return torch.autograd.grad(y, list(model.parameters()), pull.to(y.dtype))


@pytest.mark.parametrize("name", ["bfloat16", "tf32", "float32"])
@pytest.mark.parametrize("kind", MODELS)
def test_a_gradient_is_the_same_every_time(kind, name):
    model = made(kind)
    x, pull = torch.randn(BATCH, TIME, 1, device="cuda"), torch.randn(BATCH, TIME, 10, device="cuda")
    with precision(name, x.device):
        found = [gradients(model, x, pull) for _ in range(3)]
    for parameter, first, *others in zip(dict(model.named_parameters()), *found, strict=True):
        assert first.isfinite().all(), parameter
        assert all(torch.equal(other, first) for other in others), parameter


def assert_near_float64(kind, name, tolerance):
    """Within the tolerance, or twice as far as PyTorch's own operators are with the same rounding in between."""
    model = made(kind)
    x, pull = torch.randn(16, 512, 1, device="cuda"), torch.randn(16, 512, 10, device="cuda")
    with precision(name, x.device):
        found = gradients(model, x, pull)
        with plain():
            rounded = gradients(model, x, pull)
    with plain():
        exact = gradients(model.double(), x.double(), pull)
    for parameter, one, other, true in zip(dict(model.named_parameters()), found, rounded, exact, strict=True):
        assert_close(one, true, max(tolerance, 2 * relative_error(other, true)), what=parameter)


@pytest.mark.parametrize(("name", "tolerance"), [("bfloat16", 0.1), ("tf32", 0.02), ("float32", 1e-3)])
@pytest.mark.parametrize("kind", MODELS)
def test_a_gradient_is_that_of_float64(kind, name, tolerance):
    assert_near_float64(kind, name, tolerance)


@pytest.mark.parametrize(("name", "tolerance"), [("bfloat16", 0.1), ("tf32", 0.02), ("float32", 1e-3)])
@pytest.mark.parametrize("kind", ["mgrade 32", "mgrade 64", "mgrade 128"])
def test_so_it_is_with_the_tiles_of_smaller_chips(kind, name, tolerance, monkeypatch):
    from mgrade.ops import _triton

    monkeypatch.setattr(_triton, "room", lambda x: 65_536)
    assert_near_float64(kind, name, tolerance)


@pytest.mark.parametrize("kind", ["mgrade 32", "dcls 168", "lru 33"])
def test_there_may_be_more_rows_than_a_grid_is_wide(kind):
    """All at once they make the gradient of one half and of the other."""
    model = made(kind)
    x, answer = torch.randn(70_000, 3, 1, device="cuda"), torch.randint(10, (70_000, 3), device="cuda")

    def gradient(rows):
        loss = cross_entropy(model(x[rows])[0], answer[rows])
        return torch.autograd.grad(loss, list(model.parameters()))

    with precision("bfloat16", x.device):
        whole, *halves = (gradient(rows) for rows in (slice(None), slice(35_000), slice(35_000, None)))
    for parameter, one, *parts in zip(dict(model.named_parameters()), whole, *halves, strict=True):
        assert_close(one, sum(parts) / 2, 1e-3, *parts, what=parameter)
