"""A model file of each runtime, alone in its version folder, is served without a config."""

from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from support.backend_cases import KNOWING, Case, of
from support.server import Server, running

LONE = [case for case in KNOWING if not case.isolated]  # which takes a config
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(r"ignore:`torch\.jit\.\w+` is deprecated"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("repository")
    for case in LONE:
        folder = root / case.backend / "1"
        folder.mkdir(parents=True)
        case.write(folder / case.file)
    with running(root) as found:
        yield found


@of(LONE)
def test_it_answers_over_rest_and_grpc(case: Case, server: Server) -> None:
    rows = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    for module, address in ((tritonclient.http, server.http), (tritonclient.grpc, server.grpc)):
        inputs = [module.InferInput(name, [2, 2], "FP32") for name in "ab"]
        inputs[0].set_data_from_numpy(rows)
        inputs[1].set_data_from_numpy(-rows)
        with module.InferenceServerClient(address) as client:
            result = client.infer(case.backend, inputs)
        assert result.as_numpy("X").tolist() == rows.tolist()
        assert result.as_numpy("Y").tolist() == (-rows).tolist()


def test_each_is_served_by_its_own_backend(server: Server) -> None:
    with tritonclient.http.InferenceServerClient(server.http) as client:
        found = {one.backend: client.get_model_config(one.backend)["backend"] for one in LONE}
    assert found == {name: name for name in found}
