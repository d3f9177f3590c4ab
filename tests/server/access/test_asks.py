"""What paths and RPCs ask for; that none of those a door answers is forgotten."""

from typing import Any

import pytest
from tritonclient.grpc import service_pb2 as pb

from control.access.scopes import Action
from grpc_support import Shelf
from server.access.asks import RPCS, Ask, ask_of_path
from server.dataplane import DataPlane
from server.grpc.door import _Service


def test_every_rpc_that_is_answered_says_what_it_asks_for() -> None:
    methods = _Service(DataPlane(Shelf([]), "modelyard", "0")).methods
    assert {path.rpartition("/")[2] for path in methods} == set(RPCS)


@pytest.mark.parametrize(
    ("verb", "path", "ask"),
    [
        ("POST", "/v2/models/m/infer", Ask(Action.INFER, "m")),
        ("POST", "/v2/models/m@a/versions/3/generate", Ask(Action.INFER, "m@a")),
        ("GET", "/v2/health/live", None),
        ("GET", "/v2/models/m/ready", Ask(Action.READ, "m")),
        ("GET", "/v2/models/stats", Ask(Action.READ)),
        ("GET", "/v2/models/stats/stats", Ask(Action.READ, "stats")),
        ("GET", "/v2/models/m/config", Ask(Action.READ, "m")),
        ("GET", "/v2", Ask(Action.READ)),
        ("HEAD", "/v2/logging", Ask(Action.READ)),
        ("POST", "/v2/logging", Ask(Action.OPERATE)),
        ("GET", "/v2/models/m/trace/setting", Ask(Action.READ, "m")),
        ("POST", "/v2/models/m/trace/setting", Ask(Action.OPERATE)),
        ("POST", "/v2/repository/index", Ask(Action.READ)),
        ("POST", "/v2/repository/models/index/load", Ask(Action.OPERATE)),
        ("GET", "/v2/systemsharedmemory/region/status/status", Ask(Action.READ)),
        ("POST", "/v2/systemsharedmemory/region/status/unregister", Ask(Action.OPERATE)),
        ("GET", "/nothing/here", Ask(Action.READ)),
        ("POST", "/v1/chat/completions", None),
        ("GET", "/v1/models/m", None),
        ("POST", "/detokenize", None),
        ("POST", "/v1s/chat", Ask(Action.READ)),
        ("GET", "/metrics", Ask(Action.READ)),
        ("POST", "/v2/models/a\nb/infer", Ask(Action.INFER, "a\nb")),
    ],
)
def test_paths_ask(verb: str, path: str, ask: Ask | None) -> None:
    assert ask_of_path(verb, path) == ask


@pytest.mark.parametrize(
    ("method", "message", "ask"),
    [
        ("ModelInfer", pb.ModelInferRequest(model_name="m"), Ask(Action.INFER, "m")),
        ("ModelStatistics", pb.ModelStatisticsRequest(), Ask(Action.READ)),
        ("ModelConfig", pb.ModelConfigRequest(name="m"), Ask(Action.READ, "m")),
        ("TraceSetting", pb.TraceSettingRequest(model_name="m"), Ask(Action.READ, "m")),
        ("LogSettings", pb.LogSettingsRequest(), Ask(Action.READ)),
        ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(), Ask(Action.OPERATE)),
    ],
)
def test_rpcs_ask(method: str, message: Any, ask: Ask) -> None:
    ask_of = RPCS[method]
    assert ask_of is not None
    assert ask_of(message) == ask


def test_changing_settings_by_rpc_takes_an_operator() -> None:
    clearing = pb.TraceSettingRequest(model_name="m")
    clearing.settings["trace_rate"].SetInParent()
    logging = pb.LogSettingsRequest()
    logging.settings["log_info"].bool_param = False
    for method, message in (("TraceSetting", clearing), ("LogSettings", logging)):
        ask_of = RPCS[method]
        assert ask_of is not None
        assert ask_of(message) == Ask(Action.OPERATE)
