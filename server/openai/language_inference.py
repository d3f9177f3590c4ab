"""Who calls the OpenAI front end, with what, which version is to answer, and the reply to come.

The model stands in the body: `server.rest.middleware` refuses by the head whom no model would
answer, and here it is asked whether they may use the one that is named.
"""

import asyncio
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from starlette.requests import Request

from control.access.scopes import id_of
from schedulers.errors import DeadlineExceeded
from schedulers.reply import Reply
from schedulers.request import NO_PARAMETERS, InferResponse
from server.access.token_holder import TokenHolder
from server.codec.forwarding import HeaderForwarding
from server.codec.json_text import load_document
from server.codec.output_format import InferBody
from server.dataplane import DataPlane
from server.errors import (
    Forbidden,
    InvalidRequest,
    ModelLoading,
    NotReady,
    RequestTooLarge,
    ServingError,
)
from server.rest.endpoint import BodyLimits, read_body
from server.rest.envelope import read_envelope
from server.rest.http_inference import HttpInference
from server.rest.openai_errors import BadField, not_ready_yet
from server.rest.request_ids import number_of, request_id_of
from server.served_version import ServedVersion
from server.trace.record import Trace, following

if TYPE_CHECKING:
    from schedulers.llm.gateway.language import Language

Made = TypeVar("Made")


class LanguageInference(HttpInference):
    """A request to a language model. `members`: the body, for routes whose unit stands there,
    until its `document` is read. `request_id`: the client's, or one made here. `most_urgent`: the
    smallest priority it may ask for. `asks`: the parameters of what is submitted, once the prompts
    are tokens."""

    __slots__ = ("_scope", "asks", "envelope", "members", "most_urgent", "request_id")

    def __init__(
        self, request: Request, began_ns: int, forwarding: HeaderForwarding | None = None
    ) -> None:
        """Raises what `read_envelope` does."""
        self._scope = scope = request.scope
        holder = recognised(request)
        super().__init__("", "", forwarding)
        self.headers = scope["headers"]
        self.began_ns = began_ns
        self.holder = holder
        self.principal = scope.get("principal")
        self.most_urgent = 0 if holder is None else holder.most_urgent
        self.envelope = read_envelope(self.headers)
        self.number = number_of(scope)
        self.request_id = request_id_of(scope)
        self.members: dict[str, Any] = {}
        self.asks: Mapping[str, Any] = NO_PARAMETERS

    def read(self, body: bytes, depth: int) -> None:
        """Raises BadField, InvalidRequest, RequestTooLarge."""
        self.members = members = _members(body, depth)
        model = members.get("model")
        if not isinstance(model, str) or not model:
            raise BadField("you must provide a model; GET /v1/models lists them", "model")
        self.model = model
        self.arrived(time.monotonic_ns(), self.envelope)

    def parameter(self, name: str) -> object:
        return self.members.get(name)

    def decode(self, served: ServedVersion) -> InferBody:
        return InferBody(self.request_id, {}, 1, None, parameters=self.asks)

    def note(self, served: ServedVersion) -> None:
        """Let the access log know who answers."""
        if self.target is not None:
            self._scope["target"] = self.arm
        self._scope["answering"] = (self.model, str(served.version.number))

    def document(self) -> dict[str, Any]:
        """The body, once: a request under way keeps nothing of it that nobody reads, such as 60 MB
        of `metadata`."""
        document, self.members = self.members, {}
        return document

    def refuse_urgency(self, priority: int) -> None:
        """Raises Forbidden for a request that would pass by those of everybody."""
        if priority < self.most_urgent:
            who = id_of(self.principal) or "a request without a token"
            raise Forbidden(
                f"priority is {priority}; {who} may ask for {self.most_urgent} and above. "
                f"The scope priority:{priority} lets a token of an operator ask for it"
            )

    async def in_time(self, work: Awaitable[Made]) -> Made:
        """What `work` gives, within the time the client gave. Raises DeadlineExceeded."""
        if not self.deadline_ns:
            return await work
        left_s = (self.deadline_ns - time.monotonic_ns()) / 1e9
        try:
            async with asyncio.timeout(max(left_s, 0.0)):
                return await work
        except TimeoutError:
            raise DeadlineExceeded("the deadline passed before the prompt was read") from None


class ResolvedModel(NamedTuple):
    """The version that is to answer, and its text side."""

    served: ServedVersion
    language: "Language"


@dataclass(frozen=True, slots=True)
class PendingReply:
    """A reply to come, and its trace if there is one; `about` names the request in the log."""

    reply: Reply
    trace: Trace | None
    about: str

    def note(self, response: InferResponse) -> None:
        """A response has come."""
        if self.trace is not None:
            self.trace.answered(response)

    async def only(self) -> InferResponse:
        """The only response there is."""
        response = await self.reply.one()
        self.note(response)
        return response

    async def finished(self, reading: Awaitable[Made]) -> Made:
        """What is read of the reply, noted in the trace as one answer."""
        with following(self.trace):
            read = await reading
            if self.trace is not None:
                self.trace.sending()
        return read


def recognised(request: Request) -> TokenHolder | None:
    """Whose token came with the request, as `server.rest.middleware.AuthorizationMiddleware` found
    when its head was there; None for anybody."""
    holder: TokenHolder | None = request.scope.get("holder")
    return holder


async def received(
    request: Request, limits: BodyLimits, forwarding: HeaderForwarding | None = None
) -> LanguageInference:
    """Who asks for what. Raises ServingError."""
    caller = LanguageInference(request, time.monotonic_ns(), forwarding)
    body = await read_body(request, limits.body_bytes, "; use --http-max-input-size to raise it")
    caller.read(body, limits.json_depth)
    return caller


def _members(body: bytes, depth: int) -> dict[str, Any]:
    try:
        return load_document(body, depth)
    except RequestTooLarge:
        raise
    except ServingError as error:
        raise InvalidRequest(f"the body must be a JSON object: {error}") from None


def find(dataplane: DataPlane, caller: LanguageInference) -> ResolvedModel:
    """Who answers, by the first half of the data plane's walk; asked again, in the turn in which it
    is submitted, the version that stands behind the same arm then.

    Raises Forbidden, UnknownModel, NotReady, BadField for what is no language model.
    """
    try:
        served = dataplane.find_for(caller)
    except (ModelLoading, NotReady) as error:
        raise not_ready_yet(caller.model, error) from error
    caller.note(served)
    if served.language is None:
        raise BadField(
            f"the model '{caller.model}' is no language model; ask it at "
            f"/v2/models/{caller.model}/infer",
            "model",
            "model_not_supported",
        )
    return ResolvedModel(served, served.language)


def submit(
    dataplane: DataPlane, caller: LanguageInference, found: ResolvedModel, asks: Mapping[str, Any]
) -> PendingReply:
    """The second half of the data plane's walk. Raises what `DataPlane.submit` does."""
    caller.asks = asks
    try:
        reply = dataplane.submit(caller, found.served)
    finally:
        caller.asks = NO_PARAMETERS  # the prompts are the scheduler's now
    about = f"request '{caller.request_id}' to model '{found.served.version.name}'"
    return PendingReply(reply, caller.trace, about)
