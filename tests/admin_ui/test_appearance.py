"""The look somebody chose is kept, and is in the page from its first byte."""

from support.admin import Api
from support.console import Person, person


def test_a_chosen_theme_is_in_the_next_page_and_can_be_left_to_the_system(running: Api) -> None:
    ada = person(running, "admin", "ada")
    assert "data-theme" not in ada.get("/models").text
    found = ada.post("/theme", {"theme": "dark", "next": "/models?q=d"})
    assert found.status == 303
    assert found.headers["location"] == "/models?q=d"
    assert "modelyard_theme=dark" in found.headers["set-cookie"]
    chosen = f"{ada.cookie}"
    shown = ada.get("/models", Cookie=f"modelyard_session={chosen}; modelyard_theme=dark").text
    assert '<html lang="en" data-theme="dark">' in shown
    cleared = ada.post("/theme", {"theme": "", "next": "/"})
    assert 'modelyard_theme=""' in cleared.headers["set-cookie"]


def test_the_way_back_is_one_of_ours(running: Api) -> None:
    ada = person(running, "admin", "ada")
    found = ada.post("/theme", {"theme": "dark", "next": "https://elsewhere.example/"})
    assert found.headers["location"] == "/"


def test_the_page_to_log_in_has_it_as_well(running: Api) -> None:
    nobody = Person(running)
    shown = nobody.get("/login", Cookie="modelyard_theme=light").text
    assert 'data-theme="light"' in shown
    assert "data-theme" not in nobody.get("/login", Cookie='modelyard_theme="><script>').text
