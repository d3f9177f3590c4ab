"""Grammars compiled with llguidance: which tokens may come next, and when an answer is complete.

Comes from the engine with a GrammarSpec, on a thread beside its loop; what is made is then followed
by the loop's thread alone.
"""

import json
import threading
from collections.abc import Sequence

import numpy as np
import torch
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from torch import Tensor

from backends.llm.errors import GrammarInvalid
from backends.llm.grammar.spec import GrammarSpec
from backends.llm.grammar.text import guidance_text
from backends.llm.grammar.tool_calls import parameter_grammars, tools_grammar
from backends.llm.tokens.tokeniser import Tokeniser

REMEMBERED = 8
"""Grammars kept compiled: the answers of one request have the same one."""
MAX_MESSAGE = 500


class GrammarCompiler:
    """Makes grammars for one model; used by several threads.

    The vocabulary is put into llguidance's form at the first grammar: 2 s for 150,000 tokens.
    """

    def __init__(self, tokeniser: Tokeniser, vocabulary: int, end_ids: Sequence[int]) -> None:
        self._tokeniser = tokeniser
        self._vocabulary = vocabulary
        self._end_ids = tuple(end_ids)
        self._bridge: LLTokenizer | None = None
        self._preparing = threading.Lock()
        self._compiled: dict[GrammarSpec, LLMatcher] = {}
        self._lock = threading.Lock()
        """Of `_compiled`."""

    def prepare(self) -> None:
        """Put the vocabulary into llguidance's form. Raises GrammarInvalid where it has none."""
        try:
            self._vocabulary_bridge()
        except BaseException as error:  # noqa: BLE001 (a panic of the library is no Exception)
            raise _refusal("grammar", error) from None

    def has(self, spec: GrammarSpec) -> bool:
        """Whether `spec` is kept compiled."""
        return spec in self._compiled

    def compile(self, spec: GrammarSpec) -> "TokenGrammar":
        """At the grammar's beginning. Raises GrammarInvalid naming the fault."""
        with self._lock:
            matcher = self._compiled.pop(spec, None)
            copied = None if matcher is None else self._keep(spec, matcher)
        if copied is None:
            matcher = self._match(spec)
            with self._lock:
                copied = self._keep(spec, matcher)
        return TokenGrammar(copied, self._vocabulary, self._end_ids)

    def _keep(self, spec: GrammarSpec, matcher: LLMatcher) -> LLMatcher:
        """A copy of it, to be followed."""
        self._compiled[spec] = matcher
        if len(self._compiled) > REMEMBERED:
            del self._compiled[next(iter(self._compiled))]
        return matcher.deep_copy()

    def _match(self, spec: GrammarSpec) -> LLMatcher:
        is_tools = spec.kind == "tools"
        added = self._tokeniser.added
        text = tools_grammar(spec.text, added) if is_tools else guidance_text(spec)
        try:
            matcher = LLMatcher(self._vocabulary_bridge(), text, log_level=0, limits=_limits())
            # The first mask is the dearest: it is made here, beside the loop, and kept in copies.
            mask = b"" if matcher.is_error() else matcher.compute_bitmask()
        except BaseException as error:  # noqa: BLE001 (a panic of the library is no Exception)
            raise _refusal(spec.kind, error) from None
        if matcher.is_error():
            if is_tools:
                self._refuse_parameters(spec)
            raise GrammarInvalid(f"the {spec.kind} cannot be followed: {_first(matcher)}")
        if not _bits(mask, self._vocabulary)[~_is_any(self._end_ids, self._vocabulary)].any():
            raise GrammarInvalid(f"the {spec.kind} allows nothing but an empty answer")
        return matcher

    def _refuse_parameters(self, spec: GrammarSpec) -> None:
        """Raises GrammarInvalid naming the first tool whose parameters are at fault."""
        for name, text in parameter_grammars(spec.text):
            alone = LLMatcher(self._vocabulary_bridge(), text, log_level=0, limits=_limits())
            if alone.is_error():
                raise GrammarInvalid(
                    f"the parameters of the tool '{name}' cannot be followed: {_first(alone)}"
                )

    def _vocabulary_bridge(self) -> LLTokenizer:
        with self._preparing:
            if self._bridge is None:
                self._bridge = self._new_bridge()
        return self._bridge

    def _new_bridge(self) -> LLTokenizer:
        text, size = self._tokeniser.to_json(), self._tokeniser.size
        ends = [end for end in self._end_ids if end < size]
        if not ends:
            text, ends, size = _with_an_end(text, size), [size], size + 1
        return LLTokenizer(text, n_vocab=max(self._vocabulary, size), eos_token=ends)


class TokenGrammar:
    """How far one answer has come in its grammar; see `backends.llm.grammar.spec.Grammar`.

    The mask of a step is made when the token before it is accepted: only then is it known whether
    anything can follow.
    """

    def __init__(self, matcher: LLMatcher, vocabulary: int, end_ids: Sequence[int]) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._no_ends = ~_is_any(end_ids, vocabulary)
        self._mask = self._look()

    def allowed(self) -> Tensor:
        """Bool [vocabulary]; an end token is among them only where the answer may end."""
        return torch.from_numpy(self._mask)

    def accept(self, token: int) -> bool:
        """Take the token that came; True when the answer is complete and nothing can follow."""
        if not self._matcher.consume_token(token):
            raise RuntimeError(_first(self._matcher))
        if self._matcher.is_stopped():
            return True
        self._mask = self._look()
        return not (self._mask & self._no_ends).any()

    def _look(self) -> np.ndarray:
        packed = self._matcher.compute_bitmask()
        if self._matcher.is_error():
            raise RuntimeError(_first(self._matcher))
        return _bits(packed, self._vocabulary)


def _with_an_end(text: str, token: int) -> str:
    """A tokenizer.json with one more token, which no row of the model's logits has: llguidance
    wants an end token even where the model has none."""
    written = json.loads(text)
    end = {"id": token, "content": "<|no such token|>", "special": True}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    written["added_tokens"].append(end | flags)
    return json.dumps(written)


def _limits() -> LLParserLimits:
    """What one grammar may cost; states are 1 to 2 kB each. A thousand optional properties need
    more than 10,000 items in a step."""
    return LLParserLimits(
        step_lexer_fuel=100_000,
        step_max_items=50_000,
        max_lexer_states=20_000,
        max_grammar_size=200_000,
        verbose_errors=False,
    )


def _bits(packed: bytes, vocabulary: int) -> np.ndarray:
    """One bit per token to one bool: some 30 µs for 150,000 tokens."""
    numbers = np.frombuffer(packed, np.uint8)
    return np.unpackbits(numbers, count=vocabulary, bitorder="little").view(np.bool_)


def _is_any(tokens: Sequence[int], vocabulary: int) -> np.ndarray:
    found = np.zeros(vocabulary, np.bool_)
    found[[token for token in tokens if 0 <= token < vocabulary]] = True
    return found


def _first(matcher: LLMatcher) -> str:
    return matcher.get_error().partition("\n<")[0][:MAX_MESSAGE].strip()


def _refusal(kind: str, error: BaseException) -> BaseException:
    """Panics of the library are no Exceptions; whatever else ends a thread goes on."""
    if isinstance(error, Exception) or type(error).__name__ == "PanicException":
        return GrammarInvalid(f"the {kind} cannot be compiled: {str(error)[:MAX_MESSAGE]}")
    return error
