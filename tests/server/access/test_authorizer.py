"""The gate's decision: who, whether, how often; on a clock of its own."""

import pytest

from control.access.scopes import Action
from server.access.authorizer import LONGEST_SHOWN, MOST_SHOWN, Authorizer, public_name
from server.access.token_holder import LONGEST_NAME, MOST_NAMES
from server.errors import Forbidden, RateLimited, ServingError, Unauthenticated
from support.access import grant


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def gate(clock: Clock, required: bool = False) -> Authorizer:
    found = Authorizer(required, clock, clock)
    found.use([grant("a", "viewer", "infer:digits")])
    return found


def refusal(gate: Authorizer, token: str, name: str = "digits") -> ServingError | None:
    return gate.judge(f"Bearer {token}", Action.INFER, name).refusal


def test_an_open_gate_without_tokens_has_nothing_to_watch() -> None:
    found = Authorizer()
    assert not found.watches
    found.use([grant("a")])
    assert found.watches
    found.use([])
    assert not found.watches
    assert Authorizer(required=True).watches


def test_whoever_shows_no_token_or_an_unknown_one_is_anybody_at_an_open_gate(clock: Clock) -> None:
    for header in (None, "", "Bearer EMPTY", "Basic e", "nonsense"):
        assert gate(clock).judge(header, Action.OPERATE) == (None, None)


def test_a_gate_that_requires_tokens_says_what_it_wants(clock: Clock) -> None:
    found = gate(clock, required=True)
    missing = found.judge(None, Action.INFER, "digits").refusal
    assert isinstance(missing, Unauthenticated)
    assert "Authorization: Bearer TOKEN" in str(missing)
    assert str(refusal(found, "EMPTY")) == "this token is unknown, revoked or expired"
    principal, refused = found.judge("Bearer a", Action.INFER, "digits")
    assert (principal and principal.id, refused) == ("token:a", None)


def test_a_known_token_is_held_to_its_scopes_at_an_open_gate_too(clock: Clock) -> None:
    principal, refused = gate(clock).judge("Bearer a", Action.INFER, "letters")
    assert isinstance(refused, Forbidden)
    assert "it lacks the scope infer:letters" in str(refused)
    assert principal is not None
    assert refusal(gate(clock), "a") is None


def test_a_verdict_keeps_nothing_alive_of_the_turn_it_was_made_in(clock: Clock) -> None:
    refused = refusal(gate(clock, required=True), "wrong")
    assert refused is not None
    assert refused.__traceback__ is None


def test_an_expired_token_is_refused(clock: Clock) -> None:
    found = Authorizer(wall=clock)
    found.use([grant("a", expires=1001.0)])
    assert refusal(found, "a") is None
    clock.now = 1001.0
    assert isinstance(refusal(found, "a"), Unauthenticated)


def test_a_token_asks_no_more_often_than_its_rate(clock: Clock) -> None:
    found = Authorizer(monotonic=clock)
    found.use([grant("a", rate_per_s=2.0, burst=3), grant("b")])
    assert [refusal(found, "a") for _ in range(3)] == [None] * 3
    refused = refusal(found, "a")
    assert isinstance(refused, RateLimited)
    assert refused.retry_after_s == pytest.approx(0.5)
    assert refusal(found, "b") is None
    clock.now += 0.5
    assert refusal(found, "a") is None
    assert isinstance(refusal(found, "a"), RateLimited)


def test_what_was_used_of_a_rate_stays_used_when_grants_are_replaced(clock: Clock) -> None:
    found = Authorizer(monotonic=clock)
    found.use([grant("a", rate_per_s=1.0, burst=1)])
    assert refusal(found, "a") is None
    found.use([grant("a", "operator", rate_per_s=1.0, burst=1), grant("b")])
    assert isinstance(refusal(found, "a"), RateLimited)


def test_a_replaced_table_forgets_what_a_token_could_do(clock: Clock) -> None:
    found = gate(clock, required=True)
    assert refusal(found, "a") is None
    found.use([grant("a", "viewer", "infer:letters")])
    assert isinstance(refusal(found, "a"), Forbidden)
    holder = found.recognise("Bearer a")
    assert holder is not None
    found.use([])
    assert isinstance(refusal(found, "a"), Unauthenticated)
    with pytest.raises(Unauthenticated, match="was revoked"):
        found.readmit(holder)


def test_a_grant_of_no_known_form_is_nobodys(clock: Clock) -> None:
    found = Authorizer(required=True)
    found.use(
        [grant("a", "wizard"), grant("b", "viewer", "dance"), grant("c", "viewer", "infer:*")]
    )
    assert [type(refusal(found, token)) for token in "abc"] == [
        Unauthenticated,
        Unauthenticated,
        type(None),
    ]


def test_headers_remembered_are_bounded_and_only_those_of_known_tokens() -> None:
    found = Authorizer(required=True)
    found.use([grant(f"t{number}") for number in range(MOST_SHOWN + 10)])
    for number in range(MOST_SHOWN + 10):
        assert refusal(found, f"t{number}") is None
        assert refusal(found, f"wrong{number}") is not None
    assert refusal(found, "t0" + " " * LONGEST_SHOWN) is None
    assert len(found._shown) == 10


def test_names_remembered_for_a_token_are_bounded(clock: Clock) -> None:
    found = Authorizer()
    found.use([grant("a")])
    for number in range(MOST_NAMES + 10):
        assert refusal(found, "a", f"m{number}") is None
    assert refusal(found, "a", "m" * (LONGEST_NAME + 1)) is None
    holder = found.recognise("Bearer a")
    assert holder is not None
    assert len(holder._infers) == 10
    assert max(map(len, holder._infers)) <= LONGEST_NAME


@pytest.mark.parametrize(
    ("name", "public"),
    [
        ("digits", "digits"),
        ("digits@champion", "digits"),
        ("digits@nothing", "digits"),
        ("letters@champion", "letters@champion"),
        ("digits@x@champion", "digits@x@champion"),
        ("", ""),
    ],
)
def test_an_alias_counts_as_its_model_where_the_model_has_aliases(name: str, public: str) -> None:
    assert public_name(name, {"digits": {"champion": 3}, "letters": {}}) == public
