"""Memory is taken over only from results that nobody holds, in whatever way one can hold them."""

import threading

import pytest
import torch

from mgrade.ops._memory import LEAST, Pool

SHAPE = (LEAST // 4 // 64, 64)


def fresh(pool, shape=SHAPE):
    return pool.empty(shape, torch.float32)


def saved_by_autograd(x):
    return (x.requires_grad_() ** 2).sum()


HOLDERS = {
    "itself": lambda x: x,
    "a view": lambda x: x[3:5, 1:],
    "a transposed view": lambda x: x.t(),
    "numpy": lambda x: x.numpy(),
    "autograd": saved_by_autograd,
    "dlpack": lambda x: torch.utils.dlpack.to_dlpack(x),
    "a storage": lambda x: x.untyped_storage(),
    "detached": lambda x: x.detach(),
}


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
def test_a_block_is_taken_over_when_its_last_holder_is_gone(hold):
    pool = Pool()
    first = fresh(pool)
    assert (first.shape, first.dtype) == (SHAPE, torch.float32)
    assert first.is_contiguous()
    address = first.data_ptr()
    held = hold(first)
    del first
    other = fresh(pool)
    assert other.data_ptr() != address
    del held
    assert fresh(pool).data_ptr() == address
    assert pool.total == 2 * LEAST


def test_other_sizes_have_blocks_of_their_own_and_small_ones_none():
    pool = Pool()
    fresh(pool)
    fresh(pool, (2 * SHAPE[0], 64))
    assert pool.total == 3 * LEAST
    fresh(pool, (SHAPE[0] - 1, 64))
    fresh(pool, (0, 64))
    assert pool.total == 3 * LEAST


def test_what_was_shared_with_another_process_is_not_taken_over():
    pool = Pool()
    first = fresh(pool)
    first.share_memory_()
    address = first.data_ptr()
    del first
    assert fresh(pool).data_ptr() != address
    assert pool.total == LEAST


def test_what_was_resized_is_not_taken_over():
    pool = Pool()
    first = fresh(pool)
    first.resize_(2 * SHAPE[0], 64)
    del first
    assert fresh(pool).untyped_storage().nbytes() == LEAST
    assert pool.total == LEAST


def test_no_more_than_the_limit_is_kept():
    pool = Pool(limit=4 * LEAST)
    held = [fresh(pool) for _ in range(6)]  # the last two from the system
    assert len({tensor.data_ptr() for tensor in held}) == 6
    assert pool.total == 4 * LEAST
    del held[:3]
    whole = fresh(pool, (3 * SHAPE[0], 64))  # in the place of three that are free by now
    assert pool.total == 4 * LEAST
    fresh(pool, (5 * SHAPE[0], 64))
    assert pool.total == 4 * LEAST
    del whole


def test_threads_never_get_the_same_block():
    pool, failures = Pool(), []

    def work(number):
        for _ in range(300):
            mine = fresh(pool)
            mine.fill_(number)
            if not bool((mine == number).all()):
                failures.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
