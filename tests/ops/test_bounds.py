"""The guard that all Triton tests run under, where there is no device, does see a kernel that goes too far."""

import pytest
import torch

from mgrade.ops._backend import HAS_TRITON, TRITON_INTERPRETED

pytestmark = pytest.mark.skipif(not (HAS_TRITON and TRITON_INTERPRETED), reason="needs Triton's interpreter")


def test_one_element_too_many_is_seen():
    import triton
    import triton.language as tl

    from bounded import copy

    x, y = torch.arange(5.0), torch.zeros(5)
    copy[(1,)](x, y, 5, 5, BLOCK=tl.constexpr(8))
    assert torch.equal(x, y)
    for reads, writes in ((6, 5), (5, 6)):
        with pytest.raises(triton.runtime.errors.InterpreterError, match="outside the kernel's tensors"):
            copy[(1,)](x, y, reads, writes, BLOCK=tl.constexpr(8))
