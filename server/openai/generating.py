"""From tokens to answers: the requests submitted, their outputs heard, the documents written."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response

from server.dataplane import DataPlane
from server.openai.answer import Answer
from server.openai.caller import Caller, Found
from server.openai.forms import Form, Head, Json, whole
from server.openai.options import Options
from server.openai.score_limit import ScoreLimit
from server.openai.stream import Events, Pieces, heard
from server.openai.texts import refuse_beyond_context, refuse_unknown_tokens
from server.openai.work import Work, generating, in_the_clients_words, requests_for, submit
from server.rest.compression import elsewhere
from server.rest.endpoint import json_response
from server.rest.generate import cancelled_on_hang_up
from server.rest.http_inference import arm_headers
from server.rest.openai_errors import BadField

_BRIEF_SCORES = 1024


@dataclass(frozen=True, slots=True)
class Asked:
    """Prompts to answer. `prefix`: of the answer's id. `field`: the body's, which the prompts came
    from. `scored`: how many likeliest tokens to tell of for each prompt token. `silent`: nothing
    is to be said."""

    prefix: str
    field: str
    options: Options
    prompts: Sequence[tuple[int, ...]]
    scored: int | None
    silent: bool = False


class Generating:
    """One request to one version."""

    def __init__(self, dataplane: DataPlane, caller: Caller, found: Found) -> None:
        self._dataplane = dataplane
        self._caller = caller
        self._found = found

    async def answer(self, request: Request, asked: Asked, form: Form) -> Response:
        """Submits before it first waits. Raises BadField and what `DataPlane.submit` does."""
        options = asked.options.with_defaults(self._found.language.defaults)
        asked = replace(asked, options=options)
        self._caller.refuse_urgency(options.priority)
        self._refuse_senseless(asked)
        answers = [
            Answer(prompt, asked.silent, keeps_scores=not options.stream)
            for prompt in asked.prompts
            for _ in range(options.count)
        ]
        limit = ScoreLimit(asked.prompts, options, asked.scored)
        limit.check()
        work = self._submitted(answers, asked)
        head = self._head(asked.prefix)
        named = arm_headers(self._caller.target)
        if options.stream:
            return Events(work, Pieces(form, head, options, answers), named)
        async with cancelled_on_hang_up(request.receive, work.reply):
            await work.finished(_hear_all(work, answers, options, limit))
        found = await _written(partial(whole, form, head, answers, options.count), answers)
        found.headers.update(named)
        return found

    def _refuse_senseless(self, asked: Asked) -> None:
        language, options = self._found.language, asked.options
        if not language.generates:
            raise BadField(
                f"the model '{self._caller.model}' makes embeddings and generates no text",
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

    def _submitted(self, answers: Sequence[Answer], asked: Asked) -> Work:
        requests = requests_for(answers, asked.options, self._found.language, asked.scored)
        asks = generating(requests, asked.options.priority)
        return submit(self._dataplane, self._caller, self._found, asks)

    def _head(self, prefix: str) -> Head:
        version = self._found.served.version
        return Head(
            id=f"{prefix}-{uuid4().hex}",
            model=self._caller.model,
            created=int(time.time()),
            fingerprint=f"{version.name}-{version.number}",
        )


async def _written(document: Callable[[], Json], answers: Sequence[Answer]) -> Response:
    """Many answers with log-probabilities are written beside the loop: half a million took 1 s."""
    if sum(len(answer.scores) for answer in answers) <= _BRIEF_SCORES:
        return json_response(document())
    return await elsewhere(lambda: json_response(document()))


async def _hear_all(
    work: Work, answers: Sequence[Answer], options: Options, limit: ScoreLimit
) -> None:
    try:
        async for response in work.reply:
            work.note(response)
            limit.add(heard(response, answers)[1])
    except Exception as error:
        raise in_the_clients_words(error, options) from error
