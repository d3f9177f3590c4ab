"""The work of an embedding process: turns, cancels and failures, with a stand-in for the model."""

from collections.abc import Generator, Sequence

import numpy as np

from schedulers.llm.engine.embedding_work import TOGETHER, EmbeddingWork
from schedulers.llm.engine_messages import (
    Cancel,
    Embed,
    EmbedReply,
    Message,
    RequestRefused,
    StepReport,
    pack_tokens,
)

Texts = Sequence[Sequence[int]]


class Lengths:
    """Embeds a list as its length, one list a pass; fails at a token 13, and 14 is not a number."""

    dimensions = 1

    def refuse(self, texts: Texts) -> None:
        if not all(texts):
            raise ValueError("text 0 has no tokens")

    def steps(self, texts: Texts) -> Generator[None, None, np.ndarray]:
        for text in texts:
            if 13 in text:
                raise RuntimeError("unlucky")
            yield
        return np.array([[np.nan if 14 in text else len(text)] for text in texts], np.float32)


class House:
    def __init__(self) -> None:
        self.said: list[Message] = []
        self.work = EmbeddingWork(Lengths(), self.said.append)  # type: ignore[arg-type]

    def ask(self, id: str, *lists: tuple[int, ...]) -> None:
        self.work.handle(Embed(id, tuple(map(pack_tokens, lists))))

    def run(self) -> dict[str, list[float] | str]:
        while self.work.busy:
            self.work.step()
        return {
            one.id: one.error or np.frombuffer(one.data, np.float32).tolist()
            for one in self.said
            if isinstance(one, EmbedReply)
        }


def test_a_vector_that_is_not_numbers_fails_its_own_request() -> None:
    house = House()
    house.ask("a", (1,), (1, 14))
    house.ask("b", (1, 2, 3))
    assert house.run() == {"a": "the model's vector of text 1 is not numbers", "b": [3.0]}


def test_each_gets_its_own_rows() -> None:
    house = House()
    house.ask("a", (1,), (1, 2))
    house.ask("b", (1, 2, 3))
    assert house.run() == {"a": [1.0, 2.0], "b": [3.0]}


def test_those_begun_are_told_before_their_rows_come() -> None:
    house = House()
    house.ask("a", (1,))
    house.run()
    assert isinstance(house.said[0], StepReport)
    assert house.said[0].started == ("a",)


def test_what_cannot_be_embedded_is_refused_and_others_go_on() -> None:
    house = House()
    house.ask("a", ())
    house.ask("b", (1,))
    assert house.run() == {"b": [1.0]}
    assert RequestRefused("a", "invalid", "text 0 has no tokens") in house.said


def test_a_model_that_fails_fails_those_it_was_computing() -> None:
    house = House()
    house.ask("a", (13,))
    assert house.run() == {"a": "the model could not compute: unlucky"}
    house.ask("b", (1,))
    assert house.run()["b"] == [1.0]


def test_a_pass_nobody_waits_for_is_given_up() -> None:
    house = House()
    house.ask("a", (1,), (1,))
    house.ask("b", (1,))
    house.work.step()
    house.work.handle(Cancel(("a",)))
    assert house.work.busy
    house.work.handle(Cancel(("b",)))
    assert not house.work.busy
    assert house.run() == {}


def test_many_texts_of_one_request_do_not_stop_another_s() -> None:
    house = House()
    house.ask("many", *[(1,) * 1000] * 500)
    house.work.step()
    house.ask("one", (1, 2))
    steps = 0
    while not any(isinstance(one, EmbedReply) and one.id == "one" for one in house.said):
        house.work.step()
        steps += 1
    assert steps < 15
    assert house.run() == {"one": [2.0], "many": [1000.0] * 500}
    started = [id for one in house.said if isinstance(one, StepReport) for id in one.started]
    assert started == ["many", "one"]


def test_what_is_given_up_between_its_rounds_is_not_gone_on_with() -> None:
    house = House()
    house.ask("many", *[(1,) * 1000] * 20)
    for _ in range(7):
        house.work.step()
    house.work.handle(Cancel(("many",)))
    assert not house.work.busy
    assert house.run() == {}


def test_more_than_fit_together_wait_for_their_turn() -> None:
    house = House()
    for number in range(TOGETHER + 2):
        house.ask(str(number), (1,) * (number + 1))
    assert len(house.run()) == TOGETHER + 2
    started = [one.started for one in house.said if isinstance(one, StepReport) and one.started]
    assert [len(one) for one in started] == [TOGETHER, 2]
