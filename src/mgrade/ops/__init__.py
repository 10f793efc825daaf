"""The operators: each is one mathematical function with one signature and several implementations.

The primitives:

- `delay_kernel`: Gaussian taps at learnable positions, drawn into a kernel;
- `delay_conv`: causal depthwise convolution with that kernel, its past in and out as `history`;
- `gated_scan`: the gated linear recurrence of minGRU, its state in and out;
- `dilated_conv` and `diagonal_scan`: the same for the TCN and LRU baselines; `diagonal_scan_pairs` is the latter
  without complex tensors.

The rest of a layer, in whatever layout the primitives return:

- `gated_recurrence`: `gated_scan` with the linear layer that makes its gates and candidates;
- `linear`, `feedforward`, `layer_norm`, `glu`, `dropout`: fused on CUDA, in part on the CPU, else plain PyTorch;
- `layer_step`: one step of a whole layer, for streaming on a CPU;
- `cross_entropy`: the loss.

The primitives have a plain PyTorch reference for any floating dtype, a C version for the CPU and a Triton version for
CUDA. A call uses the fastest that supports its tensors; `backend="reference"`, `"c"` or `"triton"` forces one. All are
registered with `torch.library`: `torch.compile`, `torch.export` and autograd see them as single operators.
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
