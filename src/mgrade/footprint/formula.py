"""The paper's memory accounting (its Appendix A), component by component, in elements.

Multiply by the bytes of an element (4 in the paper) for bytes. The formulas leave out the biases of encoder and
decoder; the extra projection of the paper's Image model counts as part of the recurrence. `left_out` lists what else a
model of this package has, so that the two add up exactly.
"""

from __future__ import annotations

from mgrade.nn import ModelConfig


def parameters(config: ModelConfig) -> dict[str, int]:
    """Parameters of the whole network by component: encoder, conv, recurrence, mlp, norm, decoder."""
    c, depth = config, config.depth
    dim, hidden, inner = c.dim, c.hidden, c.inner
    taps = {"delay": 2 * c.taps * dim, "dilated": c.taps * dim, "none": 0}[c.conv]
    projection = dim * (hidden + 1) if c.projection else 0
    # gate and candidate with their biases; LRU: eigenvalues and gain, complex B and C, real D
    recurrence = {"mingru": 2 * hidden * (dim + 1) + projection, "lru": 3 * hidden + 4 * hidden * dim + dim, "none": 0}
    mlp = {"gelu": 2 * dim * inner + 2 * dim * dim + 3 * dim, "glu": 2 * dim * (inner + 1), "none": 0}
    return {
        "encoder": c.inputs * dim,
        "conv": depth * taps,
        "recurrence": depth * recurrence[c.recurrence],
        "mlp": depth * mlp[c.mlp],
        "norm": depth * 2 * dim if c.norm != "none" else 0,
        "decoder": 4 * dim * dim + dim * c.outputs if c.pair else dim * c.outputs,
    }


def instantiated(config: ModelConfig) -> dict[str, int]:
    """Parameters by component with every delay kernel written out, max_delay elements per channel (Appendix C)."""
    counts = parameters(config)
    if config.conv == "delay":
        counts["conv"] = config.depth * config.dim * config.max_delay
    return counts


def left_out(config: ModelConfig) -> dict[str, int]:
    """Parameters that the formulas do not count: biases of encoder and decoder, and optional extras."""
    c = config
    norms = sum(2 * (c.dim if branch == "conv" else c.inner) for branch in c.branch_norms)
    extras = {
        "encoder bias": c.dim,
        "decoder bias": c.outputs + (c.dim if c.pair else 0),
        "branch norms": c.depth * norms,
    }
    return {name: count for name, count in extras.items() if count}


def buffer(config: ModelConfig) -> dict[str, int]:
    """Activations of the whole network kept between steps, by component: conv and recurrence."""
    reach = {
        "delay": [config.max_delay] * config.depth,
        "dilated": [config.memory(layer) for layer in range(config.depth)],
        "none": [],
    }
    units = {"mingru": config.hidden, "lru": config.hidden, "none": 0}[config.recurrence]
    return {"conv": config.dim * sum(reach[config.conv]), "recurrence": config.depth * units}


def state(config: ModelConfig) -> dict[str, int]:
    """Real numbers that a model of this package really keeps between steps, which the paper's formulas differ from.

    A delay line holds the past without the present, an LRU's units are complex, and a pooled readout has a sum. The
    count of its steps, a single integer, is left out.
    """
    past = sum(config.memory(layer) for layer in range(config.depth))
    units = {"mingru": config.hidden, "lru": 2 * config.hidden, "none": 0}[config.recurrence]
    return {
        "conv": config.dim * past,
        "recurrence": config.depth * units,
        "readout": 0 if config.readout == "every" else config.dim,
    }
