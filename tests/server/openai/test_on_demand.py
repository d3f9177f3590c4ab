"""Language models that their first request loads, with memory for one of them at a time."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from openai import OpenAI

from support.llm_served import generate
from support.openai import CONFIG, client, serving, write_language
from support.server import Server

pytestmark = pytest.mark.slow

ON_DEMAND = CONFIG + "".join(
    f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}\n'
    for name, value in (("load_on_demand", "true"), ("min_residency_secs", "0"))
)
ROOM_FOR_ONE = "cpu=600MiB"
LONG = 8192


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("models")
    for name in ("first", "second"):
        write_language(repository, name, config=ON_DEMAND, max_position_embeddings=LONG)
    with serving(repository, memory_budget=ROOM_FOR_ONE, on_demand_timeout_secs=90) as one:
        yield one


@pytest.fixture(scope="module")
def ai(server: Server) -> Iterator[OpenAI]:
    with client(server) as one:
        yield one.with_options(max_retries=0)


def ask(ai: OpenAI, model: str, tokens: int = 4) -> str:
    answer = ai.completions.create(
        model=model,
        prompt="once",
        max_tokens=tokens,
        temperature=0,
        extra_body={"ignore_eos": True},
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens == tokens
    return answer.choices[0].text


def loads(server: Server, model: str) -> int:
    """How often its engine has been started."""
    lines = server.log().splitlines()
    return sum(f"{model}_0: computes with" in line for line in lines)


def test_the_first_requests_share_one_load(server: Server, ai: OpenAI) -> None:
    assert {one.id for one in ai.models.list()} == {"first", "second"}
    assert loads(server, "first") == 0

    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda _: ask(ai, "first"), range(8)))

    assert len(set(texts)) == 1
    assert loads(server, "first") == 1


def test_a_model_that_answers_is_not_evicted_and_one_that_is_idle_is(
    server: Server, ai: OpenAI
) -> None:
    with ai.completions.create(
        model="first", prompt="once", max_tokens=6000, stream=True, extra_body={"ignore_eos": True}
    ) as stream:
        events = iter(stream)
        next(events)
        # OpenAI's requests have no deadline; those of KServe count in microseconds.
        status, refused = generate(server, "second", "once", max_tokens=4, timeout=2_000_000)
        assert next(events).choices[0].finish_reason is None

    assert (status, refused["error"]) == (503, "Request timeout expired")
    before = loads(server, "first")
    ask(ai, "second")
    ask(ai, "first")
    assert loads(server, "first") == before + 1
