"""Who calls the OpenAI door, with what, and which version is to answer.

The gate at the porch lets these paths through, because the model stands in the body: here it is
asked who calls before the body is read, and whether they may once the model is known.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import uuid4

from starlette.requests import Request

from control.access.scopes import Action
from schedulers.errors import DeadlineExceeded
from server.access.credentials import authorization_in
from server.access.gate import public_name
from server.access.holder import Holder
from server.codec.json_text import load_document
from server.dataplane import DataPlane
from server.errors import InvalidRequest, ServingError, TooLarge
from server.rest.endpoint import read_body
from server.rest.envelope import Envelope, Headers, read_envelope
from server.rest.infer import Limits
from server.rest.openai_errors import BadField
from server.rest.routed import picked
from server.routing.table import Target
from server.served import Served

if TYPE_CHECKING:
    from schedulers.llm.language import Language

Made = TypeVar("Made")

REQUEST_ID = "x-request-id"
_GOOD_ID = re.compile(r"[\x21-\x7e]{1,128}")


class Caller(NamedTuple):
    """`model`: the name asked for; `members`: all of the body, for routes whose unit stands there.
    `request_id`: the client's, or one made here. `began_ns`: its head was there, `arrived_ns`: its
    body as well."""

    principal: str | None
    request_id: str
    model: str
    members: Mapping[str, Any]
    headers: Headers
    envelope: Envelope
    began_ns: int
    arrived_ns: int

    async def in_time(self, work: Awaitable[Made]) -> Made:
        """What `work` gives, within the time the client gave. Raises DeadlineExceeded."""
        timeout_ns = self.envelope.timeout_ns
        if not timeout_ns:
            return await work
        left_s = (self.arrived_ns + timeout_ns - time.monotonic_ns()) / 1e9
        try:
            async with asyncio.timeout(max(left_s, 0.0)):
                return await work
        except TimeoutError:
            raise DeadlineExceeded("the deadline passed before the prompt was read") from None


class Found(NamedTuple):
    """The version that is to answer, its text side, and the arm of a route that led to it."""

    served: Served
    language: "Language"
    target: Target | None


def request_id_of(request: Request) -> str:
    """The same whenever it is asked for."""
    known: str | None = request.scope.get("request_id")
    if known is None:
        given = request.headers.get(REQUEST_ID, "")
        known = given if _GOOD_ID.fullmatch(given) else f"req_{uuid4().hex}"
        request.scope["request_id"] = known
    return known


def recognise(dataplane: DataPlane, request: Request) -> Holder | None:
    """Whose token came with the request; it counts against its rate. Raises Unauthenticated,
    RateLimited."""
    gate = dataplane.gate
    if not gate.watches:
        return None
    holder = gate.recognise(authorization_in(request.scope["headers"]))
    if holder is not None:
        request.scope["principal"] = holder.principal.id
    gate.charge(holder)
    return holder


def authorise(dataplane: DataPlane, holder: Holder | None, model: str) -> None:
    """Raises Forbidden."""
    if holder is not None:
        name = public_name(model, dataplane.aliases)
        dataplane.gate.authorise(holder, Action.INFER, name)


async def admitted(dataplane: DataPlane, limits: Limits, request: Request) -> Caller:
    """Who asks for what. Raises ServingError."""
    began_ns = time.monotonic_ns()
    holder = recognise(dataplane, request)
    headers = request.scope["headers"]
    envelope = read_envelope(headers)
    body = await read_body(request, limits.body_bytes, "; use --http-max-input-size to raise it")
    members = _members(body, limits.json_depth)
    model = members.get("model")
    if not isinstance(model, str) or not model:
        raise BadField("you must provide a model; GET /v1/models lists them", "model")
    authorise(dataplane, holder, model)
    return Caller(
        request.scope.get("principal"),
        request_id_of(request),
        model,
        members,
        headers,
        envelope,
        began_ns,
        time.monotonic_ns(),
    )


def _members(body: bytes, depth: int) -> dict[str, Any]:
    try:
        return load_document(body, depth)
    except TooLarge:
        raise
    except ServingError as error:
        raise InvalidRequest(f"the body must be a JSON object: {error}") from None


def find(dataplane: DataPlane, request: Request, caller: Caller) -> Found:
    """Raises UnknownModel, NotReady, BadField for what is no language model."""
    route = dataplane.route_of(caller.model, "")
    target = None
    if route is not None:
        read = caller.members.get
        target = picked(dataplane, route, caller.headers, caller.principal, read)
    return find_again(dataplane, request, caller, target)


def find_again(
    dataplane: DataPlane, request: Request, caller: Caller, target: Target | None
) -> Found:
    """`find` for whom a route has picked already, in the turn in which they submit."""
    model = caller.model
    served = dataplane.find(model, "") if target is None else dataplane.find_target(target)
    if target is not None:
        request.scope["target"] = target.label
    request.scope["answering"] = (model, str(served.version.number))
    if served.language is None:
        raise BadField(
            f"the model '{model}' is no language model; ask it at /v2/models/{model}/infer",
            "model",
            "model_not_supported",
        )
    return Found(served, served.language, target)
