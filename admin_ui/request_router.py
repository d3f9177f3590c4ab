"""What happens around every page: who asks, the form's token, refusals, the twin, the headers."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

import orjson
from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from admin_ui.headers import PRIVATE, form_token, is_form_token
from admin_ui.page_context import PageContext
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.services import ConsoleServices, ControlApiError
from admin_ui.templates import render, render_block
from admin_ui.text import link
from admin_ui.theme import theme_of
from control.access.scopes import Principal, allows

LARGEST_FORM_BYTES, SMALL_FORM_BYTES = 2**20, 2**14
"""Of forms in general, and of one that anybody may send, or that is read on the spot."""
MOST_FIELDS = 1000
FIELDS_HEADER = "x-form-fields"
"""The fields of a form whose body is a file, as such a form would have them."""
TWIN = ".json"
HOME = "/"
LOGIN = "/login"

_FORM, _FILE = "application/x-www-form-urlencoded", "application/octet-stream"
_NOT_OURS = ("/api/", "/git/", "/static/")
_VERBS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_STOPS = {
    401: "Not logged in",
    403: "Not allowed",
    404: "Page not found",
    421: "Wrong host",
    429: "Too many requests",
    503: "Not now",
}
_DATABASE = {
    "database_gone": "The database does not answer",
    "database_damaged": "The database cannot be used",
}
"""Titles by the code of a refusal."""

Endpoint = Callable[[Request], Awaitable[Response]]


class _NotFoundRoute(Route):
    """Every path that is no row's, but those of the API and of git."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http" and scope["path"].startswith(_NOT_OURS):
            return Match.NONE, {}
        return super().matches(scope)


class RequestRouter:
    """The tables' rows as routes."""

    def __init__(
        self, services: ConsoleServices, screens: Sequence[Screen], acts: Sequence[FormAction]
    ) -> None:
        self.services = services
        self.screens = screens
        self._acts = acts
        self._by_path = {screen.path: screen for screen in screens}
        self._finders = [(Route(one.path, _nowhere), one) for one in screens]

    def routes(self) -> list[BaseRoute]:
        """The acts first: a screen's parameters would take their paths."""
        return [
            *(Route(act.path, self._act(act), methods=["POST"]) for act in self._acts),
            *self._screen_routes(),
            _NotFoundRoute("/{rest:path}", self.guarded(self._nowhere), methods=[*_VERBS]),
        ]

    def guarded(self, endpoint: Endpoint) -> Endpoint:
        """`endpoint` for requests that are meant for us, its refusals as pages."""

        async def respond(request: Request) -> Response:
            try:
                self.services.control.check(request)
                return await endpoint(request)
            except ControlApiError as refused:
                return await self._stopped(request, refused)

        return respond

    async def page_context(self, request: Request, **facts: Any) -> PageContext:
        """Raises ControlApiError when nobody known asks."""
        principal = await self.services.control.identify(request)
        cookie = request.cookies.get(self.services.cookie, "")
        usual = {
            "path": request.path_params,
            "query": dict(request.query_params),
            "at": at_of(request),
        }
        return PageContext(
            services=self.services,
            request=request,
            principal=principal,
            token=form_token(cookie),
            **{**usual, **facts},
        )

    def find(self, at: str) -> tuple[Screen, dict[str, Any]] | None:
        """The screen at a path with query, and the facts of a request for it."""
        path, _, query = at.partition("?")
        for route, screen in self._finders:
            scope = {"type": "http", "path": unquote(path), "method": "GET"}
            match, found = route.matches(scope)
            if match == Match.FULL:
                asked = dict(parse_qsl(query, keep_blank_values=True))
                return screen, {"path": found["path_params"], "query": asked, "at": at}
        return None

    def page(
        self, context: PageContext, screen: Screen, shown: ScreenContent, after: int = 0
    ) -> Response:
        """A screen as HTML, or its twin. `after`: the newest event when it was looked up."""
        if wants_json(context.request):
            return _json(shown.twin, shown.status)
        names = {**self.template_names(context, screen, shown), "after": after}
        return html(render(screen.template, names), shown.status)

    def live(self, context: PageContext, screen: Screen, shown: ScreenContent) -> str:
        """The part of a screen that changes while it is looked at."""
        return render_block(screen.template, "live", self.template_names(context, screen, shown))

    def template_names(
        self, context: PageContext | None, screen: Screen | None, shown: ScreenContent
    ) -> dict[str, Any]:
        """What every template sees."""
        title = shown.title or (screen.title if screen else "")
        return {
            "context": context,
            "screen": screen,
            "title": title,
            "twin": shown.twin,
            "menu": self._menu(context.principal if context else None),
            "now": self.services.now(),
            "after": 0,
            "trouble": self.services.problem(),
            "root": self._root(screen),
            "docs": self._docs(screen),
            "theme": theme_of(context.request) if context else "",
            **shown.context,
        }

    # routes

    def _screen_routes(self) -> list[BaseRoute]:
        return [
            Route(path, self.guarded(self._look(screen)), methods=["GET"])
            for screen in self.screens
            for path in (_twin_path(screen.path), screen.path)
        ]

    def _look(self, screen: Screen) -> Endpoint:
        async def look(request: Request) -> Response:
            if request.url.path.endswith(TWIN) and not is_twin(request):
                _unsplit(request, screen)
            context = await self.page_context(request)
            after = await self.services.newest()
            return self.page(context, screen, await screen.load(context), after)

        return look

    def _act(self, act: FormAction) -> Endpoint:
        async def acted(request: Request) -> Response:
            if act.file:
                pairs = read_fields(request)
            else:
                if not _announces_small_form(request):
                    await self.page_context(request)  # only who is logged in may send so much
                pairs = await read_form(request)
            context = await self.page_context(request, pairs=pairs, act=raw_path(request))
            cookie = request.cookies.get(self.services.cookie, "")
            if not is_form_token(context.form.get("token", ""), cookie):
                raise ControlApiError(
                    403, "cross_site", "this form was not sent by this console; reload the page"
                )
            try:
                _check_typed(act, context)
                outcome = await act.run(context)
            except ControlApiError as refused:
                return await self._again(act, context, refused)
            if isinstance(outcome, Response):
                return outcome
            if isinstance(outcome, str):
                return RedirectResponse(outcome, 303, PRIVATE)
            screen = replace(
                self._by_path[act.screen], template=act.template, live=(), live_every_s=0.0
            )
            return self.page(context, screen, outcome)

        return self.guarded(acted)

    async def _again(
        self, act: FormAction, context: PageContext, refused: ControlApiError
    ) -> Response:
        """The form's screen once more, with what was typed and what was wrong with it."""
        if wants_json(context.request) or refused.status in (401, 503):
            raise refused
        screen = self._by_path[act.screen]
        at = link(screen.path, **context.path)
        again = replace(context, refused=refused, at=at, query={})
        shown = await screen.load(again)
        shown.status = refused.status
        return self.page(again, screen, shown)

    async def _nowhere(self, request: Request) -> Response:
        await self.page_context(request)
        raise ControlApiError(404, "not_found", f"there is no page at {request.url.path[:200]}")

    # what stops

    async def _stopped(self, request: Request, refused: ControlApiError) -> Response:
        if wants_json(request):
            return _json(refused.as_json(), refused.status, refused.headers)
        if refused.status == 401:
            return _to_login(request)
        names = {
            **self.template_names(
                await self._identify(request), None, ScreenContent(refused.as_json())
            ),
            "title": _DATABASE.get(refused.code)
            or _STOPS.get(refused.status, "The request failed"),
            "refused": refused,
            "trouble": "",  # it is what was refused for, or tells the same
            "database_is_gone": refused.code == "database_gone",
        }
        return html(render("stopped.html", names), refused.status, refused.headers)

    async def _identify(self, request: Request) -> PageContext | None:
        """Whoever asks, when that can be said."""
        try:
            self.services.control.check(request)
            return await self.page_context(request)
        except ControlApiError:
            return None

    # the navigation

    def _menu(self, principal: Principal | None) -> list[Screen]:
        if principal is None:
            return []
        return [
            one
            for one in self.screens
            if one.menu and (one.needs is None or allows(principal, one.needs))
        ]

    def _root(self, screen: Screen | None) -> str:
        """The path of the menu's screen that this one is under."""
        while screen is not None and not screen.menu:
            screen = self._by_path.get(screen.under)
        return screen.path if screen else ""

    def _docs(self, screen: Screen | None) -> str:
        """The page of the docs about a screen."""
        while screen is not None and not screen.docs:
            screen = self._by_path.get(screen.under)
        return screen.docs if screen else ""


def html(page: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(page, status, {**PRIVATE, **(headers or {})}, media_type="text/html")


def wants_json(request: Request) -> bool:
    """Whether the twin is asked for, by the path's ending or by Accept."""
    accept = request.headers.get("accept", "")
    return is_twin(request) or ("application/json" in accept and "text/html" not in accept)


def is_twin(request: Request) -> bool:
    """Whether the path as it was sent ends in ".json"; the end of a name is sent as "%2Ejson"."""
    return request.method in ("GET", "HEAD") and raw_path(request).endswith(TWIN)


def raw_path(request: Request) -> str:
    """The path as it was sent."""
    raw: bytes = request.scope.get("raw_path") or quote(request.scope["path"]).encode()
    return raw.partition(b"?")[0].decode("latin-1")


def at_of(request: Request) -> str:
    """Path and query as they were sent."""
    query = request.url.query
    return raw_path(request) + (f"?{query}" if query else "")


async def read_form(
    request: Request, most_bytes: int = LARGEST_FORM_BYTES
) -> tuple[tuple[str, str], ...]:
    """The fields of a form in order. Raises ControlApiError for what is no form of ours."""
    _check_sender(request, _FORM)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > most_bytes:
                raise ControlApiError(413, "too_large", f"a form has {most_bytes} bytes at most")
    except ClientDisconnect as error:
        raise ControlApiError(400, "malformed", "the form cannot be read") from error
    if len(body) > SMALL_FORM_BYTES:  # a third of a second for 1 MiB of escapes
        return await to_thread.run_sync(_pairs, body)
    return _pairs(body)


def read_fields(request: Request) -> tuple[tuple[str, str], ...]:
    """As `read_form`, of a form whose body is a file, none of which is read."""
    _check_sender(request, _FILE)
    written = request.headers.get(FIELDS_HEADER, "").encode()
    if len(written) > SMALL_FORM_BYTES:
        raise ControlApiError(413, "too_large", f"the fields have {SMALL_FORM_BYTES} bytes at most")
    return _pairs(written)


def _check_sender(request: Request, wanted: str) -> None:
    if "origin" not in request.headers:
        raise ControlApiError(
            403, "cross_site", "a form must have an Origin header; this one has none"
        )
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != wanted:
        raise ControlApiError(
            415, "wrong_type", "pages send forms; programs use the API under /api/v1"
        )


def _pairs(written: bytes | bytearray) -> tuple[tuple[str, str], ...]:
    try:
        pairs = parse_qsl(written.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise ControlApiError(400, "malformed", "the form cannot be read") from error
    return tuple((name, value.strip("\r\n")) for name, value in pairs)


def _announces_small_form(request: Request) -> bool:
    length = request.headers.get("content-length", "")
    return length.isdigit() and int(length) <= SMALL_FORM_BYTES


def _check_typed(act: FormAction, context: PageContext) -> None:
    if not act.typed_name:
        return
    wanted, typed = context.path[act.typed_name], context.form.get("confirm", "").strip()
    if typed != wanted:
        raise ControlApiError(422, "invalid", f"type {wanted} here to go on", "confirm")


def _to_login(request: Request) -> Response:
    here = at_of(request)
    target = LOGIN if here == HOME or request.method != "GET" else f"{LOGIN}?next={quote(here)}"
    if request.headers.get("hx-request"):
        return Response(status_code=401, headers={**PRIVATE, "HX-Redirect": target})
    return RedirectResponse(target, 303, PRIVATE)


def _json(document: Any, status: int, headers: dict[str, str] | None = None) -> Response:
    body = orjson.dumps(document)
    return Response(body, status, {**PRIVATE, **(headers or {})}, media_type="application/json")


def _twin_path(path: str) -> str:
    return "/overview" + TWIN if path == HOME else path + TWIN


def _unsplit(request: Request, screen: Screen) -> None:
    """A name that ends in ".json" came to the twin's route, which took that for its own end."""
    names = [name for name in request.path_params if screen.path.endswith(f"{{{name}}}")]
    if not names:
        raise ControlApiError(404, "not_found", f"there is no page at {request.url.path[:200]}")
    request.path_params[names[0]] += TWIN


async def _nowhere(request: Request) -> Response:
    raise HTTPException(404)
