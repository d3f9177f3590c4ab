"""The stages of a server's life. The gateway owns the one `Lifecycle`; all others read it."""

STOPPING = "Server is stopping, scheduler for model has stopped accepting new inference requests"


class Lifecycle:
    """Plain attributes, which each request reads; only the methods change them, on the loop.

    `starting`: the first load is not over. `fetching`: the current desired state is yet to come
    and be loaded. `stopping`: no new requests are taken; it never ends.
    """

    __slots__ = ("fetching", "starting", "stopping")

    def __init__(self, *, starting: bool = False, fetching: bool = False) -> None:
        """A server that serves already, unless told otherwise."""
        self.starting = starting
        self.fetching = fetching
        self.stopping = False

    def finish_starting(self) -> None:
        self.starting = False

    def finish_fetching(self) -> None:
        self.fetching = False

    def begin_stopping(self) -> None:
        self.stopping = True
