"""How pages ask the gateway about a model and with it: as whoever looks, for what they chose."""

import asyncio
from collections.abc import AsyncIterator

from admin_ui.page_context import PageContext
from admin_ui.playground_tokens import PlaygroundTokenCache
from admin_ui.services import ControlApiError, GatewayClient, GatewayResponse
from control.access.scopes import Action, why_not

TRIES, AGAIN_S = 20, 0.1

_passes = PlaygroundTokenCache()


async def send_request(
    context: PageContext,
    label: str,
    verb: str,
    path: str,
    body: bytes = b"",
    content_type: str = "application/json",
) -> GatewayResponse:
    """As whoever looks: with their token, or with a pass where the gateway wants one. Raises
    ControlApiError for who may not infer with the model that is asked."""
    gateway, headers = gateway_for(context, label), await _credentials(context, label)
    headers["Content-Type"] = content_type
    for _ in range(TRIES):  # a pass that was just made reaches the gateway in some ms
        answer = await gateway.ask(verb, path, body, headers)
        if answer.status != 401 or not _by_pass(context, gateway):
            return answer
        await asyncio.sleep(AGAIN_S)
    _passes.forget(context, label.partition("@")[0])
    return answer


async def streamed(
    context: PageContext, label: str, path: str, body: bytes, field: str = "message"
) -> AsyncIterator[bytes]:
    """As `asked`, the answer as it comes. Raises ControlApiError with what the gateway refuses,
    beside `field`."""
    gateway, headers = gateway_for(context, label), await _credentials(context, label)
    for _ in range(TRIES):
        status, pieces = await gateway.stream(path, body, headers)
        if status == 200:
            return pieces
        said = b"".join([piece async for piece in pieces])[:2000].decode(errors="replace")
        if status != 401 or not _by_pass(context, gateway):
            break
        await asyncio.sleep(AGAIN_S)
    raise ControlApiError(422, "invalid", f"HTTP {status}: {said}", field)


async def _credentials(context: PageContext, label: str) -> dict[str, str]:
    headers = _headers(context)
    if not _by_pass(context, gateway_for(context, label)):
        return headers
    text = await _passes.find(context, label.partition("@")[0])
    return {**headers, "Authorization": f"Bearer {text}"} if text else headers


def _by_pass(context: PageContext, gateway: GatewayClient) -> bool:
    return gateway.wants_token and not context.form.get("access", "").strip()


async def resolve_target(context: PageContext, target: str) -> tuple[str, str]:
    """(the model as clients name it, the path's part for a version). Raises ControlApiError."""
    name = context.path["model"]
    kind, _, value = target.partition(":")
    if kind == "arm":
        route = await context.get("/routes/{route}", route=name)
        arms = {one["name"]: one for one in route["arms"]}
        if value not in arms:
            raise ControlApiError(422, "invalid", f"the route has no arm '{value[:80]}'", "target")
        name = arms[value]["model"]
        kind = "alias" if arms[value]["alias"] else "version"
        value = str(arms[value][kind])
    if kind == "alias" and value:
        return f"{name}@{value}", ""
    if kind == "version" and value.isascii() and value.isdigit():
        return name, f"/versions/{value}"
    if target:
        raise ControlApiError(
            422, "invalid", f"'{target[:80]}' is nothing that could answer", "target"
        )
    return name, ""


def gateway_for(context: PageContext, label: str) -> GatewayClient:
    """Raises ControlApiError for who may not infer, and where there is no way to the gateway."""
    name = label.partition("@")[0]  # an arm may be another model
    if not context.may(Action.INFER, name):
        raise ControlApiError(403, "forbidden", why_not(context.principal, Action.INFER, name))
    if problem := problem_of(context):
        raise ControlApiError(503, "unavailable", problem)
    assert context.services.gateway is not None
    return context.services.gateway


def problem_of(context: PageContext) -> str:
    gateway = context.services.gateway
    return gateway.problem if gateway else "no gateway is connected to try models with"


def _headers(context: PageContext) -> dict[str, str]:
    """Raises ControlApiError for a token no header can carry."""
    found = {"Content-Type": "application/json"}
    if access := context.form.get("access", "").strip():
        if not (access.isascii() and access.isprintable() and len(access) <= 512):
            raise ControlApiError(422, "invalid", "this is not a token of this server", "access")
        found["Authorization"] = f"Bearer {access}"
    if user := context.form.get("unit_header", "").strip():
        name, colon, value = user.partition(":")
        fine = colon and user.isascii() and user.isprintable() and len(user) <= 300
        if not (fine and name.strip().replace("-", "").replace("_", "").isalnum()):
            raise ControlApiError(422, "invalid", "a header is NAME: VALUE", "unit_header")
        if name.strip().lower() not in ("host", "content-length", "transfer-encoding"):
            found[name.strip()] = value.strip()
    return found
