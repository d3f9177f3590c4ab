"""Models that load on demand, over the control API and the command line of a whole server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton

from support.server import identity_config
from support.yard import Yard, yard

pytestmark = pytest.mark.slow

SEQUENCES = "sequence_batching { direct {} max_sequence_idle_microseconds: 60000000 }\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    folder = tmp_path_factory.mktemp("residency")
    for name in ("one", "other"):
        write(folder, name)
    config = identity_config("turns").replace("dynamic_batching {}\n", SEQUENCES)
    write(folder, "turns", config, 1, 2)
    with yard(folder, load_on_demand=True) as y:
        y.wait_versions("one", 1)
        y.wait_versions("other", 1)
        y.wait_versions("turns", 1, 2)
        yield y


def write(folder: Path, name: str, config: str = "", *versions: int) -> None:
    home = folder / "models" / name
    for version in versions or (1,):
        (home / str(version)).mkdir(parents=True)
    (home / "config.pbtxt").write_text(config or identity_config(name))


def row(y: Yard, model: str) -> dict[str, Any]:
    status, found = y.api("GET", f"/residency?model={model}")
    assert status == 200, found
    (one,) = found["items"]
    return dict(one)


def each(y: Yard, model: str, field: str) -> list[Any]:
    return [one[field] for one in y.api("GET", f"/residency?model={model}")[1]["items"]]


def begin_sequence(y: Yard, version: str, ends: bool) -> None:
    tensor = triton.InferInput("INPUT0", [1, 2], "FP32")
    tensor.set_data_from_numpy(np.zeros((1, 2), np.float32))
    with triton.InferenceServerClient(f"127.0.0.1:{y.server.http_port}") as client:
        terms = {"sequence_id": 7, "sequence_start": True, "sequence_end": ends}
        client.infer("turns", [tensor], version, **terms)


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


def test_eviction_of_some_versions_is_in_the_audit_though_others_stay(served: Yard) -> None:
    begin_sequence(served, "1", ends=True)
    begin_sequence(served, "2", ends=False)
    held = ["", "has 1 live sequence"]
    served.wait_for(lambda: each(served, "turns", "held_by") == held, "version 1 to be idle")
    status, refused = served.api("POST", "/residency/turns/evict")
    message = "turns version 1 is evicted; turns version 2 has 1 live sequence"
    assert (status, refused["error"]["message"]) == (409, message)
    assert each(served, "turns", "state") == ["unloaded", "loaded"]
    events = served.api("GET", "/events?subject=model:turns&limit=50")[1]["items"]
    assert [one["kind"] for one in events].count("residency.evicted") == 1


def test_model_that_does_not_load_on_demand_is_refused_by_name(served: Yard) -> None:
    status, refused = served.api("PUT", "/residency/absent/pin")
    assert status == 409
    assert "no version of 'absent' loads on demand" in refused["error"]["message"]
