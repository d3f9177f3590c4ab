"""The block pool: shared beginnings, lazy eviction, and no exception when it is full."""

import pytest

from schedulers.llm.policy.blocks import BlockPool, PoolUse
from schedulers.llm.policy.sequence import next_digest, root_digest

A, B, C = b"a", b"b", b"c"


def test_a_pool_without_room_answers_none_and_changes_nothing() -> None:
    pool = BlockPool(2, 4)
    assert pool.allocate(3) is None
    assert pool.use() == PoolUse(in_use=0, cached=0, empty=2)


def test_a_released_block_is_found_again_by_its_digest() -> None:
    pool = BlockPool(2, 4)
    held = pool.allocate(1) or []
    pool.register_hash(held[0], A)
    pool.release(held)
    assert pool.use() == PoolUse(in_use=0, cached=1, empty=1)
    assert pool.match([A, B]) == held
    assert pool.allocate(0, held) == held
    pool.check([held])


def test_the_tail_of_a_chain_is_evicted_before_its_beginning() -> None:
    pool = BlockPool(2, 4)
    held = pool.allocate(2) or []
    pool.register_hash(held[0], A)
    pool.register_hash(held[1], B)
    pool.release(held)
    pool.allocate(1)
    assert pool.match([A, B]) == held[:1]


def test_empty_blocks_are_handed_out_before_cached_ones() -> None:
    pool = BlockPool(3, 4)
    held = pool.allocate(2) or []
    pool.register_hash(held[0], A)
    pool.release(held)
    pool.allocate(2)
    assert pool.match([A]) == held[:1]


def test_the_least_recently_used_block_is_evicted_first() -> None:
    pool = BlockPool(2, 4)
    first, second = pool.allocate(1) or [], pool.allocate(1) or []
    pool.register_hash(first[0], A)
    pool.register_hash(second[0], B)
    pool.release(first)
    pool.release(second)
    pool.release(pool.allocate(0, first) or [])
    pool.allocate(1)
    assert pool.match([B]) == []
    assert pool.match([A]) == first


def test_a_shared_block_stays_until_its_last_holder_lets_go() -> None:
    pool = BlockPool(1, 4)
    held = pool.allocate(1) or []
    pool.register_hash(held[0], A)
    again = pool.allocate(0, pool.match([A])) or []
    pool.release(held)
    assert pool.allocate(1) is None
    pool.release(again)
    assert pool.allocate(1) == held


def test_blocks_with_the_same_content_are_found_once() -> None:
    pool = BlockPool(2, 4)
    held = pool.allocate(2) or []
    pool.register_hash(held[0], C)
    pool.register_hash(held[1], C)
    assert pool.match([C]) == held[:1]
    pool.check([held])


def test_the_cache_can_be_forgotten_without_touching_what_is_in_use() -> None:
    pool = BlockPool(2, 4)
    kept, gone = pool.allocate(1) or [], pool.allocate(1) or []
    pool.register_hash(kept[0], A)
    pool.register_hash(gone[0], B)
    pool.release(gone)
    assert pool.forget_cached() == 1
    assert pool.match([A]) == kept
    assert pool.match([B]) == []


def test_the_invariant_check_notices_a_lost_block() -> None:
    pool = BlockPool(2, 4)
    pool.allocate(1)
    with pytest.raises(AssertionError, match="references differ"):
        pool.check([])


def test_a_digest_covers_the_salt_and_everything_before() -> None:
    ours, theirs = root_digest(b"ours"), root_digest(b"theirs")
    assert next_digest(ours, [1, 2]) != next_digest(theirs, [1, 2])
    assert next_digest(next_digest(ours, [1, 2]), [3, 4]) != next_digest(ours, [3, 4])
    assert next_digest(ours, [1, 2]) == next_digest(root_digest(b"ours"), (1, 2))
