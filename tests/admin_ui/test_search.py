"""Search finds what has a page, the nearest name first, and only what one may see."""

from admin_ui.pages.search import SearchResult, ranked, requests_of
from support.admin import Api
from support.console import person

ROWS = [
    SearchResult("shop digits", "route", "", "/1"),
    SearchResult("digits", "model", "", "/2"),
    SearchResult("digits 2", "version", "", "/3"),
    SearchResult("faces", "model", "of digits' repository", "/4"),
]


def test_the_name_itself_comes_first_then_beginnings_then_the_rest() -> None:
    assert [one.to for one in ranked(ROWS, "Digits")] == ["/2", "/3", "/1", "/4"]


def test_all_words_are_looked_for_in_name_kind_and_about() -> None:
    assert [one.to for one in ranked(ROWS, "digits version")] == ["/3"]
    assert ranked(ROWS, "digits nothing") == []


def test_one_word_may_be_the_id_of_a_request() -> None:
    (found,) = requests_of("order-17")
    assert (found.kind, found.to) == ("request", "/requests?id=order-17")
    assert requests_of("two words") == requests_of("a1") == requests_of("digits") == []


def test_requests_are_offered_to_operators_only(night: Api) -> None:
    def kinds(role: str) -> set[str]:
        found = person(night, role, role).get("/search?q=order-17", Accept="application/json")
        return {one["kind"] for one in found.json["items"]}

    assert kinds("operator") == {"request"}
    assert kinds("viewer") == set()


def test_models_versions_pushes_settings_and_docs_are_found(night: Api) -> None:
    night.local("PUT", "/models/digits/aliases/champion", {"version": 1})
    ada = person(night, "admin", "ada")

    def kinds(q: str) -> set[str]:
        found = ada.get(f"/search?q={q}", Accept="application/json").json["items"]
        return {one["kind"] for one in found}

    assert {"model", "alias"} <= kinds("digits")
    assert "repository" in kinds("vision")
    assert "push" in kinds("vision")
    assert "user" in kinds("ada")
    assert "docs" in kinds("rollouts")


def test_who_is_no_admin_finds_no_user_and_no_setting(night: Api) -> None:
    night.user("iris", "admin")
    vera = person(night, "viewer")
    found = vera.get("/search?q=iris", Accept="application/json").json["items"]
    assert not [one for one in found if one["kind"] in ("user", "setting")]


def test_without_scripts_it_is_a_page(night: Api) -> None:
    shown = person(night, "viewer").get("/search?q=digits").text
    assert '<a href="/models/digits">digits</a>' in shown
    assert (
        "Nothing has all of these words" in person(night, "viewer", "v2").get("/search?q=zz").text
    )
