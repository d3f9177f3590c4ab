"""One look at a page: who looks, at what, and the calls of the control API made for them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from admin_ui.services import (
    ConsoleServices,
    ControlApiError,
    ControlApiRequest,
    ControlApiResponse,
)
from control.access.scopes import Action, Principal, allows

AT_ONCE, MOST = 500, 5000
"""Things per call of the API, and at most on a page that sorts them itself."""

_USER = "user:"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContext:
    """`path`: the parameters of the screen's path; `query` and `form`: the last value of each name,
    `pairs` all of the form. `act`: the path of the form that was sent and `refused` why not, when
    the screen is shown again. `at`: path and query of the page."""

    services: ConsoleServices
    request: Request
    principal: Principal
    path: Mapping[str, str]
    query: Mapping[str, str]
    at: str
    token: str = ""
    pairs: tuple[tuple[str, str], ...] = ()
    act: str = ""
    refused: ControlApiError | None = None

    @property
    def form(self) -> Mapping[str, str]:
        return dict(self.pairs)

    @property
    def place(self) -> str:
        """The page's path without its query."""
        return self.at.partition("?")[0]

    @property
    def person(self) -> str:
        """The name of the user who looks; "" for a token or a local one."""
        who = self.principal
        is_person = who.scopes is None and who.id.startswith(_USER)
        return who.id.removeprefix(_USER) if is_person else ""

    def several(self, name: str) -> list[str]:
        """Every value of a field, those left empty not counted."""
        return [value for key, value in self.pairs if key == name and value]

    def may(self, action: Action | str, name: str = "") -> bool:
        """Whether it is worth offering; the API decides when it is asked."""
        return allows(self.principal, Action(action), name)

    # asking

    async def get(self, path: str, query: Mapping[str, str] | None = None, **names: str) -> Any:
        """The document of one thing or one page. Raises ControlApiError."""
        return (await self.fetch(path, query, **names)).document

    async def fetch(
        self, path: str, query: Mapping[str, str] | None = None, **names: str
    ) -> ControlApiResponse:
        """As `get`, with the cursor of the next page."""
        return await self._ask(ControlApiRequest("GET", path, names, query or {}))

    async def maybe(self, path: str, query: Mapping[str, str] | None = None, **names: str) -> Any:
        """As `get`; None where there is no such thing, or it is not for this principal."""
        try:
            return await self.get(path, query, **names)
        except ControlApiError as refused:
            if refused.status in (403, 404):
                return None
            raise

    async def every(
        self, path: str, query: Mapping[str, str] | None = None, **names: str
    ) -> list[Any]:
        """The items of all pages of a list, `MOST` at most."""
        items: list[Any] = []
        wanted = {"limit": str(AT_ONCE), **(query or {})}
        while len(items) < MOST:
            found = await self.fetch(path, wanted, **names)
            items += found.document["items"]
            if found.next is None:
                break
            wanted["cursor"] = found.next
        return items

    async def change(
        self, verb: str, path: str, body: Any = None, expected: int | None = None, **names: str
    ) -> ControlApiResponse:
        """A call that changes something. Raises ControlApiError."""
        return await self._ask(ControlApiRequest(verb, path, names, {}, body, expected))

    async def _ask(self, asked: ControlApiRequest) -> ControlApiResponse:
        return await self.services.control.ask(self.request, self.principal, asked)

    # what a form shows

    def typed(self, act: str, name: str, usual: Any = "") -> Any:
        """What stood in a field of the form that was refused; `usual` in any other."""
        return self.form.get(name, usual) if self.act == act else usual

    def ticked(self, act: str, name: str, usual: Iterable[str] = ()) -> list[str]:
        """As `typed`, of a field with several values."""
        return self.several(name) if self.act == act else list(usual)

    def problem(self, act: str, name: str = "") -> str:
        """What was wrong with a field; with the form as a whole for ""."""
        if self.refused is None or self.act != act:
            return ""
        return self.refused.message if self.refused.field == name else ""

    def has_problem(self, act: str) -> bool:
        return self.refused is not None and self.act == act
