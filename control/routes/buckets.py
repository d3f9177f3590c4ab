"""Which of 10,000 buckets a unit falls into: the same one for ever, for the same salt. Pure.

The candidate owns the buckets from 0 up to its weight, so that a weight that grows takes units
from the stable version and never gives one back.
"""

from hashlib import sha256

BUCKETS = 10_000


def bucket(salt: str, unit: str) -> int:
    """0 to 9,999, evenly, and unrelated between salts."""
    return bucket_after(prefix_of(salt), unit)


def prefix_of(salt: str) -> bytes:
    """What all units of a salt are hashed behind, for `bucket_after`."""
    return f"{salt}:".encode("utf-8", "surrogatepass")


def bucket_after(prefix: bytes, unit: str) -> int:
    """`bucket` for each request; about a microsecond."""
    try:
        digest = sha256(prefix + unit.encode()).digest()
    except UnicodeEncodeError:  # it came as bytes that are no text
        digest = sha256(prefix + unit.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8]) % BUCKETS
