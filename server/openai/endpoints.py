"""The paths of OpenAIEndpoints's API, and what answers each.

`server.listeners` puts `routes` among those of `server.rest.app`. A request is read
(`language_inference`, `chat`, `completions`), its text made tokens (`prompt_tokeniser`), and it is
submitted and answered (`generation_run`).
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from backends.llm.backend import EMBEDDING
from backends.llm.chat.template import Chat
from repository.sandbox.policy import Sandbox
from schedulers.errors import ShutDown
from schedulers.llm.generation import EMBED
from server.codec.forwarding import HeaderForwarding
from server.dataplane import DataPlane
from server.errors import NotReady
from server.openai.answers.choice_encoders import (
    ChatChoiceEncoder,
    ChoiceEncoder,
    TextChoiceEncoder,
)
from server.openai.answers.tool_call_encoder import ToolCallEncoder
from server.openai.bodies.chat import read_chat
from server.openai.bodies.completions import Prompt, read_completion
from server.openai.bodies.embeddings import embedded, read_embedding
from server.openai.generation_run import GenerationSpec, generate
from server.openai.language_inference import (
    LanguageInference,
    ResolvedModel,
    find,
    received,
    recognised,
    submit,
)
from server.openai.listing import listed, listed_one
from server.openai.prompt_limits import (
    refuse_beyond_context,
    refuse_unknown_tokens,
    refuse_untold,
)
from server.openai.prompt_tokeniser import PromptTokeniser
from server.openai.tokens import DetokenizedText, read_detokenize, read_tokenize, tokenised
from server.rest.endpoint import BodyLimits, Endpoint, json_response, struct_response
from server.rest.generate import cancelled_on_hang_up
from server.rest.http_inference import arm_headers
from server.rest.openai_errors import BadField, refusal
from server.rest.request_ids import request_id_of

if TYPE_CHECKING:
    from schedulers.llm.gateway.language import Language

Made = TypeVar("Made")
Make = Callable[["Language"], Awaitable[Made]]

_TRIES = 3
"""How often a text is made tokens because a new version took the old one's place meanwhile."""


class OpenAIEndpoints:
    """The front end; belongs to one event loop. `close` it."""

    def __init__(
        self,
        dataplane: DataPlane,
        limits: BodyLimits,
        forwarding: HeaderForwarding | None = None,
        sandbox: Sandbox | None = None,
    ) -> None:
        """`sandbox`: of the process that renders chat templates."""
        self._dataplane = dataplane
        self._limits = limits
        self._forwarding = forwarding
        self._texts = PromptTokeniser(sandbox)
        self._created = int(time.time())

    def routes(self) -> Sequence[Route]:
        """Its paths. Each has its twin in `server.openai.openapi_operations`."""
        posts = {
            "/v1/chat/completions": self.chat,
            "/v1/completions": self.completion,
            "/v1/embeddings": self.embedding,
            "/v1/tokenize": self.tokenize,
            "/v1/detokenize": self.detokenize,
            "/tokenize": self.tokenize,
            "/detokenize": self.detokenize,
        }
        return [
            *(_route(path, endpoint, "POST") for path, endpoint in posts.items()),
            _route("/v1/models", self.models, "GET"),
            _route("/v1/models/{model}", self.model, "GET"),
        ]

    async def close(self) -> None:
        """Requests under way must have ended."""
        await self._texts.close()

    async def chat(self, request: Request) -> Response:
        caller, found = await self._receive(request)
        chat = read_chat(caller.document())
        options = chat.options

        async def prompts(language: "Language") -> list[tuple[int, ...]]:
            if chat.calling is not None:
                refuse_untold(language, caller.model)
            return [await self._texts.of_chat(language, chat.chat, chat.special)]

        found, tokens = await self._made(caller, found, prompts)
        logprobs, scored = options.sampling.logprobs, options.prompt_logprobs
        chat_form = ChatChoiceEncoder(found.language.tokeniser, logprobs, scored)
        form: ChoiceEncoder = chat_form
        format = found.language.tools
        if chat.calling is not None and format is not None:
            shape = chat.calling.shape(format)
            options = replace(options, shape=shape, shown=format.markers)
            form = ToolCallEncoder(chat_form, format, chat.calling, uuid4().hex)
        spec = GenerationSpec("chatcmpl", "messages", options, tokens, scored)
        return await generate(self._dataplane, caller, found, request, spec, form)

    async def completion(self, request: Request) -> Response:
        caller, found = await self._receive(request)
        completion = read_completion(caller.document())
        options = completion.options

        async def read(language: "Language") -> tuple[list[tuple[int, ...]], list[str]]:
            tokens = await self._texts.of_prompts(
                language, completion.prompts, completion.special, "prompt"
            )
            return tokens, await self._texts.echoed(
                language, completion.prompts if completion.echo else ()
            )

        found, (tokens, texts) = await self._made(caller, found, read)
        logprobs, scored = options.sampling.logprobs, options.prompt_logprobs
        echoes = None
        if completion.echo:
            echoes = [text for text in texts for _ in range(options.count)]
            scored = max(logprobs, scored or 0) if logprobs is not None else scored
        form = TextChoiceEncoder(
            found.language.tokeniser, logprobs, options.prompt_logprobs, echoes
        )
        spec = GenerationSpec("cmpl", "prompt", options, tokens, scored, completion.silent)
        return await generate(self._dataplane, caller, found, request, spec, form)

    async def embedding(self, request: Request) -> Response:
        caller, found = await self._receive(request)
        embedding = read_embedding(caller.document())
        make = self._tokens(embedding.inputs, embedding.special, "input")
        found, tokens = await self._made(caller, found, make)
        language = found.language
        if not language.embeds:
            raise BadField(
                f"the model '{caller.model}' generates text and computes no embeddings",
                "model",
                "model_not_supported",
            )
        for one in tokens:
            refuse_beyond_context(language, len(one), 0, "input")
            refuse_unknown_tokens(language, one, "input")
        work = submit(self._dataplane, caller, found, {EMBED: tuple(tokens)})
        async with cancelled_on_hang_up(request.receive, work.reply):
            response = await work.finished(work.only())
        document = embedded(response.outputs[EMBEDDING], embedding, caller.model, tokens)
        answer = json_response(document)
        answer.headers.update(arm_headers(caller.target))
        return answer

    async def tokenize(self, request: Request) -> Response:
        caller, found = await self._receive(request)
        source = read_tokenize(caller.document())

        async def tokens(language: "Language") -> tuple[int, ...]:
            if isinstance(source.text, Chat):
                return await self._texts.of_chat(language, source.text, source.special)
            given = (source.text,)
            (made,) = await self._texts.of_prompts(language, given, source.special, "prompt")
            return made

        found, made = await self._made(caller, found, tokens)
        return struct_response(tokenised(source, found.language, made))

    async def detokenize(self, request: Request) -> Response:
        caller, found = await self._receive(request)
        tokens = read_detokenize(caller.document())
        language = found.language
        if tokens:
            refuse_unknown_tokens(language, tokens, "tokens")
        return struct_response(DetokenizedText(await self._texts.of_tokens(language, tokens)))

    async def models(self, request: Request) -> Response:
        holder = recognised(request)
        return struct_response(listed(self._dataplane, holder, self._created))

    async def model(self, request: Request) -> Response:
        holder = recognised(request)
        name = request.path_params["model"]
        return struct_response(listed_one(self._dataplane, holder, name, self._created))

    async def _receive(self, request: Request) -> tuple[LanguageInference, ResolvedModel]:
        """Who asks whom; raises ServingError for a model that is not there before it looks at what
        is asked."""
        caller = await received(request, self._limits, self._forwarding)
        found = find(self._dataplane, caller)
        try:
            if await caller.in_time(found.served.loaded()):
                found = find(self._dataplane, caller)
        except NotReady:  # its version has counted it
            if caller.target is not None:
                caller.target.window.refused()
            raise
        return caller, found

    def _tokens(
        self, prompts: Sequence[Prompt], special: bool, name: str
    ) -> Make[list[tuple[int, ...]]]:
        async def made(language: "Language") -> list[tuple[int, ...]]:
            return await self._texts.of_prompts(language, prompts, special, name)

        return made

    async def _made(
        self, caller: LanguageInference, found: ResolvedModel, make: Make[Made]
    ) -> tuple[ResolvedModel, Made]:
        """Who answers, and what was made with the text side of just that version; no await comes
        between the last look and the return. Raises what `find` and `make` do."""
        for _ in range(_TRIES):
            gone: ShutDown | None = None
            found.served.keep()  # what makes the tokens is not evicted meanwhile
            try:
                made = await caller.in_time(make(found.language))
            except ShutDown as error:  # which may well be because another has taken over
                gone = error
            finally:
                found.served.release()
            again = find(self._dataplane, caller)
            if again.language is not found.language:
                found = again
            elif gone is None:
                return again, made
            else:
                raise gone
        raise NotReady(f"the versions of '{caller.model}' change faster than they can be asked")


def _route(path: str, endpoint: Endpoint, verb: str) -> Route:
    """A route whose errors are OpenAIEndpoints's, and whose requests have an id."""

    async def answered(request: Request) -> Response:
        request_id = request_id_of(request.scope)
        try:
            response = await endpoint(request)
        except Exception as error:  # noqa: BLE001 - the boundary: refusal() logs what is our fault
            refused = refusal(error, f"request '{request_id}' to {request.url.path}")
            response = Response(refused.body, refused.status, media_type="application/json")
            for name, value in refused.headers:
                response.headers[name.decode()] = value.decode()
        return response

    return Route(path, answered, methods=[verb])
