"""Which tokens were good lately, so that others' wrong ones keep no honest holder waiting."""

from collections import OrderedDict

MOST = 10_000


class RecentTokens:
    """Digests only, the last `MOST` that were good. On the loop."""

    def __init__(self) -> None:
        self._digests: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, digest: str) -> bool:
        return digest in self._digests

    def note(self, digest: str, good: bool) -> None:
        self._digests.pop(digest, None)
        if good:
            self._digests[digest] = None
        if len(self._digests) > MOST:
            self._digests.popitem(last=False)
