"""Who calls the OpenAI door, with what, which version is to answer, and the reply to come.

The model stands in the body: `server.rest.porch` refuses by the head whom no model would answer,
and here it is asked whether they may use the one that is named.
"""

import asyncio
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from starlette.requests import Request

from schedulers.errors import DeadlineExceeded
from schedulers.reply import Reply
from schedulers.request import NO_PARAMETERS, InferResponse
from server.access.holder import Holder
from server.codec.form import InferBody
from server.codec.forwarding import Forwarding
from server.codec.json_text import load_document
from server.dataplane import DataPlane
from server.errors import (
    Forbidden,
    InvalidRequest,
    ModelLoading,
    NotReady,
    ServingError,
    TooLarge,
)
from server.openai.fields import Fields
from server.rest.endpoint import Limits, read_body
from server.rest.envelope import read_envelope
from server.rest.http_inference import HttpInference
from server.rest.openai_errors import BadField, not_ready_yet
from server.rest.request_ids import request_id_of
from server.served import Served
from server.trace.record import Trace, following

if TYPE_CHECKING:
    from schedulers.llm.language import Language

Made = TypeVar("Made")


class Caller(HttpInference):
    """A request to a language model. `members`: the body, for routes whose unit stands there,
    until its `fields` are read. `request_id`: the client's, or one made here. `most_urgent`: the
    smallest priority it may ask for. `asks`: the parameters of what is submitted, once the prompts
    are tokens."""

    __slots__ = ("_scope", "asks", "envelope", "members", "most_urgent", "request_id")

    def __init__(
        self, request: Request, began_ns: int, forwarding: Forwarding | None = None
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
        self.request_id = request_id_of(scope)
        self.members: dict[str, Any] = {}
        self.asks: Mapping[str, Any] = NO_PARAMETERS

    def read(self, body: bytes, depth: int) -> None:
        """Raises BadField, InvalidRequest, TooLarge."""
        self.members = members = _members(body, depth)
        model = members.get("model")
        if not isinstance(model, str) or not model:
            raise BadField("you must provide a model; GET /v1/models lists them", "model")
        self.model = model
        self.arrived(time.monotonic_ns(), self.envelope)

    def parameter(self, name: str) -> object:
        return self.members.get(name)

    def decode(self, served: Served) -> InferBody:
        return InferBody(self.request_id, {}, 1, None, parameters=self.asks)

    def note(self, served: Served) -> None:
        """Let the access log know who answers."""
        if self.target is not None:
            self._scope["target"] = self.arm
        self._scope["answering"] = (self.model, str(served.version.number))

    def fields(self) -> Fields:
        """The body, once: a request under way keeps nothing of it that nobody reads, such as 60 MB
        of `metadata`."""
        fields = Fields(self.members)
        self.members.clear()
        return fields

    def refuse_urgency(self, priority: int) -> None:
        """Raises Forbidden for a request that would pass by those of everybody."""
        if priority < self.most_urgent:
            raise Forbidden(
                f"priority is {priority}; {self.principal or 'a request without a token'} may ask "
                f"for {self.most_urgent} and above. The scope priority:{priority} lets a token of "
                "an operator ask for it"
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


class Found(NamedTuple):
    """The version that is to answer, and its text side."""

    served: Served
    language: "Language"


@dataclass(frozen=True, slots=True)
class Work:
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


def recognised(request: Request) -> Holder | None:
    """Whose token came with the request, as `server.rest.porch.GatedApp` found when its head was
    there; None for anybody."""
    holder: Holder | None = request.scope.get("holder")
    return holder


async def received(
    request: Request, limits: Limits, forwarding: Forwarding | None = None
) -> Caller:
    """Who asks for what. Raises ServingError."""
    caller = Caller(request, time.monotonic_ns(), forwarding)
    body = await read_body(request, limits.body_bytes, "; use --http-max-input-size to raise it")
    caller.read(body, limits.json_depth)
    return caller


def _members(body: bytes, depth: int) -> dict[str, Any]:
    try:
        return load_document(body, depth)
    except TooLarge:
        raise
    except ServingError as error:
        raise InvalidRequest(f"the body must be a JSON object: {error}") from None


def find(dataplane: DataPlane, caller: Caller) -> Found:
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
    return Found(served, served.language)


def submit(dataplane: DataPlane, caller: Caller, found: Found, asks: Mapping[str, Any]) -> Work:
    """The second half of the data plane's walk. Raises what `DataPlane.submit` does."""
    caller.asks = asks
    try:
        reply = dataplane.submit(caller, found.served)
    finally:
        caller.asks = NO_PARAMETERS  # the prompts are the scheduler's now
    about = f"request '{caller.request_id}' to model '{found.served.version.name}'"
    return Work(reply, caller.trace, about)
