"""The description, held against the API: what Schemathesis makes of it does no harm, and answers
are what it says."""

import copy
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode

from control.api.openapi import document
from control.deployments.repositories import create_repository
from control.experiments.analysis import record_points
from control.sql.database import SYSTEM, Database
from server import VERSION
from support.admin import Api, api
from support.deployed import deploy

ANSWER_SECS = 60.0
CASES, MANY = 60, 500
EXISTING = {
    "user": ["ada", "bob"],
    "repository": ["vision", "empty"],
    "model": ["digits"],
    "version": [1, 2, 3],
    "alias": ["champion"],
}


@pytest.fixture
def served(database: Database, tmp_path: Path) -> Iterator[Api]:
    with api(database, tmp_path) as running:
        deploy(database)
        running.user("ada", "admin")
        with database.change(SYSTEM) as tx:
            create_repository(tx, "empty")
        yield running


def aimed(whole: dict[str, Any]) -> dict[str, Any]:
    """A copy of the description whose paths only allow names that exist."""
    found = copy.deepcopy(whole)
    for verbs in found["paths"].values():
        for operation in verbs.values():
            for row in operation["parameters"]:
                if row["in"] == "path" and row["name"] in EXISTING:
                    row["schema"] = {"enum": EXISTING[row["name"]]}
    return found


def cases(running: Api) -> st.SearchStrategy[Case]:
    whole = running.ask("GET", "/openapi.json").json
    schemas = [schemathesis.openapi.from_dict(one) for one in (whole, aimed(whole))]
    for schema in schemas:
        schema.config.update(base_url=running.url)
    found = [one.ok() for schema in schemas for one in schema.get_all_operations()]
    return st.one_of(*(one.as_strategy(mode) for one in found for mode in GenerationMode))


def send(running: Api, count: int) -> Counter[str]:
    """What was wrong with the answers to `count` cases, and how often."""
    wrong: Counter[str] = Counter()
    headers = {"Authorization": f"Bearer {running.token('ada', 'admin')}"}

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(running))
    def run(case: Case) -> None:
        answer = case.call(session=session, timeout=ANSWER_SECS, headers=headers)
        said = case.operation.definition.raw["responses"]
        if answer.status_code >= 500 or str(answer.status_code) not in said:
            asked = f"{case.operation.label} {case.query!r:.200} {case.body!r:.200}"
            wrong[f"{asked}: {answer.status_code} {answer.content[:200]!r}"] += 1
        elif case.method == "GET" and answer.status_code == 200:
            case.operation.validate_response(answer)

    with requests.Session() as session:
        run()
    return wrong


@pytest.mark.slow
def test_thousands_of_generated_requests_do_no_harm(served: Api) -> None:
    assert not send(served, MANY)


def test_every_operation_says_all_there_is_to_say() -> None:
    whole = document(VERSION)
    assert whole["openapi"] == "3.1.0"
    operations = [one for verbs in whole["paths"].values() for one in verbs.values()]
    assert len({one["operationId"] for one in operations}) == len(operations)
    for one in operations:
        assert one["summary"]
        assert one["description"]
        assert {"400", "421", "500", "503"} <= set(one["responses"])


def test_everything_referred_to_is_there() -> None:
    whole = document(VERSION)
    names = set()
    waiting: list[Any] = [whole]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if "$ref" in node:
                names.add(node["$ref"].rpartition("/")[2])
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    assert names == set(whole["components"]["schemas"])


ROUTE = {
    "arms": [
        {"name": "stable", "model": "digits", "version": 1, "weight": 90},
        {"name": "candidate", "model": "digits", "alias": "champion", "weight": 10},
    ],
    "unit": "header:x-user",
    "matches": [{"header": "x-tester", "value": "yes", "arm": "candidate"}],
    "mirrors": [{"arm": "candidate", "percent": 5}],
}


ONE_ARM = {"arms": [{"name": "stable", "model": "digits", "version": 1, "weight": 100}]}
TRIAL = {
    "name": "colour",
    "route": "numbers",
    "metrics": [
        {"name": "conversion", "kind": "proportion", "direction": "up", "minimal_effect": 0.01}
    ],
}


@pytest.mark.parametrize(
    "path",
    [
        "/users",
        "/users/ada",
        "/tokens",
        "/repositories",
        "/repositories/vision",
        "/pushes",
        "/models",
        "/models/digits",
        "/models/digits/versions",
        "/models/digits/versions/2",
        "/aliases",
        "/imports",
        "/models/digits/aliases/champion",
        "/routes",
        "/routes/numbers",
        "/routes/numbers/explain?unit=ada",
        "/rollouts",
        "/rollouts/ROLLOUT",
        "/rollouts/ROLLOUT/standing",
        "/experiments",
        "/experiments/colour",
        "/experiments/colour/analysis",
        "/experiments/colour/series?metric=conversion&arm=candidate",
        "/events?after=0",
        "/audit",
        "/server",
        "/servers",
        "/settings",
        "/me",
    ],
)
def test_an_answer_has_exactly_the_fields_that_are_described(populated: Api, path: str) -> None:
    schema = schemathesis.openapi.from_dict(closed(document(VERSION)))
    verbs = {
        one.ok().path: one.ok() for one in schema.get_all_operations() if one.ok().method == "get"
    }
    path = path.replace("ROLLOUT", populated.rollout)
    answer = requests.get(
        f"{populated.url}/api/v1{path}", headers=populated.admin, timeout=ANSWER_SECS
    )
    template = next(
        one for one in sorted(verbs) if matches(one, f"/api/v1{path.partition('?')[0]}")
    )
    assert answer.status_code == 200
    if "items" in answer.json():
        assert answer.json()["items"]
    verbs[template].validate_response(answer)


def test_a_few_generated_requests_do_no_harm(populated: Api) -> None:
    assert not send(populated, CASES)
    assert populated.ask("GET", "//readyz").status == 200


def matches(template: str, path: str) -> bool:
    parts, wanted = template.split("/"), path.split("/")
    return len(parts) == len(wanted) and all(
        one == other or one.startswith("{") for one, other in zip(parts, wanted, strict=True)
    )


def closed(whole: dict[str, Any]) -> dict[str, Any]:
    """A copy whose objects allow no field that is not described."""
    found = copy.deepcopy(whole)
    for schema in found["components"]["schemas"].values():
        if "properties" in schema:
            schema["additionalProperties"] = False
    return found


@pytest.fixture(scope="module")
def populated(tmp_path_factory: pytest.TempPathFactory, migrated_sqlite: Path) -> Iterator[Api]:
    folder = tmp_path_factory.mktemp("populated")
    shutil.copy(migrated_sqlite, folder / "modelyard.db")
    database = Database(f"sqlite:///{folder}/modelyard.db")
    with api(database, folder) as running:
        deploy(database)
        running.user("ada", "admin")
        running.admin = {"Authorization": f"Bearer {running.token('ada', 'admin')}"}
        running.local("PUT", "/models/digits/aliases/champion", {"version": 2})
        running.local("PUT", "/routes/numbers", ROUTE)
        running.local("PUT", "/routes/digits", ONE_ARM)
        made = running.local("POST", "/rollouts", {"name": "digits", "candidate": 2})
        running.rollout = made.json["id"]
        assert running.local("POST", "/experiments", TRIAL).status == 201
        assert running.local("POST", "/experiments/colour/start").status == 200
        with database.change(SYSTEM) as tx:
            assert record_points(tx) == 1
        running.local("POST", "/imports", {"url": "https://example.com/m.onnx", "model": "m"})
        yield running
    database.close()
