"""Whole answers: equal to transformers however they were scheduled; text, stops and failures."""

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from backends.llm.errors import GrammarInvalid
from backends.llm.grammar.spec import Grammar, GrammarSpec
from backends.llm.load import LoadSettings, load
from backends.llm.model.decoder import Decoder
from backends.llm.ops.seam import CacheType, Precision
from backends.llm.sampling.params import SamplingParams
from schedulers.llm.engine.engine import Compile, Engine
from schedulers.llm.generation import Finish, GenerateRequest
from support.llm import (
    VARIANTS,
    answers,
    byte_tokeniser,
    load_decoder,
    make_checkpoint,
    make_engine,
    prompt,
    save_tokeniser,
    tokens_of,
)

GREEDY = SamplingParams(temperature=0.0)
CLOSE_CALL = 1e-3


def asked(name: str, which: int, length: int, answer: int = 20, **facts: Any) -> GenerateRequest:
    return GenerateRequest(name, prompt(which, length), answer, **({"sampling": GREEDY} | facts))


def assert_greedy(model: Any, request: GenerateRequest, tokens: list[int]) -> None:
    """Each token is the likeliest after those before it, or nearly as likely."""
    with torch.inference_mode():
        logits = model(torch.tensor([[*request.prompt, *tokens]])).logits[0]
    rows = logits[len(request.prompt) - 1 : -1]
    best = rows.amax(dim=1)
    found = rows.gather(1, torch.tensor(tokens)[:, None]).squeeze(1)
    assert (best - found).max() < CLOSE_CALL
    assert len(tokens) == request.max_tokens or tokens[-1] in (2,)


@pytest.fixture(scope="module", params=VARIANTS)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: Any) -> tuple[Path, Any]:
    folder: Path = tmp_path_factory.mktemp("checkpoint")
    return folder, make_checkpoint(request.param, folder)


def test_answers_are_those_of_transformers_batched_chunked_shared_and_preempted(
    checkpoint: tuple[Path, Any],
) -> None:
    folder, model = checkpoint
    engine = make_engine(load_decoder(folder, blocks=12), blocks=12, watermark_blocks=0)
    shared = prompt(50, 40)
    requests = [
        asked("long", 1, 90, 30),
        *(replace(asked(f"r{i}", i, 0), prompt=(*shared, *prompt(i, 33 + i))) for i in (2, 3, 4)),
    ]
    heard = answers(engine, *requests)
    counts = engine.counts()
    assert counts.preemptions
    assert counts.prefix_hit_tokens
    for request in requests:
        assert_greedy(model, request, tokens_of(heard[request.id]))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    folder = tmp_path_factory.mktemp("llama")
    make_checkpoint("llama", folder)
    return load_decoder(folder)


@pytest.fixture
def engine(llama: Decoder) -> Engine:
    return make_engine(llama)


def test_a_seed_gives_the_same_answer_alone_beside_others_and_after_preemption(
    llama: Decoder,
) -> None:
    mine = asked("mine", 1, 40, 30, sampling=SamplingParams(top_p=0.9), seed=11, priority=1)
    alone = tokens_of(answers(make_engine(llama), mine)["mine"])
    crowd = [asked(f"c{i}", i, 30, 30, sampling=SamplingParams()) for i in range(2, 6)]
    crowded = make_engine(llama, blocks=12, watermark_blocks=0)
    assert tokens_of(answers(crowded, *crowd, mine)["mine"]) == alone
    assert crowded.counts().preemptions


def test_text_adds_up_and_a_stop_string_ends_it_unseen(engine: Engine) -> None:
    whole = answers(engine, asked("a", 1, 10, ignore_end=True))["a"]
    text = "".join(output.text for output in whole)
    assert text == byte_tokeniser().decode(tokens_of(whole))
    assert whole[-1].finish is Finish.LENGTH
    stop = text[5:7]
    stopped = answers(engine, asked("b", 1, 10, ignore_end=True, stop=(stop,)))["b"]
    assert "".join(output.text for output in stopped) == text[: text.index(stop)]
    assert stopped[-1].finish is Finish.STOP
    assert stopped[-1].stopped_by == stop
    assert engine.counts().blocks.in_use == 0


def test_a_stop_token_ends_the_answer_and_is_not_in_its_text(engine: Engine) -> None:
    first = tokens_of(answers(engine, asked("a", 1, 10, ignore_end=True))["a"])
    stop = first[4]
    outputs = answers(engine, asked("b", 1, 10, ignore_end=True, stop_ids=(stop,)))["b"]
    assert outputs[-1].finish is Finish.STOP
    assert outputs[-1].stopped_by == stop
    said = first[: first.index(stop)]
    assert "".join(output.text for output in outputs) == byte_tokeniser().decode(said)
    assert tokens_of(outputs) == [*said, stop]


def test_nothing_stops_an_answer_before_its_minimum(engine: Engine) -> None:
    first = tokens_of(answers(engine, asked("a", 1, 10, ignore_end=True))["a"])
    outputs = answers(
        engine, asked("b", 1, 10, ignore_end=True, stop_ids=(first[2],), min_tokens=8)
    )["b"]
    tokens = tokens_of(outputs)
    assert len(tokens) > 8
    assert first[2] not in tokens[:8]


def test_prompt_logprobs_come_once_for_every_token_after_the_first(llama: Decoder) -> None:
    engine = make_engine(llama, step_tokens=16)
    request = asked("a", 1, 50, 4, prompt_logprobs=2)
    outputs = answers(engine, request)["a"]
    scores = [score for output in outputs for score in output.prompt]
    assert len(scores) == 49
    again = answers(make_engine(llama, step_tokens=64), replace(request, id="b"))["b"]
    whole = [score for output in again for score in output.prompt]
    assert [one.logprob for one in scores] == pytest.approx(
        [one.logprob for one in whole], abs=1e-4
    )


def test_logprobs_come_with_each_token(engine: Engine) -> None:
    outputs = answers(engine, asked("a", 1, 10, 5, sampling=replace(GREEDY, logprobs=3)))["a"]
    for output in outputs:
        assert output.scored is not None
        assert output.scored.rank == 0
        assert output.scored.likeliest[0][0] == output.token


def test_a_cancelled_request_frees_its_blocks_and_disturbs_nobody(engine: Engine) -> None:
    alone = tokens_of(answers(engine, asked("a", 1, 20))["a"])
    engine.submit(asked("gone", 2, 20), 0.0)
    engine.submit(asked("stays", 1, 20), 0.0)
    outputs = engine.step(0.0)
    assert engine.cancel("gone")
    while engine.busy:
        outputs += engine.step(0.0)
    assert tokens_of([one for one in outputs if one.id == "stays"]) == alone
    assert engine.counts().blocks.in_use == 0


def test_a_passed_deadline_is_told_with_what_was_said(engine: Engine) -> None:
    engine.submit(asked("late", 1, 20, deadline_s=5.0), 0.0)
    engine.step(0.0)
    (output,) = engine.step(6.0)
    assert output.finish is Finish.DEADLINE
    assert "deadline passed after 1 tokens" in output.message


def test_a_model_that_cannot_compute_fails_the_requests_and_the_engine_lives(
    tmp_path: Path,
) -> None:
    make_checkpoint("llama", tmp_path)
    decoder = load_decoder(tmp_path, blocks=2)
    engine = make_engine(decoder, blocks=64)
    outputs = answers(engine, asked("a", 1, 60), asked("b", 2, 10, 3))
    assert outputs["a"][-1].finish is Finish.FAILED
    assert "could not compute" in outputs["a"][-1].message
    assert not engine.busy
    assert engine.counts().blocks.in_use == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": (1, 160)}, "prompt has the token 160; the model's tokens are 0 to 159"),
        ({"stop_ids": (-1,)}, "stop_ids has the token -1"),
        ({"sampling": SamplingParams(logit_bias=((999, 1.0),))}, "logit_bias has the token 999"),
        ({"stop": ("",)}, "a stop string is empty"),
        ({"prompt": ()}, "the prompt is empty"),
    ],
)
def test_a_senseless_request_is_refused(
    engine: Engine, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        engine.submit(replace(asked("a", 1, 4), **changes), 0.0)
    assert not engine.busy


def test_numbers_that_are_none_fail_their_request_and_spoil_no_other(llama: Decoder) -> None:
    engine = make_engine(llama)
    alone = tokens_of(answers(engine, asked("a", 1, 20))["a"])
    spoilt = asked("spoilt", 3, 5)
    # A token whose embedding is not a number: all that comes after it in its sequence is neither.
    table = llama._weights.embedding
    kept = table[159].clone()
    table[159] = torch.nan
    try:
        heard = answers(
            engine,
            asked("b", 1, 20),
            replace(spoilt, prompt=(*spoilt.prompt, 159)),
            asked("c", 4, 9),
        )
        after = answers(engine, *(asked(f"d{i}", 1 if i == 9 else i, 20) for i in range(4, 10)))
    finally:
        table[159] = kept
    assert heard["spoilt"][-1].finish is Finish.FAILED
    assert "not numbers" in heard["spoilt"][-1].message
    assert tokens_of(heard["b"]) == alone
    assert tokens_of(after["d9"]) == alone


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("precision", "cache_type"),
    [("bfloat16", "auto"), ("int8", "auto"), ("int4", "auto"), ("int8", "int8")],
)
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_one_number_that_is_none_fails_the_request_at_every_precision(
    wrong: float, precision: Precision, cache_type: CacheType, compiled: bool, tmp_path: Path
) -> None:
    """It stands at the beginning of the prompt, steps before the first token is chosen."""
    make_checkpoint("qwen3", tmp_path)
    save_tokeniser(tmp_path)
    settings = LoadSettings(16 << 20, precision, cache_type, step_tokens=32, compiled=compiled)
    decoder = load(tmp_path, settings).runner._decoder
    engine = make_engine(decoder)
    alone = tokens_of(answers(engine, asked("a", 1, 20))["a"])
    spoilt = asked("spoilt", 3, 90)
    decoder._weights.embedding[159, 7] = wrong
    heard = answers(
        engine, asked("b", 1, 20), replace(spoilt, prompt=(*spoilt.prompt[:3], 159, *spoilt.prompt))
    )
    assert heard["spoilt"][-1].finish is Finish.FAILED
    assert "not numbers" in heard["spoilt"][-1].message
    assert tokens_of(heard["b"]) == alone


def test_numbers_that_are_none_leave_the_blocks_alone_that_others_share(llama: Decoder) -> None:
    engine = make_engine(llama)
    shared = prompt(30, 64)
    sharing = replace(asked("b", 30, 20), prompt=shared)
    alone = tokens_of(answers(make_engine(llama), sharing)["b"])
    table = llama._weights.embedding
    kept = table[159].clone()
    table[159] = torch.nan
    try:
        heard = answers(engine, sharing, replace(asked("x", 30, 5), prompt=(*shared, 159)))
    finally:
        table[159] = kept
    assert heard["x"][-1].finish is Finish.FAILED
    assert engine.counts().prefix_hit_tokens == 64
    assert tokens_of(heard["b"]) == alone
    assert tokens_of(answers(engine, replace(sharing, id="c"))["c"]) == alone


class Alternating:
    """Tokens 10 and 11 in turns, four of them."""

    def __init__(self) -> None:
        self.came: list[int] = []

    def allowed(self) -> torch.Tensor:
        mask = torch.zeros(160, dtype=torch.bool)
        mask[10 + len(self.came) % 2] = True
        return mask

    def accept(self, token: int) -> bool:
        self.came.append(token)
        return len(self.came) == 4


class Failing(Alternating):
    def __init__(self, in_accept: bool) -> None:
        super().__init__()
        self.in_accept = in_accept

    def allowed(self) -> torch.Tensor:
        if not self.in_accept:
            raise RuntimeError("broken")
        return super().allowed()

    def accept(self, token: int) -> bool:
        raise RuntimeError("broken")


def compiled(*, later: bool = False) -> Compile:
    """Grammars by the text of their spec; with `later`, never of themselves."""

    def compile(spec: GrammarSpec) -> "Future[Grammar]":
        future: Future[Grammar] = Future()
        if later:
            return future
        match spec.text:
            case "alternating":
                future.set_result(Alternating())
            case "fails in allowed":
                future.set_result(Failing(in_accept=False))
            case "fails in accept":
                future.set_result(Failing(in_accept=True))
            case _:
                future.set_exception(GrammarInvalid(f"'{spec.text}' is no expression"))
        return future

    return compile


def spelt(text: str) -> GrammarSpec:
    return GrammarSpec("regex", text)


def test_a_grammar_says_what_may_come_and_when_the_answer_is_complete(llama: Decoder) -> None:
    engine = make_engine(llama, compile=compiled())
    outputs = answers(engine, asked("a", 1, 10, 20, grammar=spelt("alternating")))["a"]
    assert tokens_of(outputs) == [10, 11, 10, 11]
    assert outputs[-1].finish is Finish.STOP


@pytest.mark.parametrize("where", ["fails in allowed", "fails in accept"])
def test_a_grammar_that_fails_fails_its_own_request(llama: Decoder, where: str) -> None:
    engine = make_engine(llama, compile=compiled())
    alone = tokens_of(answers(engine, asked("a", 1, 10))["a"])
    heard = answers(engine, asked("b", 2, 10, grammar=spelt(where)), asked("c", 1, 10))
    assert heard["b"][-1].finish is Finish.FAILED
    assert "failed: broken" in heard["b"][-1].message
    assert tokens_of(heard["c"]) == alone
    assert engine.counts().blocks.in_use == 0


def test_a_grammar_that_cannot_be_compiled_ends_its_own_request_as_invalid(llama: Decoder) -> None:
    engine = make_engine(llama, compile=compiled())
    heard = answers(engine, asked("b", 2, 10, grammar=spelt("(")), asked("c", 1, 10))
    assert [(one.finish, one.message) for one in heard["b"]] == [
        (Finish.INVALID, "'(' is no expression")
    ]
    assert heard["c"][-1].finish is Finish.LENGTH


def test_a_request_waits_for_its_grammar_within_its_deadline_and_others_go_on(
    llama: Decoder,
) -> None:
    engine = make_engine(llama, compile=compiled(later=True))
    engine.submit(asked("b", 2, 10, grammar=spelt("later"), deadline_s=5.0), 0.0)
    heard = answers(engine, asked("c", 1, 10))
    assert heard["c"][-1].finish is Finish.LENGTH
    assert engine.compiling
    assert not engine.busy
    assert [one.finish for one in engine.step(6.0)] == [Finish.DEADLINE]
    assert not engine.compiling


def test_an_engine_without_grammars_refuses_a_request_that_has_one(engine: Engine) -> None:
    with pytest.raises(ValueError, match="no grammars"):
        engine.submit(asked("b", 2, 10, grammar=spelt("alternating")), 0.0)
