"""The primitives: one mathematical function each, one signature, several implementations.

- `delay_kernel`: Gaussian taps at learnable positions, drawn into a kernel;
- `delay_conv`: causal depthwise convolution with that kernel, its past in and out as `history`;
- `gated_scan`: the gated linear recurrence of minGRU, its state in and out;
- `dilated_conv` and `diagonal_scan`: what the TCN and LRU baselines need, over the same machinery;
  `diagonal_scan_pairs` is the latter without complex tensors;
- `gated_recurrence`, `linear` and `feedforward`: scan and convolution together with the channel mixing between them;
- `cross_entropy`: the loss.

Those of the first four points have a plain PyTorch reference for any floating dtype, a C version for the CPU and a
Triton version for CUDA. The fastest that fits the tensors is taken; `backend="reference"`, `"c"` or `"triton"` forces
one. All are registered with `torch.library`: `torch.compile`, `torch.export` and autograd see them as single operators.
"""

from mgrade.ops._backend import BACKENDS, available, plain
from mgrade.ops.cross_entropy import cross_entropy
from mgrade.ops.delay_conv import delay_conv, delay_kernel, dilated_conv
from mgrade.ops.diagonal_scan import diagonal_scan, diagonal_scan_pairs
from mgrade.ops.feedforward import feedforward
from mgrade.ops.gated_scan import gated_recurrence, gated_scan
from mgrade.ops.linear import linear

__all__ = [
    "BACKENDS",
    "available",
    "cross_entropy",
    "delay_conv",
    "delay_kernel",
    "diagonal_scan",
    "diagonal_scan_pairs",
    "dilated_conv",
    "feedforward",
    "gated_recurrence",
    "gated_scan",
    "linear",
    "plain",
]
