"""Answers under a grammar through the engine: sampled, beside others, preempted, stopped."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from backends.llm.grammar.compiled import GrammarCompiler
from backends.llm.grammar.spec import GrammarKind, GrammarSpec
from backends.llm.grammar.thread import GrammarThread
from backends.llm.runner import Runner
from backends.llm.sampling.params import SamplingParams
from schedulers.llm.engine.engine import Engine, Vocabulary
from schedulers.llm.generation import Finish, GenerateRequest, GenerationOutput
from schedulers.llm.policy.blocks import BlockPool
from schedulers.llm.policy.limits import EngineLimits
from schedulers.llm.policy.scheduler import SequenceScheduler
from support.grammar import END, byte_level
from support.llm import load_decoder, make_checkpoint, prompt

SIZE = 288
BLOCKS = 96
SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 8},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "tags": {"type": "array", "items": {"enum": ["ja", "no", "é"]}, "maxItems": 3},
        },
        "required": ["name", "age"],
        "additionalProperties": False,
    },
    {
        "type": "array",
        "items": {"anyOf": [{"type": "boolean"}, {"type": "null"}, {"const": {"es": [10]}}]},
        "minItems": 1,
        "maxItems": 5,
    },
    {"type": "string", "format": "uuid"},
    {"type": "number", "minimum": -10, "maximum": 10, "multipleOf": 0.5},
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder: Path = tmp_path_factory.mktemp("llama")
    make_checkpoint("llama", folder, vocab_size=SIZE)
    vocabulary = Vocabulary(byte_level(), SIZE, (END,))
    compile = GrammarThread(GrammarCompiler(byte_level(), SIZE, (END,)))
    limits = EngineLimits(step_tokens=64, running=16, context=256)
    scheduler = SequenceScheduler(limits, BlockPool(BLOCKS, 16))
    return Engine(scheduler, Runner(load_decoder(folder, blocks=BLOCKS)), vocabulary, compile)


def asked(name: str, kind: GrammarKind, text: str, **facts: Any) -> GenerateRequest:
    facts = {"max_tokens": 200, "seed": len(name), "prompt": prompt(1, 8)} | facts
    return GenerateRequest(name, grammar=GrammarSpec(kind, text), **facts)


def outputs(engine: Engine, *requests: GenerateRequest) -> dict[str, list[GenerationOutput]]:
    """Submit all and step until nothing is left, waiting for grammars that are being compiled."""
    for request in requests:
        engine.submit(request, 0.0)
    heard: dict[str, list[GenerationOutput]] = {request.id: [] for request in requests}
    for one in _steps(engine):
        heard[one.id].append(one)
    engine._scheduler.check()
    assert engine.counts().blocks.in_use == 0
    return heard


def _steps(engine: Engine) -> Iterator[GenerationOutput]:
    while engine.busy or engine.compiling:
        for future in [] if engine.busy else list(engine._compiling.values()):
            future.exception(timeout=60.0)
        yield from engine.step(0.0)


def text_of(heard: list[GenerationOutput]) -> str:
    return "".join(one.text for one in heard)


def assert_valid(schema: dict[str, Any], heard: list[GenerationOutput]) -> bool:
    """Whether the answer came to its end; then it is valid, and else it ended for its length."""
    if heard[-1].finish is not Finish.STOP:
        assert heard[-1].finish is Finish.LENGTH, heard[-1].message
        return False
    validator = jsonschema_rs.validator_for(schema, validate_formats=True)
    validator.validate(json.loads(text_of(heard)))
    return True


@pytest.mark.parametrize("which", range(len(SCHEMAS)))
@pytest.mark.parametrize(
    "seeds", [range(20), pytest.param(range(20, 270), marks=pytest.mark.slow)], ids=["20", "250"]
)
def test_seeded_answers_are_valid(engine: Engine, which: int, seeds: range) -> None:
    """Temperature 1, a random model, four schemas: 1,000 samples in the slow ones."""
    schema = json.dumps(SCHEMAS[which])
    requests = [asked(f"{which}/{seed}", "json_schema", schema, seed=seed) for seed in seeds]
    heard = outputs(engine, *requests)
    assert all(assert_valid(SCHEMAS[which], one) for one in heard.values())
    assert len({text_of(one) for one in heard.values()}) > 10


def test_answers_with_and_without_grammars_do_not_disturb_each_other(engine: Engine) -> None:
    plain = GenerateRequest("plain", prompt(2, 20), 40, seed=4)
    alone = text_of(outputs(engine, plain)["plain"])
    heard = outputs(
        engine,
        asked("choice", "choice", '["ja", "no"]'),
        plain,
        asked("bad", "regex", "("),
        asked("regex", "regex", "[a-e]{9}"),
    )
    assert text_of(heard["plain"]) == alone
    assert text_of(heard["choice"]) in ("ja", "no")
    assert re.fullmatch("[a-e]{9}", text_of(heard["regex"]))
    assert heard["bad"][-1].finish is Finish.INVALID
    assert "unclosed group" in heard["bad"][-1].message


def test_a_preempted_answer_goes_on_where_its_grammar_was(engine: Engine, tmp_path: Path) -> None:
    pattern = "([a-z]{3} ){30}"
    request = [asked(f"p{i}", "regex", pattern, seed=i, prompt=prompt(i, 30)) for i in range(4)]
    wanted = {name: text_of(one) for name, one in outputs(engine, *request).items()}
    make_checkpoint("llama", tmp_path, vocab_size=SIZE)
    small = Engine(
        SequenceScheduler(EngineLimits(step_tokens=64, running=4, context=256, watermark_blocks=0),
                  BlockPool(14, 16)),
        Runner(load_decoder(tmp_path, blocks=14)),
        Vocabulary(byte_level(), SIZE, (END,)),
        GrammarThread(GrammarCompiler(byte_level(), SIZE, (END,))),
    )  # fmt: skip
    heard = outputs(small, *request)
    assert small.counts().preemptions
    assert {name: text_of(one) for name, one in heard.items()} == wanted
    assert all(re.fullmatch(pattern, text) for text in wanted.values())


def test_a_minimum_of_tokens_keeps_the_end_away_but_breaks_no_grammar(engine: Engine) -> None:
    heard = outputs(
        engine,
        *(asked(f"long{i}", "regex", "a+", min_tokens=30, max_tokens=60, seed=i) for i in range(5)),
        asked("short", "choice", '["ja"]', min_tokens=30, stop_ids=byte_level().encode("a")),
    )
    assert text_of(heard.pop("short")) == "ja"
    for one in heard.values():
        assert len(text_of(one)) >= 30
        assert set(text_of(one)) == {"a"}


def test_ignored_end_tokens_do_not_end_an_answer_its_grammar_does(engine: Engine) -> None:
    heard = outputs(
        engine,
        asked("open", "regex", "a+", ignore_end=True, max_tokens=40),
        asked("closed", "regex", "a{7}", ignore_end=True),
    )
    assert text_of(heard["open"]) == "a" * 40
    assert heard["open"][-1].finish is Finish.LENGTH
    assert text_of(heard["closed"]) == "a" * 7
    assert heard["closed"][-1].finish is Finish.STOP


def test_a_stop_string_ends_an_answer_before_its_grammar_does(engine: Engine) -> None:
    heard = outputs(engine, asked("stop", "regex", "[ab]{3}x[ab]{3}", stop=("x",)))["stop"]
    assert re.fullmatch("[ab]{3}", text_of(heard))
    assert heard[-1].stopped_by == "x"


def test_a_grammar_that_becomes_too_complex_fails_its_own_request(engine: Engine) -> None:
    (b,) = byte_level().encode("b")
    hard = "((a{0,50}){0,50}){0,50}b"
    heard = outputs(
        engine,
        asked("hard", "regex", hard, sampling=SamplingParams(logit_bias=((b, -100.0),))),
        asked("easy", "regex", "a{40}"),
    )
    assert heard["hard"][-1].finish is Finish.FAILED
    assert "too many" in heard["hard"][-1].message
    assert text_of(heard["easy"]) == "a" * 40
