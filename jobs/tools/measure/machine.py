"""The CPU that figures are measured on, and what it can compute in int8."""

import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
VNNI = frozenset({"avx512_vnni", "avx_vnni", "avx512vnni", "avxvnni"})
DOT_PRODUCT = "asimddp"
"""ARM's name for what does not saturate either."""


def cpu_flags() -> frozenset[str]:
    """Flags of the first processor; empty where the system does not list them."""
    return frozenset((_field("flags") or _field("Features")).split())


def cpu_name() -> str:
    """The processor as its maker calls it, and its int8 instructions."""
    name = _field("model name") or platform.processor() or platform.machine()
    flags = cpu_flags()
    return f"{name} ({int8_instructions(flags)})"


def int8_instructions(flags: frozenset[str]) -> str:
    """The widest instructions that multiply int8, in words."""
    if found := sorted(flags & VNNI):
        return found[0]
    if DOT_PRODUCT in flags:
        return DOT_PRODUCT
    for flag in ("avx512bw", "avx2"):
        if flag in flags:
            return f"{flag}, no VNNI"
    return "no VNNI"


def saturates(flags: frozenset[str]) -> bool:
    """Whether sums of u8 x s8 products overflow 16 bits, so that weights must keep to 7 bits.

    That is so on x86 without VNNI, where onnxruntime multiplies by `vpmaddubsw`.
    """
    return not flags & VNNI and DOT_PRODUCT not in flags


def _field(name: str) -> str:
    try:
        text = _CPUINFO.read_text()
    except OSError:
        return ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
