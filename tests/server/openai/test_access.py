"""Tokens, aliases and routes hold for the OpenAI listener as for every other."""

import hashlib
import http.client
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from control.desired import DesiredArm, DesiredRoute, DesiredState, TokenGrant
from server.desired import disk
from server.routing.table import HEADER_NAME
from support.openai import CONFIG, client, serving, write_language
from support.server import Server, write_identity

ALL_VERSIONS = CONFIG + "version_policy { all {} }\n"
GREEDY: dict[str, Any] = {"prompt": "Once", "temperature": 0, "max_tokens": 6}


def grant(token: str, *scopes: str, role: str = "viewer", **terms: Any) -> TokenGrant:
    digest = hashlib.sha256(token.encode()).hexdigest()
    return TokenGrant(digest, token, f"token:{token}", role, scopes, **terms)


GRANTS = (
    grant("everything", "infer:*"),
    grant("talkers", "infer:talker"),
    grant("chatters", "infer:chat"),
    grant("others", "infer:other"),
    grant("readers", "read"),
    grant("urgent", "infer:*", "priority:-5", role="operator"),
    grant("assumed", "infer:*", "priority:-5"),
    grant("hasty", "infer:*", rate_per_s=0.001, burst=1),
    grant("late", "infer:*", expires=1.0),
)
ARMS = (
    DesiredArm("stable", "talker", 1, "", 5_000),
    DesiredArm("candidate", "talker", 2, "", 5_000),
)
CHAT = DesiredRoute("chat", ARMS, "salt", "parameter:user", (), ())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("gated")
    write_language(folder / "models", config=ALL_VERSIONS)
    write_language(folder / "models", version=2, config=ALL_VERSIONS, num_hidden_layers=1)
    write_identity(folder / "models", "echo")
    aliases = {"talker": {"old": 1, "gone": 7}}
    state = folder / "state"
    state.mkdir()
    disk.keep(state, DesiredState(1, "", aliases=aliases, routes=(CHAT,), grants=GRANTS))
    with serving(
        folder / "models",
        state_dir=str(state),
        inference_auth="token",
        access_log=folder / "log",
        trace_config=["level=TIMESTAMPS", "rate=1", f"triton,file={folder / 'traces'}"],
    ) as one:
        yield one


@pytest.fixture
def known(server: Server) -> Iterator[Callable[[str], OpenAI]]:
    opened: list[OpenAI] = []

    def as_holder(token: str) -> OpenAI:
        opened.append(client(server, api_key=token))
        return opened[-1]

    yield as_holder
    for one in opened:
        one.close()


Known = Callable[[str], OpenAI]


def said(ai: OpenAI, model: str, **changes: Any) -> str:
    return ai.completions.create(model=model, **{**GREEDY, **changes}).choices[0].text


def test_nobody_passes_without_a_token(server: Server, known: Known) -> None:
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize"):
        status, body = server.post(path, {"model": "talker"})
        error = json.loads(body)["error"]
        assert (status, error["code"]) == (401, "invalid_api_key")
        assert error["type"] == "invalid_request_error"
    assert server.get("/v1/models")[0] == server.get("/v1/models/talker")[0] == 401
    for token in ("nobodys", "late"):
        with pytest.raises(openai.AuthenticationError) as caught:
            said(known(token), "talker")
        assert caught.value.response.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    ("token", "allowed", "refused"),
    [("everything", 0, -1), ("assumed", 0, -1), ("urgent", -5, -6)],
)
def test_nobody_passes_by_the_others_without_a_scope_for_it(
    known: Known, token: str, allowed: int, refused: int
) -> None:
    for priority in (allowed, 7):
        assert said(known(token), "talker", extra_body={"priority": priority})
    messages: Any = [{"role": "user", "content": "x"}]
    for ask in (
        lambda: said(known(token), "talker", extra_body={"priority": refused}),
        lambda: known(token).chat.completions.create(
            model="talker", messages=messages, extra_body={"priority": refused}
        ),
    ):
        with pytest.raises(openai.PermissionDeniedError, match=f"priority is {refused}") as caught:
            ask()
        assert caught.value.code == "permission_denied"


def test_a_scope_names_the_models_that_may_be_asked(known: Known) -> None:
    assert said(known("talkers"), "talker")
    assert said(known("talkers"), "talker@old")
    for token, model in (
        ("talkers", "chat"),
        ("chatters", "talker"),
        ("chatters", "talker@old"),
        ("others", "talker"),
        ("readers", "talker"),
    ):
        with pytest.raises(openai.PermissionDeniedError) as caught:
            said(known(token), model)
        assert caught.value.code == "permission_denied"
        with pytest.raises(openai.PermissionDeniedError):
            known(token).post("/tokenize", body={"model": model, "prompt": "x"}, cast_to=object)


def test_the_list_has_what_the_caller_may_ask(known: Known) -> None:
    def names(token: str) -> list[str]:
        return [model.id for model in known(token).models.list()]

    assert names("everything") == ["chat", "talker", "talker@old"]
    assert names("talkers") == ["talker", "talker@old"]
    assert names("chatters") == ["chat"]
    assert names("others") == names("readers") == []
    assert known("talkers").models.retrieve("talker@old").id == "talker@old"
    with pytest.raises(openai.NotFoundError):
        known("others").models.retrieve("talker")


def test_a_token_that_asks_too_often_is_told_when_to_come_back(known: Known) -> None:
    ai = known("hasty")
    assert said(ai, "talker")
    with pytest.raises(openai.RateLimitError) as caught:
        said(ai, "talker")
    assert caught.value.code == "rate_limit_exceeded"
    assert int(caught.value.response.headers["Retry-After"]) > 100


def test_an_alias_is_its_version_and_the_name_the_highest(known: Known) -> None:
    ai = known("everything")
    assert said(ai, "talker@old") != said(ai, "talker")
    old = ai.completions.create(model="talker@old", **GREEDY)
    assert (old.model, old.system_fingerprint) == ("talker@old", "talker-1")
    with pytest.raises(openai.NotFoundError, match="has no alias 'new'; it has gone, old"):
        said(ai, "talker@new")


def test_a_route_leads_each_user_to_one_arm_and_says_which(known: Known) -> None:
    ai = known("chatters")
    whole = known("everything")
    texts = {"stable": said(whole, "talker@old"), "candidate": said(whole, "talker")}
    arms: dict[str, str] = {}
    for user in (f"u{number}" for number in range(12)):
        for stream in (False, True):
            raw = ai.completions.with_raw_response.create(
                model="chat", **GREEDY, user=user, stream=stream
            )
            label = raw.headers[HEADER_NAME]
            assert arms.setdefault(user, label) == label
            answer = raw.parse()
            pieces = list(answer) if stream else [answer]
            text = "".join(piece.choices[0].text for piece in pieces)
            assert text == next(texts[name] for name in texts if name in label)
            assert {piece.model for piece in pieces} == {"chat"}
    assert len(set(arms.values())) == 2


def test_the_access_log_has_principal_model_and_arm(server: Server, known: Known) -> None:
    log = Path(next(one.split("=")[1] for one in server.command if "--access-log=" in one))
    headers = {"X-Request-Id": "noted"}
    known("chatters").completions.create(model="chat", **GREEDY, extra_headers=headers)
    server.wait_for(lambda: '"noted"' in log.read_text(), "the line")
    entry = json.loads(next(row for row in log.read_text().splitlines() if '"noted"' in row))
    assert (entry["model"], entry["principal"]) == ("chat", "token:chatters")
    assert entry["route"].startswith("talker@")


def test_what_is_asked_over_a_route_is_counted_for_its_arms(server: Server, known: Known) -> None:
    def counted() -> float:
        connection = http.client.HTTPConnection(server.metrics, timeout=60)
        connection.request("GET", "/metrics", headers={"Authorization": "Bearer readers"})
        rows = connection.getresponse().read().decode().splitlines()
        connection.close()
        found = [row for row in rows if row.startswith("modelyard_route_requests{")]
        return sum(float(row.rpartition(" ")[2]) for row in found if 'route="chat"' in row)

    before = counted()
    for user in ("ada", "bob", "cyd"):
        said(known("chatters"), "chat", user=user)
    assert counted() == before + 3


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_over_a_route_is_traced_to_its_end_under_the_version_that_answered(
    server: Server, known: Known, stream: bool
) -> None:
    traces = next(one for one in server.command if "triton,file=" in one).rpartition("file=")[2]
    name = f"traced-{stream}"
    raw = known("chatters").completions.with_raw_response.create(
        model="chat", **GREEDY, stream=stream, extra_headers={"X-Request-Id": name}
    )
    if stream:
        list(raw.parse())
    server.wait_for(lambda: f'"{name}"' in Path(traces).read_text(), "the trace")
    text = Path(traces).read_text()
    version = raw.headers[HEADER_NAME].partition(";")[0].rpartition("@")[2]
    begun = text[: text.index(f'"{name}"')].rpartition('"model_name"')[2]
    assert begun.replace(" ", "").startswith(f':"talker","model_version":{version},')
    for point in ("QUEUE_START", "INFER_RESPONSE_COMPLETE", "REQUEST_END"):
        assert point in text
