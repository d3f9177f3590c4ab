"""What a target is: where its inputs come from, what they are given to, and what is wrong."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

Run = Callable[[bytes], None]
"""Give one input to the code. Raises for anything that the code does not promise for bad input."""


@dataclass(frozen=True, slots=True)
class Target:
    """One reader of foreign bytes.

    `packages`: prefixes of the modules whose coverage guides the fuzzer and is reported.
    `open`: makes the code ready and yields what takes one input. `seeds`: valid inputs to start
    from. `split`: cuts an input into its records (frames, lines), so that whole ones are moved,
    doubled and dropped; None where mutation byte by byte is enough. `join` puts them together,
    and may set lengths right.
    """

    name: str
    packages: tuple[str, ...]
    open: Callable[[], AbstractContextManager[Run]]
    seeds: Callable[[], Sequence[bytes]]
    split: Callable[[bytes], list[bytes]] | None = None
    join: Callable[[list[bytes]], bytes] = b"".join
    max_bytes: int = 4096


class Wrong(Exception):
    """The code broke a promise on this input."""


@contextmanager
def plain(run: Run) -> Iterator[Run]:
    """For code that needs nothing made ready."""
    yield run
