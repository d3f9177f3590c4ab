"""Memory that rows of text take on their way through the layers."""

import os
from collections.abc import Mapping
from typing import Any

from jobs.tools.quantise_llm.texts import TokenTexts
from jobs.tools.work import refuse

STREAMS_OF_TEXT = 2
"""Of the held-out text in the original and the quantised network; of the calibration text before
and behind a layer."""
FLOAT32_BYTES = 4


def check_memory(texts: TokenTexts, config: Mapping[str, Any], available: int) -> None:
    """Refuses rows whose streams do not fit into `available` bytes, with what they would take."""
    hidden = config.get("hidden_size")
    if not isinstance(hidden, int) or hidden < 1:
        refuse(f"config.json: hidden_size is {hidden!r:.80}; it must be a positive whole number")
    tokens = texts.calibration.numel() + texts.held_out.numel()
    needed = STREAMS_OF_TEXT * FLOAT32_BYTES * tokens * hidden
    if needed > available:
        refuse(
            f"{tokens:,} tokens of {hidden} numbers take {needed:,} bytes between the layers, and "
            f"{available:,} are free; give smaller 'samples' or 'length'"
        )


def available_bytes() -> int:
    """Memory of the machine that is free."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
