"""What paths and RPCs ask for; that none of those a listener answers is forgotten."""

from typing import Any

import pytest
from tritonclient.grpc import service_pb2 as pb

from control.access.scopes import Action
from server.access.permissions import RPCS, Permission, ask_of_path
from server.dataplane import DataPlane
from server.grpc.service import _InferenceService
from support.grpc import Shelf


def test_every_rpc_that_is_answered_says_what_it_asks_for() -> None:
    methods = _InferenceService(DataPlane(Shelf([]), "modelyard", "0")).methods
    assert {path.rpartition("/")[2] for path in methods} == set(RPCS)


@pytest.mark.parametrize(
    ("verb", "path", "ask"),
    [
        ("POST", "/v2/models/m/infer", Permission(Action.INFER, "m")),
        ("POST", "/v2/models/m@a/versions/3/generate", Permission(Action.INFER, "m@a")),
        ("GET", "/v2/health/live", None),
        ("GET", "/v2/models/m/ready", Permission(Action.READ, "m")),
        ("GET", "/v2/models/stats", Permission(Action.READ)),
        ("GET", "/v2/models/stats/stats", Permission(Action.READ, "stats")),
        ("GET", "/v2/models/m/config", Permission(Action.READ, "m")),
        ("GET", "/v2", Permission(Action.READ)),
        ("HEAD", "/v2/logging", Permission(Action.READ)),
        ("POST", "/v2/logging", Permission(Action.OPERATE)),
        ("GET", "/v2/models/m/trace/setting", Permission(Action.READ, "m")),
        ("POST", "/v2/models/m/trace/setting", Permission(Action.OPERATE)),
        ("POST", "/v2/repository/index", Permission(Action.READ)),
        ("POST", "/v2/repository/models/index/load", Permission(Action.OPERATE)),
        ("GET", "/v2/systemsharedmemory/region/status/status", Permission(Action.READ)),
        ("POST", "/v2/systemsharedmemory/region/status/unregister", Permission(Action.OPERATE)),
        ("GET", "/nothing/here", Permission(Action.READ)),
        ("POST", "/v1/chat/completions", None),
        ("GET", "/v1/models/m", None),
        ("POST", "/detokenize", None),
        ("POST", "/v1s/chat", Permission(Action.READ)),
        ("GET", "/metrics", Permission(Action.READ)),
        ("POST", "/v2/models/a\nb/infer", Permission(Action.INFER, "a\nb")),
    ],
)
def test_paths_ask(verb: str, path: str, ask: Permission | None) -> None:
    assert ask_of_path(verb, path) == ask


@pytest.mark.parametrize(
    ("method", "message", "ask"),
    [
        ("ModelInfer", pb.ModelInferRequest(model_name="m"), Permission(Action.INFER, "m")),
        ("ModelStatistics", pb.ModelStatisticsRequest(), Permission(Action.READ)),
        ("ModelConfig", pb.ModelConfigRequest(name="m"), Permission(Action.READ, "m")),
        ("TraceSetting", pb.TraceSettingRequest(model_name="m"), Permission(Action.READ, "m")),
        ("LogSettings", pb.LogSettingsRequest(), Permission(Action.READ)),
        ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(), Permission(Action.OPERATE)),
    ],
)
def test_rpcs_ask(method: str, message: Any, ask: Permission) -> None:
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
        assert ask_of(message) == Permission(Action.OPERATE)
