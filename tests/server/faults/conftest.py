"""One server for all faults of models that call others, another model of it under load."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tritonclient.grpc import InferenceServerClient

from support.faults import CALLERS, STEPS, Holdings, Signs, rows, under_load, write_faulty
from support.server import Server, running

EXIT_TIMEOUT_SECS = 300
"""So long that whatever an unload waits for is seen."""
MOST_WAITING = 6


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="package")
def signs(folder: Path) -> Signs:
    (folder / "signs").mkdir()
    return Signs(folder / "signs")


@pytest.fixture(scope="package")
def server(folder: Path, signs: Signs) -> Iterator[Server]:
    repository, scratch = folder / "repository", folder / "scratch"
    scratch.mkdir()
    write_faulty(repository)
    with running(
        repository,
        model_control_mode="explicit",
        load_model="*",
        default_max_queue_size=MOST_WAITING,
        exit_timeout_secs=EXIT_TIMEOUT_SECS,
        worker_sandbox_allow_write=[str(signs.folder)],
        environment={"FAULT_SIGNS": str(signs.folder), "TMPDIR": str(scratch)},
    ) as started:
        yield started


@pytest.fixture(scope="package")
def client(server: Server) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(server.grpc) as opened:
        yield opened


@pytest.fixture(scope="package")
def most_regions(server: Server, client: InferenceServerClient, folder: Path) -> int:
    """Regions of shared memory once every model has answered."""
    for caller in CALLERS:
        client.infer(caller, rows(1.0))
    client.infer("summing", rows(1.0), sequence_id=1, sequence_start=True, sequence_end=True)
    return Holdings(server, folder / "scratch").regions()


@pytest.fixture(autouse=True)
def nothing_is_left(
    server: Server, client: InferenceServerClient, folder: Path, signs: Signs, most_regions: int
) -> Iterator[None]:
    """Around each test: another model sees no error, and all is as it was afterwards."""
    signs.clear()
    holdings = Holdings(server, folder / "scratch")
    before = holdings.now()
    with under_load(server):
        yield
        for name in (*STEPS, "script", "outer", "summing"):
            signs.unset(f"{name}.loads-slowly")
            signs.set(f"{name}.go")
        server.wait_for(
            lambda: all(client.is_model_ready(name) for name in (*STEPS, *CALLERS, "summing")),
            "every model to serve again",
        )
        server.wait_for(lambda: holdings.now() == before, f"what was there before: {before}")
        server.wait_for(
            lambda: holdings.regions() <= most_regions, "shared memory to be given back"
        )
