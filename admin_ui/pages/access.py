"""Users, roles and tokens; one's own tokens for whoever is no administrator."""

import asyncio
import shlex
from typing import Any

from admin_ui.page_context import PageContext
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.services import ControlApiError
from admin_ui.tables import table
from admin_ui.text import link
from control.access.scopes import Action, Role

USER, TOKEN = "/access/users/{user}", "/access/tokens/{token}"
DAY_S = 86_400
LASTING = (("7", "7 days"), ("90", "90 days"), ("365", "a year"), ("0", "for ever (admins only)"))


async def load_all(context: PageContext) -> ScreenContent:
    admin = context.may(Action.ADMIN)
    users, tokens, models = await asyncio.gather(
        _users(context, admin), _tokens(context), _models(context)
    )
    user_keys = {
        "name": lambda row: row["name"],
        "role": lambda row: (row["role"], row["name"]),
        "created": lambda row: row["created_at"],
    }
    token_keys = {
        "name": lambda row: row["name"],
        "user": lambda row: (row["user"], row["name"]),
        "created": lambda row: row["created_at"],
        "used": lambda row: row["last_used_at"] or "",
    }
    return ScreenContent(
        {"users": users, "tokens": tokens},
        users=table(context, users, user_keys, "name", lambda row: row["name"], "users."),
        tokens=table(context, tokens, token_keys, "-created", _token_text, "tokens."),
        admin=admin,
        roles=[str(role) for role in Role],
        lasting=LASTING,
        names=[one["name"] for one in users] or [context.person],
        models=models,
        open_to_all=_is_open(context),
    )


async def load_user(context: PageContext) -> ScreenContent:
    name = context.path["user"]
    user, tokens = await asyncio.gather(
        context.get("/users/{user}", user=name), _tokens(context, name)
    )
    act = {what: link(f"{USER}/{what}", user=name) for what in ("role", "password", "disable")}
    roles = [str(role) for role in Role]
    return ScreenContent(user, title=name, user=user, tokens=tokens, acts=act, roles=roles)


async def load_token(context: PageContext) -> ScreenContent:
    wanted = context.path["token"]
    found = next((one for one in await _tokens(context) if one["id"] == wanted), None)
    if found is None:
        raise ControlApiError(
            404, "not_found", f"there is no token {wanted[:80]}, or it is not yours"
        )
    revoke = link(TOKEN + "/revoke", token=wanted)
    return ScreenContent(found, title=found["name"], held=found, revoke=revoke)


async def create_user(context: PageContext) -> str:
    form = context.form
    body = {"name": form.get("name", "").strip(), "role": form.get("role", "viewer")}
    if form.get("password"):
        body["password"] = form["password"]
    await context.change("POST", "/users", body)
    return "/access"


async def change_role(context: PageContext) -> str:
    return await _change(context, {"role": context.form.get("role", "")})


async def change_password(context: PageContext) -> str:
    given: dict[str, Any] = {"password": context.form.get("password", "")}
    if context.form.get("current"):
        given["current_password"] = context.form["current"]
    return await _change(context, given)


async def disable(context: PageContext) -> str:
    return await _change(context, {"disabled": context.form.get("disabled") == "yes"})


async def _change(context: PageContext, body: dict[str, Any]) -> str:
    name = context.path["user"]
    await context.change("PATCH", "/users/{user}", body, user=name)
    return link(USER, user=name)


async def create_token(context: PageContext) -> ScreenContent:
    """Shown at once, and only now."""
    form = context.form
    body: dict[str, Any] = {
        "name": form.get("name", "").strip(),
        "scopes": [
            *(f"infer:{one}" for one in context.several("infer")),
            *form.get("scopes", "").split(),
        ],
        "expires_in_s": int(form["days"]) * DAY_S if form.get("days", "").isdigit() else None,
    }
    if form.get("user") and context.may(Action.ADMIN):
        body["user"] = form["user"]
    if not body["scopes"]:
        wrong = "choose a model to infer with, or give another scope"
        raise ControlApiError(422, "invalid", wrong, "scopes")
    if not body["name"]:
        raise ControlApiError(422, "invalid", "a token needs a name", "name")
    made = (await context.change("POST", "/tokens", body)).document
    server = await context.get("/server")
    return ScreenContent(
        made,
        title="New token",
        made=made["token"],
        text=made["text"],
        git_url=server["git_url"],
        infer_call=_infer_call(context),
        open_to_all=_is_open(context),
    )


def _infer_call(context: PageContext) -> str:
    """The call of the first model that the token may infer with; "" for none."""
    chosen = context.several("infer")
    if not chosen:
        return ""
    gateway = context.services.gateway
    url = gateway.url if gateway else "http://127.0.0.1:8000"
    path = link("/v2/models/{model}", model="MODEL" if chosen[0] == "*" else chosen[0])
    return f'curl -H "Authorization: Bearer $MODELYARD_TOKEN" {shlex.quote(url + path)}'


def _is_open(context: PageContext) -> bool:
    """Whether the gateway answers without a token."""
    return context.services.gateway is not None and not context.services.gateway.wants_token


async def _models(context: PageContext) -> list[str]:
    """All that are known, and the routes: a token is asked for by the name of either."""
    models, loads, routes = await asyncio.gather(
        context.every("/models"), context.every("/loads"), context.every("/routes")
    )
    names = {one["name"] for one in (*models, *routes)} | {row["model"] for row in loads}
    return sorted(name for name in names if context.may(Action.INFER, name))


async def revoke(context: PageContext) -> str:
    await context.change("DELETE", "/tokens/{token}", token=context.path["token"])
    return "/access"


async def revoke_named(context: PageContext) -> str:
    """After the token's name was typed."""
    shown = await load_token(context)
    name = shown.twin["name"]
    if context.form.get("confirm", "").strip() != name:
        raise ControlApiError(422, "invalid", f"type {name} here to go on", "confirm")
    return await revoke(context)


async def _users(context: PageContext, admin: bool) -> list[Any]:
    return await context.every("/users") if admin else []


async def _tokens(context: PageContext, user: str = "") -> list[Any]:
    """All for an admin, one's own for others; none for a token, which may see none."""
    try:
        return await context.every("/tokens", {"user": user} if user else {})
    except ControlApiError as refused:
        if refused.status in (403, 422):
            return []
        raise


def _token_text(row: Any) -> str:
    return " ".join((row["name"], row["user"], row["hint"], *row["scopes"]))


SCREENS = (
    Screen(
        path="/access",
        title="Access",
        menu="Access",
        docs="security",
        template="access.html",
        load=load_all,
        live=("user.*", "token.*"),
        personal=True,
    ),
    Screen(path=USER, title="User", template="user.html", load=load_user, under="/access"),
    Screen(path=TOKEN, title="Token", template="token.html", load=load_token, under="/access"),
)
ACTS = (
    FormAction(path="/access/users", screen="/access", run=create_user),
    FormAction(
        path="/access/tokens", screen="/access", run=create_token, template="new_token.html"
    ),
    FormAction(path=USER + "/role", screen=USER, run=change_role),
    FormAction(path=USER + "/password", screen=USER, run=change_password),
    FormAction(path=USER + "/disable", screen=USER, run=disable, typed_name="user"),
    FormAction(path=TOKEN + "/revoke", screen=TOKEN, run=revoke_named),
)
