"""Under Triton's interpreter: no kernel may touch memory outside the tensors it was given."""

import numpy as np
import torch
from triton.runtime import interpreter


def install():
    """From now on an address outside all arguments of the running kernel is an IndexError."""
    ranges = []
    begin = interpreter.GridExecutor._init_args_hst
    builder = interpreter.InterpreterBuilder
    load, store = builder.create_masked_load, builder.create_masked_store

    def noting(self, args, kwargs):
        host_args, host_kwargs = begin(self, args, kwargs)
        ranges.clear()
        for value in (*host_args, *host_kwargs.values()):
            if isinstance(value, torch.Tensor):
                storage = value.untyped_storage()
                ranges.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
        return host_args, host_kwargs

    def check(pointers, mask):
        addresses = np.asarray(pointers.data, dtype=np.uint64)[np.asarray(mask.data, dtype=bool)]
        fine = np.zeros(addresses.shape, bool)
        for low, high in ranges:
            fine |= (addresses >= low) & (addresses < high)
        if not fine.all():
            raise IndexError(f"{int((~fine).sum())} of {fine.size} addresses lie outside the kernel's tensors")

    def checked_load(self, pointers, mask, *rest):
        check(pointers, mask)
        return load(self, pointers, mask, *rest)

    def checked_store(self, pointers, value, mask, *rest):
        check(pointers, mask)
        return store(self, pointers, value, mask, *rest)

    interpreter.GridExecutor._init_args_hst = noting
    builder.create_masked_load, builder.create_masked_store = checked_load, checked_store
