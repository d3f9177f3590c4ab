"""What a call takes over from the request that causes it, and how deep calls may go."""

from dataclasses import replace
from typing import Any

import pytest

from control.access.scopes import Principal, Role
from schedulers.calls import MOST_DEPTH, NoCaller, call_from, context_of
from schedulers.errors import CallsTooDeep, SchedulingError
from schedulers.request import CallContext, InferRequest, Sequence
from support.schedulers import request

TERMS: dict[str, Any] = {
    "id": "r7",
    "parameters": {"colour": "red"},
    "priority": 2,
    "timeout_us": 500,
    "deadline_ns": 123,
    "sequence": Sequence(7, True, False),
    "principal": Principal("user:ada", Role.VIEWER),
    "trace": object(),
    "number": 41,
    "part": 3,
    "client_id": "mine",
}


def called_by(chain: CallContext, model: str) -> InferRequest:
    """The request that a call makes to `model`."""
    return replace(request(), model=model, context=chain)


def test_a_call_takes_over_what_belongs_to_the_request() -> None:
    outer = request(**TERMS)
    call = call_from(outer, context_of(outer), "callee", {}, covered=True)
    assert {name: getattr(call, name) for name in TERMS} == TERMS
    assert (call.model, call.version, call.covered, call.keeps_version) == (
        "callee",
        "",
        True,
        False,
    )


def test_a_call_may_have_terms_of_its_own() -> None:
    outer = request(**TERMS)
    call = call_from(outer, context_of(outer), "callee", {}, deadline_ns=99, sequence=None)
    assert (call.deadline_ns, call.sequence, call.priority) == (99, None, 2)


def test_calls_of_calls_share_one_root_and_name_everybody_who_waits() -> None:
    outer = context_of(replace(request(), model="first"))
    inner = context_of(called_by(outer, "second"))
    assert inner.root is outer.root
    assert inner.chain == ("first", "second")


class Kept:
    released = 0

    def release(self) -> None:
        self.released += 1


def test_only_the_end_of_the_clients_request_releases_what_is_kept_and_it_does_so_once() -> None:
    outer = context_of(request())
    kept = outer.root.versions["m", ""] = Kept()
    context_of(called_by(outer, "inner")).end()
    assert kept.released == 0
    outer.end()
    outer.end()
    assert kept.released == 1


def deepest(names: list[str]) -> str:
    """What calls are refused with when these models call each other again and again."""
    context = context_of(replace(request(), model=names[0]))
    for depth in range(1, 2 * MOST_DEPTH):
        try:
            context = context_of(called_by(context, names[depth % len(names)]))
        except CallsTooDeep as error:
            assert depth == MOST_DEPTH - 1
            return str(error)
    raise AssertionError("nothing was refused")


@pytest.mark.parametrize(
    ("names", "circle"),
    [
        (["a"], "in a circle, 'a' → 'a', 16 deep"),
        (["a", "b"], "in a circle, 'b' → 'a' → 'b', 16 deep"),
        (["a", "b", "c"], "in a circle, 'a' → 'b' → 'c' → 'a', 16 deep"),
    ],
)
def test_models_that_call_each_other_are_refused_with_their_circle(
    names: list[str], circle: str
) -> None:
    assert circle in deepest(names)


def test_a_chain_that_is_too_long_is_refused_with_its_models() -> None:
    text = deepest([f"m{number}" for number in range(40)])
    assert text.startswith(
        "model 'm15' may not call another model: 16 models are calling each other"
    )
    assert "'m0' → 'm1'" in text


def test_where_no_models_are_served_a_call_says_so() -> None:
    outer = request()
    with pytest.raises(SchedulingError, match="'callee' cannot be called"):
        NoCaller().call(call_from(outer, context_of(outer), "callee", {}))
