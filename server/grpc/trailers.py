"""The trailers of a call that asked a route: who answered."""

from functools import lru_cache

from server.http2.exchange import Exchange
from server.http2.hpack import literal
from server.routing.table import HEADER_NAME, Target
from server.routing.trials import STAMP_NAME

MOST_NAMED = 16
"""Arms that the trailers of one stream name; each of its responses names its own."""


def name_arm(call: Exchange, target: Target) -> None:
    """Let the call's trailers say who answers."""
    block, before = _trailer(target.label), call.trailers
    if not before and not target.stamp:
        call.trailers = block
        return
    if before and (block in before or len(before) >= MOST_NAMED * len(block)):
        return
    if target.stamp:
        block += literal(((STAMP_NAME.encode(), target.stamp.encode()),))
    call.trailers = before + block


@lru_cache(1024)
def _trailer(label: str) -> bytes:
    return literal(((HEADER_NAME.encode(), label.encode()),))
