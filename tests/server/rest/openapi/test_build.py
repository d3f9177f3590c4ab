"""The description of REST: complete, sound, and readable without anything from elsewhere."""

import http.client
import re
from collections.abc import Iterator
from html import escape
from html.parser import HTMLParser
from typing import Any

import orjson
import pytest
from starlette.routing import Route

from server import VERSION
from server.access.permissions import is_openai
from server.dataplane import DataPlane
from server.openai.endpoints import OpenAIEndpoints
from server.openai.openapi_operations import LANGUAGE_OPERATIONS
from server.rest.app import rest_app
from server.rest.endpoint import BodyLimits
from server.rest.openapi.build import document
from server.rest.openapi.docs_page import STYLE, page
from support.grpc import Shelf
from support.server import Server, running

DOCUMENT = document("modelyard", "0.0.0", LANGUAGE_OPERATIONS)


def app() -> Any:
    dataplane, limits = DataPlane(Shelf([]), "modelyard", "0.0.0"), BodyLimits(1 << 20, 100)
    return rest_app(dataplane, limits, more=OpenAIEndpoints(dataplane, limits).routes())


def served() -> set[tuple[str, str]]:
    """(verb, path) of every route of the application."""
    return {
        (verb.lower(), route.path)
        for route in app().routes
        if isinstance(route, Route)
        for verb in route.methods or ()
        if verb != "HEAD"
    }


def described() -> set[tuple[str, str]]:
    return {(verb, path) for path, verbs in DOCUMENT["paths"].items() for verb in verbs}


def test_every_route_is_described_and_everything_described_is_a_route() -> None:
    assert served() - described() == set()
    assert described() - served() == set()


def operations() -> Iterator[tuple[str, str, Any]]:
    for path, verbs in DOCUMENT["paths"].items():
        for verb, operation in verbs.items():
            yield path, verb, operation


def test_every_operation_names_its_path_parameters_and_itself_once() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(names) == len(set(names))
    for path, _, operation in operations():
        found = [row["name"] for row in operation["parameters"] if row["in"] == "path"]
        assert found == re.findall(r"\{(\w+)\}", path)


def test_every_reference_leads_to_a_schema_and_every_schema_is_used() -> None:
    text = orjson.dumps(DOCUMENT).decode()
    used = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    assert used == DOCUMENT["components"]["schemas"].keys()


def test_every_error_is_the_envelope_of_its_api() -> None:
    for path, verb, operation in operations():
        for status, answer in operation["responses"].items():
            if status != "200" and "content" in answer:
                schema = answer["content"]["application/json"]["schema"]
                envelope = "OpenAIError" if is_openai(path) else "Error"
                found = {"$ref": f"#/components/schemas/{envelope}"}
                assert schema == found, (path, verb, status)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("models"), id="yard") as one:
        yield one


def get(server: Server, path: str) -> tuple[dict[str, str], bytes]:
    """Headers, by lower-case name, and body."""
    connection = http.client.HTTPConnection(server.http, timeout=60)
    connection.request("GET", path)
    response = connection.getresponse()
    assert response.status == 200
    found = {name.lower(): value for name, value in response.getheaders()}, response.read()
    connection.close()
    return found


def test_the_document_is_served_with_the_name_and_version_of_the_server(server: Server) -> None:
    headers, body = get(server, "/openapi.json")
    assert headers["content-type"] == "application/json"
    assert orjson.loads(body) == document("yard", VERSION, LANGUAGE_OPERATIONS)


def test_the_root_says_where_to_go_on(server: Server) -> None:
    found = orjson.loads(get(server, "/")[1])
    assert (found["name"], found["version"]) == ("yard", VERSION)
    for target in found["links"].values():
        assert server.get(target)[0] == 200


class Reader(HTMLParser):
    """What a page links to, loads and runs; and whether its elements close."""

    VOID = frozenset({"meta", "wbr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: set[str] = set()
        self.targets: list[str] = []
        self.ids: list[str] = []
        self.styled = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            self.styled |= name == "style"
            if name in ("href", "src"):
                self.targets.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def reader() -> Reader:
    found = Reader()
    found.feed(page(DOCUMENT))
    assert not found.open
    return found


def test_the_page_needs_nothing_from_elsewhere_and_runs_nothing(reader: Reader) -> None:
    assert not reader.elements & {"script", "link", "img", "iframe", "form", "object"}
    assert not reader.styled
    assert "url(" not in STYLE
    assert "@import" not in STYLE
    assert all(target.startswith(("#", "/")) for target in reader.targets)


def test_links_of_the_page_lead_to_something(reader: Reader) -> None:
    assert len(reader.ids) == len(set(reader.ids))
    missing = {target for target in reader.targets if target[0] == "#"} - {
        f"#{one}" for one in reader.ids
    }
    assert not missing


def test_the_page_shows_every_path_and_summary() -> None:
    text = page(DOCUMENT).replace("<wbr>", "")
    for path, _, operation in operations():
        assert path in text
        assert escape(operation["summary"]) in text


def test_names_in_the_page_are_escaped() -> None:
    assert "<b>" not in page(document("<b>", '"&', LANGUAGE_OPERATIONS))


def test_the_policy_of_the_page_allows_its_own_style_alone(server: Server) -> None:
    headers, body = get(server, "/docs")
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["x-content-type-options"] == "nosniff"
    assert body.decode() == page(document("yard", VERSION, LANGUAGE_OPERATIONS))
