"""May this principal do this to that? Every combination, against a table of its own."""

import re
import time
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.access.scopes import (
    ANY_URGENCY,
    Action,
    Principal,
    Role,
    Scope,
    allows,
    most_urgent,
    parse_scope,
    parse_scopes,
    why_not,
    within_role,
)
from control.errors import Invalid

# What is asked is written "action name ref"; each pattern says all that its owner may ask.
ROLE_MAY = {
    Role.VIEWER: r"(infer|read|pull) .*",
    Role.OPERATOR: r"(infer|read|pull|push|operate|audit) .*",
    Role.ADMIN: r"(infer|read|pull|push|operate|audit|admin) .*",
}
SCOPE_MAY = {
    "infer:digits": r"(infer|read) digits .*",
    "infer:digits*": r"(infer|read) digits(-v2)? .*",
    "infer:*": r"(infer|read) .*",
    "read": r"(read|pull) .*",
    "operate": r"(infer|read|pull|operate|audit) .*",
    "admin": r".*",
    "push:vision": r"(pull|push) vision .*",
    "push:vision:main": r"pull vision .*|push vision refs/heads/main",
    "push:vision:dev/*": r"pull vision .*|push vision refs/heads/dev/x",
    "push:vision:refs/tags/*": r"pull vision .*|push vision refs/tags/v1",
    "push:vis*:main": r"pull vis(ion|ta) .*|push vis(ion|ta) refs/heads/main",
    "push:*": r"(pull|push) .*",
    "priority:-3": r"nothing",
}
NAMES = ("", "digits", "digits-v2", "Digits", "vision", "vista", "*")
REFS = ("", "refs/heads/main", "refs/heads/dev/x", "refs/tags/v1", "refs/heads/*")
ASKED = [(action, name, ref) for action in Action for name in NAMES for ref in REFS]
SCOPE_SETS: list[tuple[str, ...] | None] = [
    None,
    (),
    *((one,) for one in SCOPE_MAY),
    *combinations(SCOPE_MAY, 2),
]


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("texts", SCOPE_SETS, ids=str)
def test_a_principal_may_do_what_both_its_role_and_a_scope_of_it_allow(
    role: Role, texts: tuple[str, ...] | None
) -> None:
    scopes = None if texts is None else tuple(parse_scope(text) for text in texts)
    principal = Principal("token:t", role, scopes)
    wrong = [
        (action, name, ref)
        for action, name, ref in ASKED
        if allows(principal, action, name, ref) != may(role, texts, f"{action} {name} {ref}")
    ]
    assert wrong == []


def may(role: Role, texts: tuple[str, ...] | None, asked: str) -> bool:
    """The table's answer."""
    by_scope = texts is None or any(re.fullmatch(SCOPE_MAY[text], asked) for text in texts)
    return by_scope and re.fullmatch(ROLE_MAY[role], asked) is not None


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("text", SCOPE_MAY)
def test_a_token_gets_only_scopes_that_its_users_role_can_use(role: Role, text: str) -> None:
    needs_operator = text == "operate" or text.startswith(("push", "priority"))
    too_much = (role == Role.VIEWER and needs_operator) or (role != Role.ADMIN and text == "admin")
    if too_much:
        with pytest.raises(Invalid, match=rf"{re.escape(str(parse_scope(text)))}.*{role}"):
            within_role(role, parse_scopes([text]))
    else:
        within_role(role, parse_scopes([text]))


@pytest.mark.parametrize("action", Action)
def test_a_refusal_names_the_role_or_else_the_scope_that_would_do(action: Action) -> None:
    asked = (action, "vision", "refs/heads/main")
    powerless = Principal("token:t", Role.ADMIN, ())
    needed = why_not(powerless, *asked).rpartition(" ")[2]
    assert allows(Principal("token:t", Role.ADMIN, (parse_scope(needed),)), *asked)
    if not allows(Principal("user:v", Role.VIEWER), *asked):
        role = "admin" if action == Action.ADMIN else "operator"
        assert f"that takes the role {role}, not viewer" in why_not(
            Principal("user:v", Role.VIEWER), *asked
        )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "Admin",
        " admin",
        "admin ",
        "admin\n",
        "admin:",
        "admin:*",
        "read:x",
        "operate:x",
        "infer",
        "infer:",
        "infer:a b",
        "infer:a,b",
        "infer:[!a]",
        "infer:?",
        "infer:\x1b[31m",
        "infer:a\x00",
        "infer:a\u202eb",
        "infer:\ud800",
        "infer:" + "a" * 256,
        "push",
        "push:",
        "push::main",
        "push:vision:",
        "push:../x",
        "push:-x",
        "push:Vision",
        "push:vision:a b",
        "pull:vision",
        "audit",
    ],
)
def test_what_is_no_scope_is_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(Invalid, match="is not a scope; give infer:MODEL") as refused:
        parse_scopes(["read", text])
    assert refused.value.field == "scopes"
    assert str(refused.value).isprintable()


def test_no_scope_at_all_is_refused() -> None:
    with pytest.raises(Invalid, match="needs a scope"):
        parse_scopes([])


def test_a_scope_given_twice_counts_once() -> None:
    assert parse_scopes(["push:v:main", "push:v:refs/heads/main"]) == (
        Scope("push", "v", "refs/heads/main"),
    )


HOSTILE = st.one_of(
    st.text(max_size=300),
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["infer:", "push:", "push:m:", "admin", "operate:", "read", "infer"]),
        st.text(max_size=20),
        st.sampled_from(["", ":", "*", "\n", "\x00", "admin", ",admin", " admin"]),
    ),
)


@given(HOSTILE)
def test_a_text_is_refused_or_means_what_its_scope_writes(text: str) -> None:
    try:
        scope = parse_scope(text)
    except Invalid:
        return
    assert parse_scope(str(scope)) == scope
    assert str(scope).isprintable()
    assert text == scope.kind or text.startswith(f"{scope.kind}:")


@given(HOSTILE, st.text(max_size=20))
def test_a_scope_without_a_star_covers_one_name_only(text: str, name: str) -> None:
    try:
        scope = parse_scope(text)
    except Invalid:
        return
    if scope.kind in ("infer", "push") and "*" not in scope.name:
        action = Action.INFER if scope.kind == "infer" else Action.PULL
        assert scope.covers(action, name, "") == (name == scope.name)
        assert scope.covers(action, scope.name, "")


@given(HOSTILE)
def test_only_the_word_admin_makes_an_administrator(text: str) -> None:
    try:
        scope = parse_scope(text)
    except Invalid:
        return
    assert scope.covers(Action.ADMIN, "", "") == (text == "admin")


def test_a_scope_of_many_stars_is_matched_without_trying_every_split() -> None:
    """Backtracking would take longer than anybody waits, not a little longer."""
    scope = parse_scope("infer:" + "a*" * 120 + "b")
    began = time.process_time()
    assert not scope.covers(Action.INFER, "a" * 255, "")
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("role", "scopes", "least"),
    [
        (Role.VIEWER, None, 0),
        (Role.OPERATOR, None, ANY_URGENCY),
        (Role.OPERATOR, ("infer:*",), 0),
        (Role.OPERATOR, ("infer:*", "priority:-5"), -5),
        (Role.OPERATOR, ("priority:-5", "priority:-7"), -7),
        (Role.OPERATOR, ("operate",), ANY_URGENCY),
        (Role.ADMIN, ("admin",), ANY_URGENCY),
        (Role.VIEWER, ("infer:*", "priority:-5"), 0),
    ],
)
def test_the_most_urgent_priority_is_what_an_operator_has_given(
    role: Role, scopes: tuple[str, ...] | None, least: int
) -> None:
    given = None if scopes is None else parse_scopes(scopes)
    assert most_urgent(Principal("x", role, given)) == least
    assert most_urgent(None) == 0


@pytest.mark.parametrize(
    "text", ["priority:0", "priority:5", "priority:-", "priority", "priority:*"]
)
def test_a_priority_that_everybody_has_is_no_scope(text: str) -> None:
    with pytest.raises(Invalid, match="is not a scope"):
        parse_scope(text)


def test_only_operators_can_give_a_priority() -> None:
    with pytest.raises(Invalid, match="priority:-5 is more than the role viewer"):
        within_role(Role.VIEWER, parse_scopes(["priority:-5"]))
    within_role(Role.OPERATOR, parse_scopes(["priority:-5"]))


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("texts", SCOPE_SETS, ids=str)
def test_who_may_operate_may_use_every_model(role: Role, texts: tuple[str, ...] | None) -> None:
    """What a deployed model calls needs no check against the operator who deploys it."""
    scopes = None if texts is None else tuple(map(parse_scope, texts))
    who = Principal("user:ada", role, scopes)
    if allows(who, Action.OPERATE):
        assert all(allows(who, Action.INFER, name) for name in NAMES)
