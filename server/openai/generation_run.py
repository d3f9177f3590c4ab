"""From tokens to answers: requests submitted, their outputs taken in, answers written, whole or as
server-sent events.

A stream's head is written with the first piece, so that whoever is refused before it gets a status.
What a client has not read stays in the model's Reply, whose length its scheduler bounds.
"""

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from schedulers.errors import Cancelled
from schedulers.llm.errors import SenselessRequest
from schedulers.llm.generation import GENERATE, OUTPUT, GenerateRequest, GenerationOutput
from schedulers.request import InferResponse
from server.dataplane import DataPlane
from server.openai.answers.choice_encoders import (
    ChoiceEncoder,
    ChunkChoice,
    CompletionDocument,
    DocumentHeader,
    whole,
)
from server.openai.answers.completion_choice import CompletionChoice, CompletionUsage, usage
from server.openai.answers.score_limit import LogprobLimit
from server.openai.bodies.options import GenerationOptions
from server.openai.language_inference import LanguageInference, PendingReply, ResolvedModel, submit
from server.openai.prompt_limits import refuse_beyond_context, refuse_unknown_tokens
from server.rest.compression import elsewhere
from server.rest.endpoint import struct_response
from server.rest.generate import EVENT_HEADERS, cancelled_on_hang_up
from server.rest.http_inference import arm_headers
from server.rest.openai_errors import BadField, OpenAIErrorResponse, refusal
from server.trace.record import following

if TYPE_CHECKING:
    from schedulers.llm.gateway.language import Language

_BRIEF_SCORES = 1024
_DONE = b"data: [DONE]\n\n"
_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class GenerationSpec:
    """Prompts to answer. `prefix`: of the answer's id. `field`: the body's, which the prompts came
    from. `scored`: how many likeliest tokens to tell of for each prompt token. `silent`: nothing
    is to be said."""

    prefix: str
    field: str
    options: GenerationOptions
    prompts: Sequence[tuple[int, ...]]
    scored: int | None
    silent: bool = False


async def generate(
    dataplane: DataPlane,
    caller: LanguageInference,
    found: ResolvedModel,
    request: Request,
    spec: GenerationSpec,
    form: ChoiceEncoder,
) -> Response:
    """Submits before it first waits. Raises BadField and what `DataPlane.submit` does."""
    options = spec.options.with_defaults(found.language.defaults)
    caller.refuse_urgency(options.priority)
    _refuse_senseless(caller, found.language, spec, options)
    answers = [
        CompletionChoice(prompt, spec.silent, keeps_scores=not options.stream)
        for prompt in spec.prompts
        for _ in range(options.count)
    ]
    limit = LogprobLimit(spec.prompts, options, spec.scored)
    limit.check()
    requests = requests_for(answers, options, found.language, spec.scored)
    work = submit(dataplane, caller, found, _parameters(requests, options.priority))
    del requests  # they are the scheduler's now
    head = _head(spec.prefix, caller, found)
    named = arm_headers(caller.target)
    if options.stream:
        return CompletionEventStream(work, ChunkEncoder(form, head, options, answers), named)
    async with cancelled_on_hang_up(request.receive, work.reply):
        await work.finished(_read_all(work, answers, options, limit))
    response = await _written(partial(whole, form, head, answers, options.count), answers)
    response.headers.update(named)
    return response


def _refuse_senseless(
    caller: LanguageInference,
    language: "Language",
    spec: GenerationSpec,
    options: GenerationOptions,
) -> None:
    if not language.generates:
        raise BadField(
            f"the model '{caller.model}' computes embeddings and generates no text",
            "model",
            "model_not_supported",
        )
    for prompt in spec.prompts:
        refuse_beyond_context(language, len(prompt), options.max_tokens, spec.field)
        refuse_unknown_tokens(language, prompt, spec.field)
    if options.stop_ids:
        refuse_unknown_tokens(language, options.stop_ids, "stop_token_ids")
    if biased := tuple(token for token, _ in options.sampling.logit_bias):
        refuse_unknown_tokens(language, biased, "logit_bias")


def requests_for(
    answers: Sequence[CompletionChoice],
    options: GenerationOptions,
    language: "Language",
    scored: int | None,
) -> tuple[GenerateRequest, ...]:
    """One for each answer. `scored`: how many likeliest tokens to tell of for each prompt token."""
    return tuple(
        GenerateRequest(
            id=str(number),
            prompt=answer.prompt,
            max_tokens=options.tokens_for(language.context - len(answer.prompt)),
            sampling=options.sampling,
            stop=options.stop,
            stop_ids=options.stop_ids,
            min_tokens=options.min_tokens,
            ignore_end=options.ignore_end,
            seed=options.seed_of(number % options.count),
            prompt_logprobs=scored,
            skip_special=options.skip_special,
            grammar=None if options.shape is None else options.shape.grammar,
            shown=options.shown,
        )
        for number, answer in enumerate(answers)
    )


def _parameters(requests: tuple[GenerateRequest, ...], priority: int) -> dict[str, Any]:
    parameters: dict[str, Any] = {GENERATE: requests}
    if priority:
        parameters["priority"] = priority
    return parameters


def _head(prefix: str, caller: LanguageInference, found: ResolvedModel) -> DocumentHeader:
    version = found.served.version
    return DocumentHeader(
        id=f"{prefix}-{uuid4().hex}",
        model=caller.model,
        created=int(time.time()),
        fingerprint=f"{version.name}-{version.number}",
    )


async def _written(
    document: Callable[[], CompletionDocument], answers: Sequence[CompletionChoice]
) -> Response:
    """Many answers with log-probabilities are written beside the loop: half a million took 1 s."""
    if sum(len(answer.scores) for answer in answers) <= _BRIEF_SCORES:
        return struct_response(document())
    return await elsewhere(lambda: struct_response(document()))


async def _read_all(
    work: PendingReply,
    answers: Sequence[CompletionChoice],
    options: GenerationOptions,
    limit: LogprobLimit,
) -> None:
    try:
        async for response in work.reply:
            work.note(response)
            limit.add(output_of(response, answers)[1])
    except Exception as error:
        raise in_the_clients_words(error, options) from error


@dataclass(frozen=True, slots=True)
class ChunkEncoder:
    """Makes documents of what a reply brings. `answers`: as they come."""

    form: ChoiceEncoder
    head: DocumentHeader
    options: GenerationOptions
    answers: Sequence[CompletionChoice]

    def of(self, response: InferResponse) -> bytes:
        """The events of one response; often none."""
        index, output = output_of(response, self.answers)
        answer = self.answers[index]
        counts = self._counts()
        return b"".join(
            self._event([choice], counts) for choice in self._choices(index, answer, output)
        )

    def end(self) -> bytes:
        """What follows the last answer."""
        if not self.options.usage:
            return _DONE
        return self._event([], usage(self.answers, self.options.count)) + _DONE

    def _choices(
        self, index: int, answer: CompletionChoice, output: GenerationOutput
    ) -> list[ChunkChoice]:
        found: list[ChunkChoice] = []
        if answer.begun and not answer.opened:
            answer.opened = True
            found += self.form.opening(index, answer)
        found += self.form.pieces(index, answer, output)
        return found

    def _counts(self) -> CompletionUsage | UnsetType | None:
        """Of a chunk that is not the last; null where only the last one has them."""
        if not self.options.usage:
            return UNSET
        return usage(self.answers, self.options.count) if self.options.running_usage else None

    def _event(
        self, choices: Sequence[ChunkChoice], counts: CompletionUsage | UnsetType | None
    ) -> bytes:
        document = self.head.document(self.form.chunk, choices, counts)
        return b"data: %b\n\n" % _encoder.encode(document)


class CompletionEventStream(Response):
    """A reply as events. An error before the first one is answered with its own status; one after
    it is an event."""

    media_type = "text/event-stream; charset=utf-8"

    def __init__(self, work: PendingReply, pieces: ChunkEncoder, named: Mapping[str, str]) -> None:
        self._work = work
        self._pieces = pieces
        self.raw_headers = [(name.encode(), value.encode()) for name, value in named.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = self._work.reply
        async with cancelled_on_hang_up(receive, reply):
            with following(self._work.trace):
                await self._send(send)

    async def _send(self, send: Send) -> None:
        started, trace = False, self._work.trace
        async for piece in self._read():
            if not started:
                await send(self._start(piece))
                started = True
            body = piece.body if isinstance(piece, OpenAIErrorResponse) else piece
            if trace is not None:
                trace.sending()
            await send({"type": "http.response.body", "body": body, "more_body": True})
            if trace is not None:
                trace.sent()
            if isinstance(piece, OpenAIErrorResponse):
                break
        if not started:
            await send(self._start(b""))
        await send({"type": "http.response.body", "body": b""})

    async def _read(self) -> AsyncIterator[bytes | OpenAIErrorResponse]:
        """Events; or first of all a refusal, and then nothing more."""
        begun = False
        try:
            async for events in events_of(self._work, self._pieces):
                if events:
                    begun = True
                    yield events
            yield self._pieces.end()
        except Cancelled as error:  # the client has disconnected: nobody reads on
            if self._work.trace is not None:
                self._work.trace.failed(error)
        except Exception as error:  # noqa: BLE001 - the boundary: refusal() logs what is our fault
            if self._work.trace is not None:
                self._work.trace.failed(error)
            refused = refusal(in_the_clients_words(error, self._pieces.options), self._work.about)
            yield b"data: %b\n\n%b" % (refused.body, _DONE) if begun else refused

    def _start(self, first: bytes | OpenAIErrorResponse) -> dict[str, Any]:
        kind, status, more = self.media_type.encode(), 200, [*EVENT_HEADERS]
        if isinstance(first, OpenAIErrorResponse):
            kind, status, more = b"application/json", first.status, list(first.headers)
            more.append((b"content-length", b"%d" % len(first.body)))
        headers = [(b"content-type", kind), *more, *self.raw_headers]
        return {"type": "http.response.start", "status": status, "headers": headers}


async def events_of(work: PendingReply, pieces: ChunkEncoder) -> AsyncIterator[bytes]:
    """What has come by the time it is read goes out in one write."""
    async for response in work.reply:
        work.note(response)
        events = [pieces.of(response)]
        while work.reply.unread is not None:
            more = await anext(work.reply)
            work.note(more)
            events.append(pieces.of(more))
        yield b"".join(events)


def output_of(
    response: InferResponse, answers: Sequence[CompletionChoice]
) -> tuple[int, GenerationOutput]:
    """The output in a response, which its answer has taken in."""
    index, output = response.parameters[OUTPUT]
    answers[index].add(output)
    return index, output


def in_the_clients_words(error: Exception, options: GenerationOptions) -> Exception:
    """What the engine finds senseless after it has taken the request in is its grammar."""
    if isinstance(error, SenselessRequest) and options.shape is not None:
        return BadField(str(error), options.shape.field, "invalid_grammar")
    return error
