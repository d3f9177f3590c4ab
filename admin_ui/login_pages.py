"""The pages for who has no session yet: logging in, the one-time link; and logging out."""

from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from admin_ui.headers import PRIVATE, is_form_token
from admin_ui.request_router import (
    HOME,
    LOGIN,
    SMALL_FORM_BYTES,
    RequestRouter,
    html,
    read_form,
)
from admin_ui.screens import ScreenContent
from admin_ui.services import ConsoleServices, ControlApiError, SessionCookie
from admin_ui.templates import render
from admin_ui.text import local
from admin_ui.theme import theme_of

WELCOME, LOGOUT = "/welcome", "/logout"


def login_routes(router: RequestRouter) -> list[BaseRoute]:
    """/login, /logout and /welcome."""
    control = router.services.control

    async def login(request: Request) -> Response:
        context = {"next": local(request.query_params.get("next", ""))}
        return _page(router, request, "login.html", "Log in", **context)

    async def log_in(request: Request) -> Response:
        form = dict(await read_form(request, SMALL_FORM_BYTES))
        following = local(form.get("next", ""))
        try:
            opened = await control.open(request, form.get("name", ""), form.get("password", ""))
        except ControlApiError as refused:
            context = {"next": following, "typed": form.get("name", ""), "refused": refused}
            return _page(router, request, "login.html", "Log in", **context)
        return _entered(router.services, opened, following)

    async def log_out(request: Request) -> Response:
        form = dict(await read_form(request, SMALL_FORM_BYTES))
        cookie = request.cookies.get(router.services.cookie, "")
        if is_form_token(form.get("token", ""), cookie):
            await control.close(request)
        response = RedirectResponse(LOGIN, 303, PRIVATE)
        response.delete_cookie(router.services.cookie, path="/")
        return response

    async def welcome(request: Request) -> Response:
        return _page(router, request, "welcome.html", "Welcome to Modelyard")

    async def accept(request: Request) -> Response:
        form = dict(await read_form(request, SMALL_FORM_BYTES))
        name, code = form.get("name", ""), form.get("code", "")
        try:
            opened = await control.accept(request, code, name, form.get("password", ""))
        except ControlApiError as refused:
            context = {"typed": name, "code": code, "refused": refused}
            return _page(router, request, "welcome.html", "Welcome to Modelyard", **context)
        return _entered(router.services, opened, HOME)

    rows = (
        (LOGIN, login, "GET"),
        (LOGIN, log_in, "POST"),
        (LOGOUT, log_out, "POST"),
        (WELCOME, welcome, "GET"),
        (WELCOME, accept, "POST"),
    )
    return [Route(path, router.guarded(endpoint), methods=[verb]) for path, endpoint, verb in rows]


def _page(
    router: RequestRouter, request: Request, template: str, title: str, **context: Any
) -> Response:
    usual: dict[str, Any] = {"next": HOME, "typed": "", "code": "", "refused": None}
    told = {**usual, "theme": theme_of(request), **context}
    shown = ScreenContent(None, title=title, **told)
    refused: ControlApiError | None = told["refused"]
    status, headers = (refused.status, refused.headers) if refused else (200, {})
    kept = {name: value for name, value in headers.items() if name != "WWW-Authenticate"}
    return html(render(template, router.template_names(None, None, shown)), status, kept)


def _entered(services: ConsoleServices, opened: SessionCookie, following: str) -> Response:
    response = RedirectResponse(following, 303, PRIVATE)
    response.set_cookie(
        services.cookie,
        opened.cookie,
        max_age=opened.seconds,
        path="/",
        httponly=True,
        samesite="lax",
        secure=services.secure,
    )
    return response
