"""REST against what Schemathesis makes of its own description: nothing breaks, hangs or grows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.http import INFER, ask, infer_body
from support.rest_cases import INFERRING, send_cases, write_models
from support.server import Server, running
from support.usage import keeps_its_size, resident_bytes

LOOK_EVERY = 300
"""Cases between two looks at the server's memory."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    write_models(tmp_path)
    loaded = [*INFERRING, "spare"]
    with running(
        tmp_path, model_control_mode="explicit", load_model=loaded, allow_client_shm=True
    ) as one:
        yield one


def survives(server: Server, count: int) -> list[int]:
    """Send the cases; the server's memory in bytes after each LOOK_EVERY of them."""
    sizes: list[int] = []

    def look(sent: int) -> None:
        if sent % LOOK_EVERY == 0:
            sizes.append(resident_bytes(server))

    assert not send_cases(server, count, look)
    assert "Traceback" not in server.log()
    assert ask(server, "POST", INFER, infer_body()).status == 200
    return sizes


def test_generated_requests_do_no_harm(server: Server) -> None:
    survives(server, 40)


@pytest.mark.slow
def test_three_thousand_generated_requests_do_no_harm_and_take_no_memory(server: Server) -> None:
    sizes = survives(server, 3000)
    assert keeps_its_size(sizes[2:]), sizes  # the first ones warm the caches
