"""What a person reads when the server has started: every version, then where to reach it. Pure."""

from collections.abc import Callable, Mapping, Sequence

from server.served_version import VersionRow

HEADER = ("model", "version", "backend", "instances", "state", "seconds", "reason")


StartHint = Callable[[Mapping[str, str]], str]
"""Makes what else is to be read, from the addresses of the open front ends by name."""


def no_hint(_: Mapping[str, str]) -> str:
    return ""


def banner(rows: Sequence[VersionRow], addresses: Mapping[str, str]) -> str:
    """The start-up table, columns aligned, and the open front ends by name; ends with a newline."""
    lines = _aligned([HEADER, *(_cells(row) for row in rows)])
    if not rows:
        lines.append("(no models; `modelyard init` makes one from a file)")
    lines.append("")
    lines += _aligned([(name, address) for name, address in addresses.items()])
    return "\n".join(lines) + "\n"


def _cells(row: VersionRow) -> tuple[str, ...]:
    return (
        row.name,
        str(row.version or "-"),
        row.backend or "-",
        row.instances or "-",
        row.state or "-",
        f"{row.load_seconds:.2f}" if row.load_seconds else "-",
        " ".join(row.reason.split()),
    )


def _aligned(table: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
