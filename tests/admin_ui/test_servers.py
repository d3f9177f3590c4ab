"""The page of the servers: what executions hold of the rate limiter's resources."""

from pathlib import Path

from control.gateways.queries import GatewayInstances, LimitedResource, Query
from control.sql.database import Database
from support.console import console_over, person


def page_of(sqlite: Database, folder: Path, *resources: LimitedResource) -> str:
    async def ask(_query: Query) -> GatewayInstances:
        return GatewayInstances(1, 1, 1, (), (), resources)

    with console_over(sqlite, folder, ask_gateway=ask) as running:
        found = person(running, "viewer", "vera").get("/servers")
    assert found.status == 200
    return found.text


def test_resources_are_shown_with_what_is_held_and_who_waits(
    sqlite: Database, tmp_path: Path
) -> None:
    shown = page_of(sqlite, tmp_path, LimitedResource("scratch<b>", "global", 4, 3, 2))
    assert "Resources of executions" in shown
    assert "scratch&lt;b&gt;" in shown
    assert "3 of 4" in shown
    assert '<td class="number">2</td>' in shown


def test_without_limits_there_is_no_such_section(sqlite: Database, tmp_path: Path) -> None:
    assert "Resources of executions" not in page_of(sqlite, tmp_path)
