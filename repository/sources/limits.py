"""How much one fetch may take: bytes, files and time."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Bounds of one fetch. `max_bytes` and `max_files` hold for what is transferred and, again,
    for what an archive unpacks to.

    `stall_s`: longest time without a byte. `total_s`: longest time overall. `attempts`: tries in
    a row that may fail without a megabyte arriving; between them a pause grows from `pause_s`.
    """

    max_bytes: int
    max_files: int
    stall_s: float = 30.0
    total_s: float = 6 * 3600.0
    attempts: int = 5
    pause_s: float = 0.5
