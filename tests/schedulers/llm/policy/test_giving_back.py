"""Blocks that are withdrawn hold nothing, are not handed out, and come back empty."""

from pathlib import Path

import pytest

from backends.llm.sampling.params import SamplingParams
from schedulers.llm.engine.engine import Engine
from schedulers.llm.generation import GenerateRequest
from schedulers.llm.policy.blocks import BlockPool, PoolUse
from support.llm import answers, load_decoder, make_checkpoint, make_engine, prompt, tokens_of


def test_withdrawn_blocks_are_forgotten_and_not_handed_out() -> None:
    pool = BlockPool(4, 4)
    held = pool.allocate(2) or []
    pool.register_hash(held[0], b"a")
    pool.release(held)
    pool.withdraw(3)
    assert pool.use() == PoolUse(in_use=0, cached=1, empty=0, withdrawn=3)
    assert pool.allocate(2) is None
    pool.withdraw(9)
    assert pool.match([b"a"]) == []
    pool.check([])


def test_blocks_in_use_are_never_withdrawn() -> None:
    pool = BlockPool(4, 4)
    held = pool.allocate(3) or []
    assert len(pool.withdraw(4)) == 1
    pool.check([held])


def test_restored_blocks_are_empty_and_handed_out_again() -> None:
    pool = BlockPool(4, 4)
    pool.withdraw(4)
    assert pool.restore(3) == 3
    assert pool.use() == PoolUse(in_use=0, cached=0, empty=3, withdrawn=1)
    assert len(pool.allocate(3) or []) == 3
    assert pool.restore(9) == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("checkpoint")
    make_checkpoint("llama", made)
    return made


def test_an_engine_answers_the_same_before_during_and_after_giving_back(folder: Path) -> None:
    engine = make_engine(load_decoder(folder, blocks=256), blocks=256)
    before = greedy(engine, "before")
    given = engine.shrink(240)
    assert given > 0
    use = engine.counts().blocks
    assert use.withdrawn == 240
    assert greedy(engine, "during") == before
    assert engine.grow(1000) == given
    assert engine.counts().blocks.withdrawn == 0
    assert greedy(engine, "after") == before


def test_enough_for_one_whole_context_stays_however_much_is_asked_back(folder: Path) -> None:
    engine = make_engine(load_decoder(folder, blocks=64), blocks=64)
    engine.shrink(1000)
    assert engine.counts().blocks.withdrawn == 64 - 256 // 16
    asked = GenerateRequest("long", prompt(1, 200), 50, SamplingParams(temperature=0.0))
    assert len(tokens_of(answers(engine, asked)["long"])) == 50


def greedy(engine: Engine, id: str) -> list[int]:
    asked = GenerateRequest(id, prompt(3, 60), 10, SamplingParams(temperature=0.0))
    return tokens_of(answers(engine, asked)[id])
