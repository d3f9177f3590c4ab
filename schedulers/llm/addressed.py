"""A request as its engine is to see it: who asks, how urgently, until when. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from schedulers.llm.asked import AskedTicket
from schedulers.llm.frames import Embed, Message, Submit, pack_request, pack_tokens
from schedulers.llm.generation import GenerateRequest
from schedulers.llm.request import NEVER
from schedulers.request import InferRequest


def asked_of(ticket: AskedTicket, names: Sequence[str]) -> Message:
    """What an engine is told, to answer a ticket by these names."""
    question = ticket.question
    if question.lists is not None:
        return Embed(names[0], tuple(map(pack_tokens, question.lists)))
    pairs = zip(question.requests, names, strict=True)
    return Submit(tuple(pack_request(_addressed(ticket.request, one, name)) for one, name in pairs))


def _addressed(request: InferRequest, asked: GenerateRequest, name: str) -> GenerateRequest:
    """`asked` under the name the engine knows it by. What is cached is shared by those only who
    have the same principal, and gave the same salt."""
    principal = request.principal or ""
    expires_ns = expiry_ns(request)
    return replace(
        asked,
        id=name,
        principal=principal,
        priority=asked.priority or request.priority,
        deadline_s=expires_ns / 1e9 if expires_ns else NEVER,
        salt=b"%b\0%b" % (principal.encode(), asked.salt),
    )


def expiry_ns(request: InferRequest) -> int:
    """When nobody wants the answer any more, on `time.monotonic_ns`; 0 for never."""
    own_ns = request.arrived_ns + request.timeout_us * 1000 if request.timeout_us else 0
    return min(own_ns, request.deadline_ns) or own_ns or request.deadline_ns
