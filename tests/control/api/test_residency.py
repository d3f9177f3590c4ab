"""Models that load on demand, over the control API and the command line of a whole server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.server import identity_config
from support.yard import Yard, yard

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    folder = tmp_path_factory.mktemp("residency")
    for name in ("one", "other"):
        write(folder, name)
    with yard(folder, load_on_demand=True) as y:
        y.wait_versions("one", 1)
        y.wait_versions("other", 1)
        yield y


def write(folder: Path, name: str) -> None:
    home = folder / "models" / name
    (home / "1").mkdir(parents=True)
    (home / "config.pbtxt").write_text(identity_config(name))


def row(y: Yard, model: str) -> dict[str, Any]:
    status, found = y.api("GET", f"/residency?model={model}")
    assert status == 200, found
    (one,) = found["items"]
    return dict(one)


def test_operator_loads_evicts_and_pins_and_events_say_so(served: Yard) -> None:
    assert (row(served, "one")["state"], row(served, "one")["pinned"]) == ("unloaded", False)
    assert served.api("POST", "/residency/one/load")[0] == 200
    served.wait_for(lambda: row(served, "one")["state"] == "loaded", "it to be loaded")
    assert served.api("POST", "/residency/one/evict")[0] == 200
    served.wait_for(lambda: row(served, "one")["state"] == "unloaded", "it to be unloaded")
    assert served.api("PUT", "/residency/one/pin")[0] == 200
    served.wait_for(lambda: row(served, "one")["state"] == "loaded", "the pin to load it")
    status, refused = served.api("POST", "/residency/one/evict")
    assert (status, refused["error"]["message"]) == (409, "one version 1 is pinned")
    assert row(served, "one")["held_by"] == "is pinned"
    assert served.api("DELETE", "/residency/one/pin")[0] == 200
    assert row(served, "one")["pinned"] is False
    events = served.api("GET", "/events?subject=model:one&limit=50")[1]["items"]
    kinds = [one["kind"] for one in events if one["kind"].startswith("residency.")]
    assert kinds == [f"residency.{done}" for done in ("loaded", "evicted", "pinned", "unpinned")]


def test_pin_is_kept_across_a_restart(served: Yard) -> None:
    assert "'other' is pinned" in served.cli("residency", "pin", "other")
    served.again()
    served.wait_for(lambda: row(served, "other")["state"] == "loaded", "the pin to load it")
    (listed,) = served.cli_json("residency", "list", "other")
    assert (listed["pinned"], listed["held_by"]) == (True, "is pinned")
    assert "'other' is not pinned" in served.cli("residency", "unpin", "other")
    assert "until its next request" in served.cli("residency", "evict", "other")


def test_model_that_does_not_load_on_demand_is_refused_by_name(served: Yard) -> None:
    status, refused = served.api("PUT", "/residency/absent/pin")
    assert status == 409
    assert "no version of 'absent' loads on demand" in refused["error"]["message"]
