"""Models whose parameters are set by hand instead of learned."""

from __future__ import annotations

import torch
from torch import Tensor

from mgrade._checks import check_whole
from mgrade.nn import DelayConv, Model, ModelConfig
from mgrade.nn.config import LARGEST
from mgrade.nn.recurrence import MinGRU
from mgrade.tasks.flipflop import IGNORE, ONE, READ, SYMBOLS, WRITE, ZERO

# So narrow that a tap touches no other delay: exp(-(1 / NARROW)^2 / 2) is 0 in float32 and float64.
NARROW = 0.01
# A gate logit at which the sigmoid is exactly 1, and exactly 0 when negated.
CERTAIN = 1000.0


def _single_layer(inputs: int, outputs: int, width: int, max_delay: int, tokens: bool) -> Model:
    """Encoder, delay convolution with one tap, gated recurrence, head: nothing else, all parameters zero."""
    config = ModelConfig.mgrade(
        inputs=inputs,
        outputs=outputs,
        tokens=tokens,
        dim=width,
        depth=1,
        taps=1,
        max_delay=max_delay,
        sigma=NARROW,
        mlp="none",
        norm="none",
        skips=(),
    )
    model = Model(config).requires_grad_(False)
    for parameter in model.parameters():
        parameter.zero_()
    return model


def _parts(model: Model) -> tuple[DelayConv, MinGRU, Tensor, Tensor]:
    """The only layer's convolution and recurrence, and the head's weight and bias."""
    layer, head = model.layers[0], model.readout.head
    assert isinstance(layer.conv, DelayConv)
    assert isinstance(layer.recurrence, MinGRU)
    assert isinstance(head, torch.nn.Linear)
    return layer.conv, layer.recurrence, head.weight, head.bias


def takens_model(delays: int, spacing: int) -> Model:
    """A model of one observable whose outputs, its hidden state, are [y_t, y_{t-spacing}, …], `delays` in all.

    The encoder copies the observable into every channel; channel q delays it by q * spacing; the gate is open.
    """
    for name, value in (("delays", delays), ("spacing", spacing)):
        check_whole(name, value, LARGEST)
    model = _single_layer(1, delays, delays, (delays - 1) * spacing + 1, tokens=False)
    conv, recurrence, head, _ = _parts(model)
    model.encoder.weight.fill_(1.0)
    conv.weight.fill_(1.0)
    conv.position.copy_(torch.arange(delays)[:, None] * spacing)
    recurrence.weight[delays:] = torch.eye(delays)
    recurrence.bias[:delays] = CERTAIN
    head.copy_(torch.eye(delays))
    return model


def flipflop_model() -> Model:
    """A model of Flip-Flop symbols whose largest output names the set of symbols that may come next.

    Ten channels: the current symbol u_t (one-hot, delay 0) and the one before it (delay 1). Ten hidden units:
    five store u_t if the symbol before was `w` and otherwise keep their value, five pass u_t on.
    """
    size = len(SYMBOLS)
    model = _single_layer(size, 4, 2 * size, 2, tokens=True)
    conv, recurrence, head, bias = _parts(model)
    model.encoder.weight.copy_(torch.eye(size).repeat(2, 1))
    conv.weight.fill_(1.0)
    conv.position[size:] = 1.0

    gate, candidate = recurrence.weight[: 2 * size], recurrence.weight[2 * size :]
    candidate[:, :size] = torch.eye(size).repeat(2, 1)
    gate[:size, size + WRITE] = 2 * CERTAIN
    recurrence.bias[:size] = -CERTAIN
    recurrence.bias[size : 2 * size] = CERTAIN

    free, instruction, zero, one = range(4)
    current = size
    head[free, current + WRITE] = head[free, current + IGNORE] = 4.0
    head[instruction, current + ZERO] = head[instruction, current + ONE] = 4.0
    # `r` alone favours {0} slightly over {1}; a stored 1 tips the balance
    head[zero, current + READ], bias[zero] = 4.0, -2.0
    head[one, current + READ], bias[one] = 4.0, -3.0
    head[zero, ONE], head[one, ONE] = -2.0, 2.0
    return model
