"""Multiply-accumulates per step: a rough measure of the load on a processor."""

from __future__ import annotations

from mgrade.nn import ModelConfig


def operations(config: ModelConfig) -> dict[str, int]:
    """Multiply-accumulates per step of one stream, by component.

    A delay convolution counts with its whole kernel, max_delay elements per channel. That is an upper bound, since a
    tap of finite width covers several steps. Tokens are looked up, not multiplied. Activations, norms and skips do not
    count; a chip's figure of multiply-accumulates per cycle allows for them.
    """
    c, dim, hidden = config, config.dim, config.hidden
    conv = {"delay": c.max_delay * dim, "dilated": c.taps * dim, "none": 0}[c.conv]
    # gate, candidate and update; LRU: complex B, one complex product per unit, the real part of complex C, D
    recurrence = {"mingru": 2 * hidden * dim + 2 * hidden, "lru": 4 * hidden * dim + 4 * hidden + dim, "none": 0}
    projection = hidden * dim if c.projection and c.recurrence == "mingru" else 0
    mlp = {"gelu": 2 * dim * c.inner + 2 * dim * dim, "glu": 2 * dim * c.inner, "none": 0}
    return {
        "encoder": dim if c.tokens else c.inputs * dim,
        "conv": c.depth * conv,
        "recurrence": c.depth * (recurrence[c.recurrence] + projection),
        "mlp": c.depth * mlp[c.mlp],
        "decoder": 4 * dim * dim + dim * c.outputs if c.pair else dim * c.outputs,
    }
