"""What may be written for `memory_budget`: a device and how much of its memory models may take.
Pure."""

import re
from collections.abc import Iterable

from server.settings.kinds import ValueKind

DEFAULT_SHARE = 0.8
"""Of the machine's memory, or of the cgroup's limit, for models on the CPU unless told otherwise:
the rest is the system's, the server's own and that of requests under way."""

_UNITS = {"": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
          "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}  # fmt: skip
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")
_DEVICE = re.compile(r"cpu|cuda:[0-9]{1,2}")


def read_size(text: str) -> int:
    """Bytes of "16GiB", "500 MB" or "1000000". Raises ValueError."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or found[2].upper() not in _UNITS:
        raise ValueError(f"'{text}' is not a size such as 16GiB, 500MB or 1000000")
    size = int(float(found[1]) * _UNITS[found[2].upper()])
    if not 0 < size < 2**50:
        raise ValueError(f"'{text}' is not a size from 1 byte to 1024 TiB")
    return size


def _read(text: str) -> str:
    return ",".join(f"{device}={size}" for device, size in _pairs(text))


def _pairs(text: str) -> list[tuple[str, str]]:
    """Of "cpu=16GiB,cuda:0=70GiB". Raises ValueError."""
    pairs = []
    for one in text.split(","):
        device, equals, size = (part.strip() for part in one.partition("="))
        if not equals or _DEVICE.fullmatch(device) is None:
            raise ValueError
        read_size(size)
        pairs.append((device, size))
    return pairs


BUDGET = ValueKind(
    "DEVICE=SIZE",
    "a device (cpu, cuda:0) and a size with its unit (KiB, MiB, GiB, TiB), as in cpu=16GiB",
    _read,
    (str,),
)


def budgets(given: Iterable[str], machine_bytes: int) -> dict[str, int]:
    """Bytes by device; the CPU's is DEFAULT_SHARE of `machine_bytes` unless given.

    Raises ValueError when a device is given twice.
    """
    found: dict[str, int] = {}
    for device, size in (pair for one in given for pair in _pairs(one)):
        if device in found:
            raise ValueError(f"'{device}' is given twice; give each device one budget")
        found[device] = read_size(size)
    return {"cpu": int(machine_bytes * DEFAULT_SHARE), **found} if machine_bytes else found
