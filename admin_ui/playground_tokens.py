"""Passes: short-lived tokens the console makes for whoever tries a model where the gateway asks for
one, so that nobody has to paste a token of theirs into a page.

A pass is a token like any other, made over the control API as the person who looks: it may infer
with one name, ends by itself, and its making is in the audit. Its text stays in this process.
"""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime

from admin_ui.page_context import PageContext

LASTS_S, LEAST_LEFT_S = 900, 60
MOST = 500
NAME = "playground"


@dataclass(frozen=True, slots=True)
class PlaygroundToken:
    text: str
    made: datetime


class PlaygroundTokenCache:
    """Those that were made, by session and name; the oldest give way. On the loop."""

    def __init__(self) -> None:
        self._made: OrderedDict[tuple[str, str], PlaygroundToken] = OrderedDict()

    async def find(self, context: PageContext, name: str) -> str:
        """A token that may infer with `name`. Raises Refused; "" for who is no person: a token
        makes no tokens."""
        if not (context.person and context.token):
            return ""
        key, now = (context.token, name), context.services.now()
        known = self._made.get(key)
        if known is not None and (now - known.made).total_seconds() < LASTS_S - LEAST_LEFT_S:
            return known.text
        body = {"name": NAME, "scopes": [f"infer:{name}"], "expires_in_s": LASTS_S}
        made = await context.change("POST", "/tokens", body)
        self._made[key] = PlaygroundToken(str(made.document["text"]), now)
        self._made.move_to_end(key)
        while len(self._made) > MOST:
            self._made.popitem(last=False)
        return self._made[key].text

    def forget(self, context: PageContext, name: str) -> None:
        """The gateway does not take it: it was revoked, or its user changed."""
        self._made.pop((context.token, name), None)
