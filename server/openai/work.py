"""From prompts to a reply: the requests for their answers, submitted through the data plane."""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from schedulers.llm.asks import GENERATE
from schedulers.llm.errors import SenselessRequest
from schedulers.llm.generation import GenerateRequest
from schedulers.reply import Reply
from schedulers.request import NO_PARAMETERS, InferResponse
from server.dataplane import DataPlane
from server.openai.answer import Answer
from server.openai.caller import Caller, Found
from server.openai.options import Options
from server.rest.openai_errors import BadField
from server.trace.record import Trace, following

if TYPE_CHECKING:
    from schedulers.llm.language import Language

Read = TypeVar("Read")


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

    async def finished(self, reading: Awaitable[Read]) -> Read:
        """What is read of the reply, noted in the trace as one answer."""
        with following(self.trace):
            read = await reading
            if self.trace is not None:
                self.trace.sending()
        return read


def requests_for(
    answers: Sequence[Answer], options: Options, language: "Language", scored: int | None
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


def submit(dataplane: DataPlane, caller: Caller, found: Found, asks: Mapping[str, Any]) -> Work:
    """The second half of the data plane's walk. Raises what `DataPlane.submit` does."""
    caller.asks = asks
    try:
        reply = dataplane.submit(caller, found.served)
    finally:
        caller.asks = NO_PARAMETERS  # the prompts are the scheduler's now
    about = f"request '{caller.request_id}' to model '{found.served.version.name}'"
    return Work(reply, caller.trace, about)


def generating(requests: tuple[GenerateRequest, ...], priority: int = 0) -> dict[str, Any]:
    asks: dict[str, Any] = {GENERATE: requests}
    if priority:
        asks["priority"] = priority
    return asks


def in_the_clients_words(error: Exception, options: Options) -> Exception:
    """What the engine finds senseless after it has taken the request in is its grammar."""
    if isinstance(error, SenselessRequest) and options.shape is not None:
        return BadField(str(error), options.shape.field, "invalid_grammar")
    return error
