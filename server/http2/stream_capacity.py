"""How many streams one connection may have open, and what they cost it. Pure.

The first few are part of the connection's own price (`server.buffers`). Room for more is paid for
before they are opened, twice as many at a time, so that opening a stream costs one comparison.
"""

from server.buffers import BufferAccount

MAX_STREAMS = 1000
FREE_STREAMS = 8
STREAM_BYTES = 20 * 1024
"""The price of one: an idle ModelStreamInfer takes 10.2 KiB, a head of 2 KiB another 9 KiB."""
HEAD_FACTOR = 5
"""And of each byte of header list beyond 2 KiB: 430 fields of one byte took 70 KiB in all."""


class StreamCapacity:
    """`size`: streams that may be open now."""

    __slots__ = ("_account", "_paid", "_price", "size")

    def __init__(self, account: BufferAccount) -> None:
        self._account = account
        self._price = STREAM_BYTES
        self._paid = 0
        self.size = FREE_STREAMS

    def grow(self) -> bool:
        """Pay for twice as many; whether there is more room now."""
        size = min(2 * self.size, MAX_STREAMS)
        if size == self.size or self._pay((size - self.size) * self._price):
            return False
        self.size = size
        return True

    def pay_for_head(self, excess: int) -> str:
        """A header list was so many bytes larger than usual, and the others may be, too. "" or why
        the connection may not hold that."""
        price = STREAM_BYTES + HEAD_FACTOR * excess
        if price <= self._price:
            return ""
        refusal = self._pay(self.size * (price - self._price))
        if not refusal:
            self._price = price
        return refusal

    def give_back(self) -> None:
        """No stream is open."""
        if self._paid:
            self._account.release(self._paid)
            self._paid, self._price, self.size = 0, STREAM_BYTES, FREE_STREAMS

    def _pay(self, size: int) -> str:
        refusal = self._account.charge(size)
        if not refusal:
            self._paid += size
        return refusal
