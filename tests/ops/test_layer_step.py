"""`layer_step`: a step of a whole layer in one call is its parts, one after the other."""

import pytest
import torch
import torch.nn.functional as F

from helpers import TOLERANCE, assert_close, backend_param
from mgrade.ops.layer_step import layer_step, takes_step

in_c = pytest.mark.parametrize("backend", [backend_param("c")])


def drawn(*shape):
    return torch.randn(shape, dtype=torch.float64) / (shape[-1] ** 0.5 if len(shape) == 2 else 1)


def layer(batch, dim, inner, taps=2, dilation=1, norm=True):
    """Random arguments."""
    return {
        "x": drawn(batch, 1, dim),
        "history": drawn(batch, max(0, taps - 1) * dilation, dim),
        "hidden": drawn(batch, dim),
        "kernel": drawn(dim, taps) if taps else None,
        "dilation": dilation,
        "gates": (drawn(2 * dim, dim), drawn(2 * dim)),
        "input": (drawn(inner, dim), drawn(inner)),
        "output": (drawn(dim, inner), drawn(dim)),
        "norm": (drawn(dim), drawn(dim)) if norm else None,
        "eps": 1e-5,
    }


def cast(arguments, dtype):
    """The same with every tensor in `dtype`."""
    one = lambda a: a.to(dtype) if isinstance(a, torch.Tensor) else a  # noqa: E731
    return {name: tuple(map(one, a)) if isinstance(a, tuple) else one(a) for name, a in arguments.items()}


def by_torch(x, history, hidden, kernel, dilation, gates, input, output, norm, eps):
    z = x[:, 0]
    if kernel is not None:
        window = torch.cat([history, x], 1)
        z = z + sum(kernel[:, k] * window[:, -1 - k * dilation] for k in range(kernel.shape[1]))
        history = window[:, 1:]
    gate, candidate = F.linear(z, *gates).chunk(2, -1)
    hidden = torch.sigmoid(-gate) * hidden + torch.sigmoid(gate) * candidate
    z = z + hidden
    z = z + F.linear(F.gelu(F.linear(z, *input), approximate="tanh"), *output)
    return (F.layer_norm(z, z.shape[-1:], *norm, eps) if norm else z)[:, None], history, hidden


@in_c
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(("taps", "dilation"), [(0, 1), (1, 1), (5, 1), (3, 4)])
@pytest.mark.parametrize(("batch", "dim", "inner"), [(1, 3, 6), (2, 64, 128), (3, 17, 5), (0, 4, 8)])
def test_it_is_its_parts(backend, batch, dim, inner, taps, dilation, norm, dtype):
    exact = layer(batch, dim, inner, taps, dilation, norm)
    given = cast(exact, dtype)
    kept = cast(exact, dtype)
    for actual, expected in zip(layer_step(**given), by_torch(**exact), strict=True):
        assert actual.shape == expected.shape
        assert_close(actual, expected, TOLERANCE[dtype])
    assert all(torch.equal(given[name], kept[name]) for name in ("x", "history", "hidden"))


@in_c
def test_the_layout_of_the_arguments_makes_no_difference(backend):
    plain = layer(2, 4, 8)
    gappy = lambda a: torch.stack([a, torch.full_like(a, 9)], -1)[..., 0]  # noqa: E731
    apart = {
        name: tuple(map(gappy, a)) if isinstance(a, tuple) else gappy(a) if isinstance(a, torch.Tensor) else a
        for name, a in plain.items()
    }
    for one, other in zip(layer_step(**plain), layer_step(**apart), strict=True):
        assert torch.equal(one, other)


@in_c
@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("history", lambda a: a[:, 1:], r"history must have shape \(batch, past, dim\) = \(2, 1, 4\), got \(2, 0, 4\)"),
        ("hidden", lambda a: a[:1], r"hidden must have shape \(batch, dim\) = \(2, 4\), got \(1, 4\)"),
        ("kernel", lambda a: a[:3], r"kernel must have shape \(dim, taps\) = \(4, any\), got \(3, 2\)"),
        ("gates", lambda a: (a[0][:, :1], a[1]), r"gates must have shape \(outputs, inputs\) = \(8, 4\), got \(8, 1\)"),
        ("input", lambda a: (a[0], a[1][:1]), r"input bias must have shape \(outputs\) = \(8\), got \(1,\)"),
        ("output", lambda a: (a[0], None), r"output bias must be a tensor \(outputs\), got NoneType"),
        ("norm", lambda a: (a[0], None), r"norm bias must be a tensor \(outputs\), got NoneType"),
        ("gates", lambda a: (a[0].float(), a[1]), "all tensors must be torch.float64 on the CPU, got torch.float32"),
    ],
)
def test_what_does_not_fit_is_refused(backend, name, change, said):
    arguments = layer(2, 4, 8)
    with pytest.raises(ValueError, match=said):
        layer_step(**{**arguments, name: change(arguments[name])})


@in_c
def test_it_is_for_streams_alone(backend):
    x = torch.randn(2, 1, 4)
    assert not takes_step(x)  # which may need a gradient
    with torch.no_grad():
        assert takes_step(x)
        assert not takes_step(x.half())
        assert not takes_step(torch.randn(2, 3, 4))
        with torch.autocast("cpu", torch.bfloat16):
            assert not takes_step(x)
