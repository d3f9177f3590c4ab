"""The memory a server lends to messages that are not finished and answers that are not read. Pure.

One `BufferBudget` per server, shared by its listeners; one `BufferAccount` per connection. Bytes
are charged before they are kept: a gRPC message from its length prefix on, an answer when it has
to wait for its client. What does not fit is refused, in words for the client.

A connection may hold no more than it leaves free for the others (the dynamic threshold of shared
buffers, Choudhury and Hahne 1998): one alone gets half, the next half of what is left, and nobody
gets everything.
"""

CONNECTION_BYTES = 256 * 1024
"""The price of a connection: an unfinished frame of up to 128 KiB, its header tables, and what it
may hold however full the server is."""
RESERVE_BYTES = 64 * 1024
"""Part of that price: a connection that holds less than this is never refused."""


class BufferBudget:
    """The bytes of one server. `held` is at most `limit`, but for what `hold` adds."""

    __slots__ = ("held", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def open(self) -> "BufferAccount":
        """The account of a new connection; not `open` where not even that fits."""
        fits = self.held + CONNECTION_BYTES <= self.limit
        if fits:
            self.held += CONNECTION_BYTES
        return BufferAccount(self, fits)


class BufferAccount:
    """What one connection holds; `close` it when the connection is gone. Nothing is counted while
    it is not `open`."""

    __slots__ = ("_budget", "held", "open")

    def __init__(self, budget: BufferBudget, is_open: bool) -> None:
        self._budget = budget
        self.held = 0
        self.open = is_open

    def charge(self, size: int) -> str:
        """Take `size` bytes; "" or, where they do not fit and nothing was taken, why."""
        held = self.held + size
        if held > RESERVE_BYTES and self.open:
            budget, more = self._budget, held - max(self.held, RESERVE_BYTES)
            if held > budget.limit - budget.held - more:
                return self._refusal(size)
            budget.held += more
        self.held = held
        return ""

    def hold(self, size: int) -> None:
        """Count `size` bytes that are there already."""
        held = self.held + size
        if held > RESERVE_BYTES and self.open:
            self._budget.held += held - max(self.held, RESERVE_BYTES)
        self.held = held

    def release(self, size: int) -> None:
        """Give back what was charged or held. Without effect once the account is closed."""
        if self.held > RESERVE_BYTES and self.open:
            self._budget.held -= self.held - max(self.held - size, RESERVE_BYTES)
        self.held -= size

    def close(self) -> None:
        """Give everything back, once."""
        if self.open:
            self.release(self.held)
            self._budget.held -= CONNECTION_BYTES
            self.open = False

    def _refusal(self, size: int) -> str:
        budget = self._budget
        return (
            f"{size} bytes do not fit the server's buffers: this connection holds {self.held} "
            f"bytes, all connections hold {budget.held} of {budget.limit} (--buffer-limit), and "
            "one may hold no more than it leaves free; send less at once, or try again later"
        )


UNBOUNDED = 2**62
"""The limit of a budget that only counts."""
