"""One server for the package: `talker`, a tiny language model; `narrow`, without a template, which
takes one request at a time; and `echo`, which is no language model."""

from collections.abc import Iterator

import pytest
from openai import OpenAI

from support.openai import CONFIG, client, serving, write_language
from support.server import Server, write_identity

NARROW = CONFIG + "".join(
    f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}\n'
    for name, value in (("max_running", 1), ("max_waiting", 1), ("context", 4096))
)


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("models")
    write_language(repository)
    write_language(repository, "narrow", template=None, config=NARROW, max_position_embeddings=4096)
    write_identity(repository, "echo")
    with serving(repository, access_log=str(repository.parent / "access.log")) as one:
        yield one


@pytest.fixture(scope="package")
def ai(server: Server) -> Iterator[OpenAI]:
    with client(server) as one:
        yield one
