"""What `benchmarks.llm` asks for: token prompts and how long each answer is; always the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

FIRST_TOKEN = 300

SAMPLINGS: Mapping[str, Mapping[str, float]] = {
    "top-p": {"temperature": 0.8, "top_p": 0.95},
    "temperature": {"temperature": 0.8},
    "greedy": {"temperature": 0.0},
}
"""How tokens are chosen, in the words of OpenAI's API. The random model's distributions are flat:
with top-p, engines that sort the vocabulary spend much of their time on it."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One answer of exactly `tokens` tokens, asked for `at_s` seconds after the start."""

    prompt: tuple[int, ...]
    tokens: int
    at_s: float = 0.0
    sampling: str = "top-p"


def at_once(count: int, vocabulary: int, seed: int = 0, sampling: str = "top-p") -> list[Ask]:
    """Prompts of 64 to 256 tokens, answers of 64 to 128, all at the same moment."""
    draw = Random(seed)
    return [
        Ask(
            _words(draw, draw.randint(64, 256), vocabulary),
            draw.randint(64, 128),
            sampling=sampling,
        )
        for _ in range(count)
    ]


def renewed(asks: Sequence[Ask], number: int) -> list[Ask]:
    """The same workload, of which no prefix cache knows anything: each prompt begins with the token
    `number`."""
    return [replace(ask, prompt=(number, *ask.prompt[1:])) for ask in asks]


def prefix_heavy(vocabulary: int, shared: bool, users: int = 8, turns: int = 4) -> list[Ask]:
    """8 system prompts of 512 tokens, `users` each, `turns` each that repeat what was said.

    Not `shared`: the same lengths, but every prompt begins with a token of its own, so that
    nothing of it can be found in a prefix cache.
    """
    draw = Random(1)
    asks: list[Ask] = []
    for system in [_words(draw, 512, vocabulary) for _ in range(8)]:
        for _ in range(users):
            said = system
            for _ in range(turns):
                said = (*said, *_words(draw, 24, vocabulary))
                own = (FIRST_TOKEN + len(asks),) if not shared else (FIRST_TOKEN - 1,)
                asks.append(Ask((*own, *said), 16))
    # The first turns of all, then the second turns: as many users at once would ask.
    return [asks[index] for turn in range(turns) for index in range(turn, len(asks), turns)]


def long_prompts(count: int, every_s: float, vocabulary: int) -> list[Ask]:
    """A prompt of 4,000 tokens every so many seconds, with a short answer."""
    draw = Random(2)
    return [Ask(_words(draw, 4000, vocabulary), 4, every_s * (index + 1)) for index in range(count)]


def poisson(rate: float, seconds: float, vocabulary: int) -> list[Ask]:
    """Short requests at a mean rate per second, as many people would send them."""
    draw, now, asks = Random(3), 0.0, []
    while (now := now + draw.expovariate(rate)) < seconds:
        prompt = _words(draw, draw.randint(32, 128), vocabulary)
        asks.append(Ask(prompt, draw.randint(32, 64), now))
    return asks


def _words(draw: Random, count: int, vocabulary: int) -> tuple[int, ...]:
    return tuple(draw.randrange(FIRST_TOKEN + 1000, vocabulary) for _ in range(count))
