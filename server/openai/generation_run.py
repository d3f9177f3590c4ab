"""From tokens to answers: the requests submitted, their outputs heard, the documents written."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response

from schedulers.llm.generation import GENERATE, GenerateRequest
from server.dataplane import DataPlane
from server.openai.choice_encoders import ChoiceEncoder, CompletionDocument, DocumentHeader, whole
from server.openai.completion_choice import CompletionChoice
from server.openai.language_inference import LanguageInference, PendingReply, ResolvedModel, submit
from server.openai.options import GenerationOptions
from server.openai.prompt_tokeniser import refuse_beyond_context, refuse_unknown_tokens
from server.openai.score_limit import LogprobLimit
from server.openai.stream import (
    ChunkEncoder,
    CompletionEventStream,
    in_the_clients_words,
    output_of,
)
from server.rest.compression import elsewhere
from server.rest.endpoint import struct_response
from server.rest.generate import cancelled_on_hang_up
from server.rest.http_inference import arm_headers
from server.rest.openai_errors import BadField

if TYPE_CHECKING:
    from schedulers.llm.language import Language

_BRIEF_SCORES = 1024


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
    asked: GenerationSpec,
    form: ChoiceEncoder,
) -> Response:
    """Submits before it first waits. Raises BadField and what `DataPlane.submit` does."""
    options = asked.options.with_defaults(found.language.defaults)
    caller.refuse_urgency(options.priority)
    _refuse_senseless(caller, found.language, asked, options)
    answers = [
        CompletionChoice(prompt, asked.silent, keeps_scores=not options.stream)
        for prompt in asked.prompts
        for _ in range(options.count)
    ]
    limit = LogprobLimit(asked.prompts, options, asked.scored)
    limit.check()
    requests = requests_for(answers, options, found.language, asked.scored)
    work = submit(dataplane, caller, found, _parameters(requests, options.priority))
    del requests  # they are the scheduler's now
    head = _head(asked.prefix, caller, found)
    named = arm_headers(caller.target)
    if options.stream:
        return CompletionEventStream(work, ChunkEncoder(form, head, options, answers), named)
    async with cancelled_on_hang_up(request.receive, work.reply):
        await work.finished(_hear_all(work, answers, options, limit))
    response = await _written(partial(whole, form, head, answers, options.count), answers)
    response.headers.update(named)
    return response


def _refuse_senseless(
    caller: LanguageInference,
    language: "Language",
    asked: GenerationSpec,
    options: GenerationOptions,
) -> None:
    if not language.generates:
        raise BadField(
            f"the model '{caller.model}' computes embeddings and generates no text",
            "model",
            "model_not_supported",
        )
    for prompt in asked.prompts:
        refuse_beyond_context(language, len(prompt), options.max_tokens, asked.field)
        refuse_unknown_tokens(language, prompt, asked.field)
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


async def _hear_all(
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
