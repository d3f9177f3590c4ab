"""Requests to the language model through the stock `openai` client; greedy, so each is checked."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2 as httpx
import openai

from benchmarks.soak.outcome import Hung, Lost, Refused, Wrong
from benchmarks.soak.vectors import LIMIT_S

PROMPTS = tuple(f"{word} of the year" for word in ("spring", "summer", "autumn", "winter"))
LENGTHS = (4, 24)
Said = dict[tuple[str, str, int], str]


class Language:
    """One thread's client; `said` is what the model says to each prompt when it is alone."""

    def __init__(self, rest: str, seed: int, said: Said) -> None:
        self._random = random.Random(seed)
        self._said = said
        self._client = openai.OpenAI(
            base_url=f"http://{rest}/v1", api_key="none", max_retries=0, timeout=LIMIT_S
        )

    def close(self) -> None:
        self._client.close()

    def completion(self) -> str:
        return self._checked("completion", self.complete)

    def chat(self) -> str:
        return self._checked("chat", self.answer)

    def chat_stream(self) -> str:
        return self._checked("chat", lambda *it: "".join(self._pieces(*it)))

    def chat_cancelled(self) -> str:
        """Leaves after the first words."""
        with _told():
            pieces = self._pieces(PROMPTS[0], 200)
            for _ in range(self._random.randint(1, 5)):
                next(pieces)
            pieces.close()
        return "cancelled"

    def complete(self, prompt: str, tokens: int) -> str:
        answer = self._client.completions.create(
            model="tiny", prompt=prompt, max_tokens=tokens, temperature=0
        )
        return str(answer.choices[0].text)

    def answer(self, prompt: str, tokens: int) -> str:
        answer = self._client.chat.completions.create(
            model="tiny", messages=_messages(prompt), max_tokens=tokens, temperature=0
        )
        return str(answer.choices[0].message.content)

    def _pieces(self, prompt: str, tokens: int) -> Any:
        with self._client.chat.completions.create(
            model="tiny", messages=_messages(prompt), max_tokens=tokens, temperature=0, stream=True
        ) as stream:
            for event in stream:
                yield event.choices[0].delta.content or ""

    def _checked(self, kind: str, ask: Any) -> str:
        prompt, tokens = self._random.choice(PROMPTS), self._random.choice(LENGTHS)
        with _told():
            got = ask(prompt, tokens)
        if got != self._said[kind, prompt, tokens]:
            raise Wrong(f"{kind}: {got!r} instead of {self._said[kind, prompt, tokens]!r}")
        return "right"


def learn(rest: str) -> Said:
    """What the model says to every prompt while nobody else asks."""
    client = Language(rest, 0, {})
    try:
        return {
            (kind, prompt, tokens): ask(prompt, tokens)
            for kind, ask in (("completion", client.complete), ("chat", client.answer))
            for prompt in PROMPTS
            for tokens in LENGTHS
        }
    finally:
        client.close()


def _messages(prompt: str) -> Any:
    return [{"role": "user", "content": prompt}]


@contextmanager
def _told() -> Iterator[None]:
    """The client's errors, as what became of the request."""
    try:
        yield
    except openai.APITimeoutError as error:
        raise Hung(repr(error)) from error
    except openai.APIStatusError as error:
        raise Refused(f"{error.status_code} {error.message}") from error
    except openai.APIConnectionError as error:
        raise Lost(repr(error.__cause__ or error)) from error
    except openai.APIError as error:  # an error within a stream
        raise Refused(str(error)) from error
    except httpx.HTTPError as error:
        raise Lost(repr(error)) from error
