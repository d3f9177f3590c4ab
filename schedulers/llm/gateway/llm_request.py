"""What a request asks of a language model: answers to prompts, or vectors of texts. Pure.

Made from an InferRequest by `read_llm_request`; KServe's tensors come as text, to be tokenised yet.
`engine_message` makes of both what an engine gets: who asks, how urgently, until when.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from msgspec.structs import replace as replace_fields

from backends.llm.backend import TEXT_INPUT
from control.access.scopes import id_of
from schedulers.llm.engine_messages import Embed, Message, Submit, pack_tokens
from schedulers.llm.errors import PromptTooLong, SenselessRequest
from schedulers.llm.gateway.language import Language
from schedulers.llm.gateway.text_input import TextInputRequest, read_text_input, read_texts
from schedulers.llm.generation import EMBED, GENERATE, NEVER, GenerateRequest
from schedulers.request import InferRequest

CHARACTERS_A_TOKEN = 4
"""What a text counts for until it has been tokenised."""


@dataclass(frozen=True, slots=True)
class LLMRequest:
    """`prompts`: texts that are still to be tokenised. `requests`: one for each answer; `lists`:
    tokens of each text whose vector is wanted, None where none is. `text_input`: how the answer is
    to be given in KServe's way."""

    requests: tuple[GenerateRequest, ...] = ()
    lists: tuple[tuple[int, ...], ...] | None = None
    prompts: tuple[str, ...] = ()
    text_input: TextInputRequest | None = None

    @property
    def answers(self) -> int:
        """What it counts for, beside others."""
        return max(len(self.requests), 1)

    @property
    def tokens(self) -> int:
        """Of its prompts and texts; an estimate, before they are tokenised."""
        tokens = sum(len(one.prompt) for one in self.requests) + sum(map(len, self.lists or ()))
        return tokens + self.characters // CHARACTERS_A_TOKEN

    @property
    def characters(self) -> int:
        """Still to be tokenised."""
        return sum(map(len, self.prompts))

    def tokenised(self, lists: tuple[tuple[int, ...], ...]) -> "LLMRequest":
        """The same, with the tokens of its texts."""
        if self.text_input is None:
            return replace(self, lists=lists, prompts=()) if self.prompts else self
        return replace(self, requests=(self.text_input.request("", lists[0]),), prompts=())

    def refuse(self, context: int) -> None:
        """Raises SenselessRequest or PromptTooLong for what no engine could take."""
        for one in self.requests:
            _refuse(one, context)
        for index, tokens in enumerate(self.lists or ()):
            if len(tokens) > context:
                raise PromptTooLong(
                    f"text {index} has {len(tokens)} tokens; the model takes at most {context}"
                )


def read_llm_request(request: InferRequest, language: Language) -> LLMRequest:
    """Raises SenselessRequest naming what is wrong, or what this model does not do."""
    requests, lists = request.parameters.get(GENERATE), request.parameters.get(EMBED)
    wants_vectors = lists is not None or (requests is None and not language.generates)
    if wants_vectors and not language.embeds:
        raise SenselessRequest(f"model '{request.model}' gives no embeddings")
    if not wants_vectors and not language.generates:
        raise SenselessRequest(f"model '{request.model}' gives embeddings, and no text")
    if lists is not None:
        if not (isinstance(lists, tuple) and lists and all(isinstance(a, tuple) for a in lists)):
            raise SenselessRequest(f"'{EMBED}' is no parameter of a client")
        return LLMRequest(lists=lists)
    if requests is not None:
        if not (isinstance(requests, tuple) and requests and all(map(_is_request, requests))):
            raise SenselessRequest(f"'{GENERATE}' is no parameter of a client")
        return LLMRequest(requests)
    if wants_vectors:
        return LLMRequest(prompts=read_texts(request, TEXT_INPUT))
    text_input = read_text_input(request, language.defaults)
    return LLMRequest(prompts=(text_input.prompt,), text_input=text_input)


def _is_request(value: object) -> bool:
    return isinstance(value, GenerateRequest)


def _refuse(request: GenerateRequest, context: int) -> None:
    if not request.prompt:
        raise SenselessRequest("the prompt is empty; it needs at least one token")
    if request.max_tokens < 1:
        raise SenselessRequest(f"max_tokens is {request.max_tokens}; it must be at least 1")
    if not 0 <= request.min_tokens <= request.max_tokens:
        raise SenselessRequest(
            f"min_tokens is {request.min_tokens}; it must be from 0 to max_tokens, "
            f"{request.max_tokens}"
        )
    if len(request.prompt) >= context:
        raise PromptTooLong(
            f"the prompt has {len(request.prompt)} tokens; a context of {context} leaves room for "
            f"an answer behind at most {context - 1}"
        )


def engine_message(llm_request: LLMRequest, request: InferRequest, names: Sequence[str]) -> Message:
    """The message to an engine, for answers by these names."""
    if llm_request.lists is not None:
        return Embed(names[0], tuple(map(pack_tokens, llm_request.lists)))
    pairs = zip(llm_request.requests, names, strict=True)
    return Submit(tuple(_for_engine(request, one, name) for one, name in pairs))


def _for_engine(request: InferRequest, generate: GenerateRequest, name: str) -> GenerateRequest:
    """It under the name the engine knows it by. What is cached is shared by those only who
    have the same principal, and gave the same salt."""
    principal = id_of(request.principal)
    expires_ns = expiry_ns(request)
    return replace_fields(
        generate,
        id=name,
        principal=principal,
        priority=generate.priority or request.priority,
        deadline_s=expires_ns / 1e9 if expires_ns else NEVER,
        salt=b"%b\0%b" % (principal.encode(), generate.salt),
    )


def expiry_ns(request: InferRequest) -> int:
    """When nobody wants the answer any more, on `time.monotonic_ns`; 0 for never."""
    own_ns = request.arrived_ns + request.timeout_us * 1000 if request.timeout_us else 0
    return min(own_ns, request.deadline_ns) or own_ns or request.deadline_ns
