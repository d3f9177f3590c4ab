"""Which tokens and browsers came lately: gathered here, written to the tables in batches."""

from control.access.sessions import record_use
from control.access.tokens import used
from control.sql.database import SYSTEM, Database

MOST = 10_000


class LastUseBuffer:
    """Gathered on the loop; what is beyond `MOST` between two batches is not noted."""

    def __init__(self) -> None:
        self._tokens: set[str] = set()
        self._cookies: set[str] = set()

    def note(self, token_id: str, cookie: str) -> None:
        """One of them is "" ."""
        if token_id and len(self._tokens) < MOST:
            self._tokens.add(token_id)
        if cookie and len(self._cookies) < MOST:
            self._cookies.add(cookie)

    def take(self) -> tuple[set[str], set[str]]:
        """Token ids and cookies since the last time."""
        taken = self._tokens, self._cookies
        self._tokens, self._cookies = set(), set()
        return taken


def write_uses(database: Database, tokens: set[str], cookies: set[str]) -> None:
    """One transaction for all; blocks. Call it every minute or so with what `take` gave."""
    if tokens or cookies:
        with database.change(SYSTEM) as tx:
            used(tx, tokens)
            record_use(tx, cookies)
