"""The pool of key-value blocks: reference counts, prefix cache and lazy LRU eviction. Pure policy.

A block is in use (references > 0), cached (free, but its content can still be found by its digest),
empty, or withdrawn: its memory was given back, and it is not handed out until it is restored.
Cached blocks are forgotten only when they are handed out again, the least recently used first;
`OrderedDict` gives the queue its order and O(1) removal from the middle.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolUse:
    """Blocks by what they are at this moment; the four add up to the pool's size."""

    in_use: int
    cached: int
    empty: int
    withdrawn: int = 0


class BlockPool:
    """`count` blocks, numbered from 0, of `block_tokens` tokens each."""

    def __init__(self, count: int, block_tokens: int) -> None:
        self.count = count
        self.block_tokens = block_tokens
        self._references = [0] * count
        self._digests: list[bytes | None] = [None] * count
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(count))
        self._by_digest: dict[bytes, int] = {}
        self._withdrawn: set[int] = set()

    @property
    def free(self) -> int:
        """Blocks that can be handed out, cached ones included."""
        return len(self._free)

    def match(self, digests: Iterable[bytes]) -> list[int]:
        """The blocks that hold the longest cached beginning of a chain; takes none of them."""
        found: list[int] = []
        for digest in digests:
            block = self._by_digest.get(digest)
            if block is None:
                break
            found.append(block)
        return found

    def allocate(self, count: int, shared: Sequence[int] = (), spare: int = 0) -> list[int] | None:
        """`shared` (from `match`) with one more reference each, then `count` blocks to write into.

        None, with nothing changed, unless `spare` more blocks would stay free.
        """
        revived = sum(1 for block in shared if not self._references[block])
        if count + revived + spare > len(self._free):
            return None
        for block in shared:
            self._references[block] += 1
            self._free.pop(block, None)
        return [*shared, *(self._take_oldest() for _ in range(count))]

    def register_hash(self, block: int, digest: bytes) -> None:
        """Say that `block`, which is in use, now holds what `digest` names.

        When two sequences computed the same content at once, the first one's block is found.
        """
        if self._digests[block] is None and digest not in self._by_digest:
            self._digests[block] = digest
            self._by_digest[digest] = block

    def release(self, blocks: Sequence[int]) -> None:
        """Give back one reference of each, the last first, so that a tail is evicted before
        the beginning that others may share."""
        for block in reversed(blocks):
            self._references[block] -= 1
            if self._references[block] == 0:
                self._free[block] = None
                if self._digests[block] is None:
                    self._free.move_to_end(block, last=False)

    def discard(self, blocks: Sequence[int]) -> list[int]:
        """Release blocks whose content is spoilt: those nobody else holds, which are also no
        longer found by their digests."""
        self.release(blocks)
        spoilt = [block for block in blocks if not self._references[block]]
        for block in spoilt:
            self._unname(block)
            self._free.move_to_end(block, last=False)
        return spoilt

    def forget_cached(self) -> int:
        """Drop everything cached and not in use; how many blocks that were."""
        cached = [block for block in self._free if self._digests[block] is not None]
        for block in cached:
            self._unname(block)
        return len(cached)

    def withdraw(self, count: int) -> list[int]:
        """At most `count` free blocks, forgotten and not handed out until `restore`.

        The highest first, and not the least recently used: memory is given back by the page, and
        neighbours share pages.
        """
        taken = sorted(self._free, reverse=True)[: max(0, count)]
        for block in taken:
            del self._free[block]
            self._unname(block)
        self._withdrawn.update(taken)
        return taken

    def restore(self, count: int) -> int:
        """Have at most `count` withdrawn blocks back, empty; how many they were."""
        back = sorted(self._withdrawn)[: max(0, count)]
        self._withdrawn.difference_update(back)
        for block in reversed(back):
            self._free[block] = None
            self._free.move_to_end(block, last=False)
        return len(back)

    def withdrawn(self) -> list[int]:
        """In order."""
        return sorted(self._withdrawn)

    def use(self) -> PoolUse:
        cached = sum(1 for block in self._by_digest.values() if not self._references[block])
        withdrawn, free = len(self._withdrawn), len(self._free)
        return PoolUse(self.count - free - withdrawn, cached, free - cached, withdrawn)

    def check(self, holders: Iterable[Sequence[int]]) -> None:
        """Raise AssertionError unless the books balance with the block tables of all `holders`."""
        expected = [0] * self.count
        for blocks in holders:
            for block in blocks:
                expected[block] += 1
        assert expected == self._references, "references differ from the block tables"
        idle = {block for block, references in enumerate(expected) if references == 0}
        assert idle == set(self._free) | self._withdrawn, "idle blocks differ from the free ones"
        assert not self._withdrawn & set(self._free), "blocks are both withdrawn and free"
        named = {digest: block for block, digest in enumerate(self._digests) if digest is not None}
        assert named == self._by_digest, "digests differ from the map"

    def _take_oldest(self) -> int:
        block, _ = self._free.popitem(last=False)
        self._unname(block)
        self._references[block] = 1
        return block

    def _unname(self, block: int) -> None:
        digest = self._digests[block]
        if digest is not None:
            del self._by_digest[digest]
            self._digests[block] = None
