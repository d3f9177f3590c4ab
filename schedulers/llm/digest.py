"""Names for cached blocks: each full block's digest covers everything before it."""

from array import array
from collections.abc import Sequence
from hashlib import blake2b

DIGEST_BYTES = 16


def root_digest(salt: bytes) -> bytes:
    """The digest a chain starts from; sequences with different salts never share a block."""
    return blake2b(salt, digest_size=DIGEST_BYTES, person=b"modelyard prefix").digest()


def next_digest(previous: bytes, tokens: Sequence[int]) -> bytes:
    """The digest of a full block that follows the block named `previous`."""
    return blake2b(array("I", tokens).tobytes(), digest_size=DIGEST_BYTES, key=previous).digest()
