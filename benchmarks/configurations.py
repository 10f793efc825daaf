"""The paper's five configurations, and the least that their training steps must move and compute."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

# Passes over one activation tensor (batch, time, dim) that even a well-fused implementation makes.
# A layer as two fused halves (convolution + recurrence, MLP + norm): forward, each reads its input and writes
# its output (4); backward, each reads its saved input and the incoming gradient and writes a gradient (6).
LAYER_PASSES = 10
# Forward: reads gate and candidate, writes h (3). Backward: reads those and h's gradient, writes two (6).
SCAN_PASSES = 9
# Forward: reads x, writes y (2). Backward: reads x and the gradient of y, writes the gradient of x (3).
CONV_PASSES = 5


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A model of the paper and the batch that it is trained on."""

    name: str
    title: str
    batch: int
    time: int
    dim: int
    """Width [D]."""
    taps: int
    """Kernel elements per channel [K]."""
    max_delay: int
    """Kernel length [Gamma]."""
    depth: int
    """Layers [L]."""
    inputs: int
    """Input channels; with `tokens`, the size of the vocabulary."""
    outputs: int
    tokens: bool = False
    every: bool = False
    """Outputs at every step, rather than one per sequence from the mean over time."""
    cpu_batch: int | None = None
    """The batch that two CPU cores train on; None: not measured there."""

    def on_cpu(self) -> Configuration:
        """The same with the batch for the CPU."""
        if self.cpu_batch is None:
            raise ValueError(f"{self.name} has no cpu_batch")
        return dataclasses.replace(self, batch=self.cpu_batch)

    def shrunk(self) -> Configuration:
        """A small version for smoke runs: the same model on little data."""
        return dataclasses.replace(self, batch=min(self.batch, 2), time=max(self.time // 32, 2 * self.max_delay))

    def activation_bytes(self, element: int = 4) -> int:
        """Bytes of one activation tensor (batch, time, dim)."""
        return self.batch * self.time * self.dim * element

    def step_bytes(self, element: int = 4) -> int:
        """The byte floor of a training step: `LAYER_PASSES` passes over one activation tensor per layer.

        Divided by the device's copy bandwidth (bytes read plus bytes written per second) it is a time.
        """
        return LAYER_PASSES * self.depth * self.activation_bytes(element)

    def scan_bytes(self, element: int = 4) -> int:
        """The byte floor of one layer's scan, forward and backward."""
        return SCAN_PASSES * self.activation_bytes(element)

    def conv_bytes(self, element: int = 4) -> int:
        """The byte floor of one layer's convolution, forward and backward."""
        return CONV_PASSES * self.activation_bytes(element)

    def matmul_flops(self) -> int:
        """Floating-point operations of a training step's matrix products, a multiply-add being two.

        Per layer six dim x dim products (gate and candidate 2, MLP 4), the encoder unless it is a lookup, and
        the head; the backward pass costs twice the forward.
        """
        per_step = self.depth * 6 * self.dim**2 + (0 if self.tokens else self.inputs * self.dim)
        reads = self.time if self.every else 1
        return 3 * 2 * self.batch * (self.time * per_step + reads * self.dim * self.outputs)

    def describe(self) -> dict[str, int | float | str | bool | None]:
        """All fields and floors, for the result file."""
        return {
            **dataclasses.asdict(self),
            "step_bytes": self.step_bytes(),
            "scan_bytes": self.scan_bytes(),
            "conv_bytes": self.conv_bytes(),
            "matmul_flops": self.matmul_flops(),
        }


CONFIGURATIONS = {
    configuration.name: configuration
    for configuration in (
        Configuration(
            name="image", title="Image, Pathfinder", batch=64, time=1024, dim=128, taps=8, max_delay=256,
            depth=6, inputs=1, outputs=10,
        ),
        Configuration(
            name="listops", title="ListOps", batch=64, time=2048, dim=32, taps=2, max_delay=16,
            depth=6, inputs=18, outputs=10, tokens=True, cpu_batch=8,
        ),
        Configuration(
            name="speech", title="Speech", batch=8, time=16000, dim=64, taps=16, max_delay=64,
            depth=6, inputs=1, outputs=35, cpu_batch=1,
        ),
        Configuration(
            name="copying", title="Selective copying", batch=64, time=4096, dim=64, taps=32, max_delay=128,
            depth=2, inputs=18, outputs=16, tokens=True, every=True,
        ),
        Configuration(
            name="flipflop", title="Flip-Flop", batch=64, time=512, dim=32, taps=1, max_delay=2,
            depth=1, inputs=5, outputs=5, tokens=True, every=True, cpu_batch=64,
        ),
    )
}  # fmt: skip
