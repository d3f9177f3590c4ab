"""Every data type through a real server and back by tritonclient: REST JSON, REST binary, gRPC."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from repository.config.tensors import BY_NAME, DATA_TYPES, Array
from server.admit import bytes_array
from support.server import Server, running, write_identity

NAMES = [row.name for row in DATA_TYPES]
WAYS = [
    (wire, name)
    for wire in ("json", "binary", "grpc")
    for name in NAMES
    if (wire, name) != ("json", "BF16")  # tritonclient does not write it; test_codecs_agree does
]
CONFIG = """
name: "{0}" backend: "identity"
input {{ name: "INPUT0" data_type: TYPE_{1} dims: -1 }}
output {{ name: "OUTPUT0" data_type: TYPE_{1} dims: -1 }}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("models")
    for name in NAMES:
        kind = "STRING" if name == "BYTES" else name
        write_identity(repository, name, config=CONFIG.format(name, kind))
    with running(repository) as one:
        yield one


def samples(name: str) -> list[Array]:
    """Zero-length, one element, the extremes; for floats what is no number too."""
    if name == "BYTES":
        texts = ["", "ascii", "grüß dich", "日本語", "\0"]
        return [
            bytes_array([one.encode() for one in texts[:count]], (count,)) for count in (0, 1, 5)
        ]
    dtype = BY_NAME[name].dtype
    if name == "BOOL":
        values: list[Any] = [True, False]
    elif dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = [limits.min, limits.max, 0]
    else:
        values = [0.1, -0.0, np.inf, -np.inf, np.nan, 65504.0]
    array = np.array(values, dtype)
    return [array[:0], array[:1], array]


def same(one: Array, other: Array) -> bool:
    """Bit for bit, but any NaN is NaN."""
    if one.dtype.hasobject:
        texts = [text.encode() if isinstance(text, str) else text for text in one.tolist()]
        return texts == other.tolist()
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    numbers = other == other
    return one[numbers].tobytes() == other[numbers].tobytes() and not (one == one)[~numbers].any()


@pytest.mark.parametrize(("wire", "name"), WAYS)
def test_tritonclient_gets_back_what_it_sent(server: Server, wire: str, name: str) -> None:
    kind: Any = tritonclient.grpc if wire == "grpc" else tritonclient.http
    address = server.grpc if wire == "grpc" else server.http
    options = {} if wire == "grpc" else {"binary_data": wire == "binary"}
    with kind.InferenceServerClient(address) as client:
        for sample in samples(name):
            tensor = kind.InferInput("INPUT0", list(sample.shape), name)
            tensor.set_data_from_numpy(sample, **options)
            wanted = kind.InferRequestedOutput("OUTPUT0", **options)
            found = client.infer(name, [tensor], outputs=[wanted]).as_numpy("OUTPUT0")
            assert same(found, sample), (found, sample)
