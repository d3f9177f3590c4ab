"""TLS and mutual TLS on the REST listener, and what is said when a certificate cannot be used."""

import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc_triton
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from server.settings.table import Settings, SettingsError
from server.tls import UnusableCertificate, grpc_context, http_context
from support.http import INFER, infer_body
from support.server import Server, running, write_identity
from support.tls import Certificates, make_certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_identity(folder, "echo")
    return folder


@pytest.fixture(scope="module")
def mutual(certificates: Certificates, repository: Path) -> Iterator[Server]:
    with running(
        repository,
        wait=False,
        allow_grpc=False,
        http_use_ssl_mutual=True,
        http_server_cert=certificates.server,
        http_server_key=certificates.server_key,
        http_root_cert=certificates.authority,
    ) as server:
        server.wait_for(lambda: "READY" in server.log(), "the model")
        yield server


def client_context(certificates: Certificates) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certificates.authority)


def status(server: Server, context: ssl.SSLContext, path: str, body: bytes | None = None) -> int:
    connection = http.client.HTTPSConnection(
        "127.0.0.1", server.http_port, context=context, timeout=60
    )
    try:
        connection.request("POST" if body else "GET", path, body)
        return connection.getresponse().status
    finally:
        connection.close()


def test_https_serves_clients_that_trust_the_authority(
    certificates: Certificates, repository: Path
) -> None:
    with running(
        repository,
        wait=False,
        allow_grpc=False,
        http_use_ssl=True,
        http_server_cert=certificates.server,
        http_server_key=certificates.server_key,
    ) as server:
        server.wait_for(lambda: "READY" in server.log(), "the model")
        context = client_context(certificates)
        assert status(server, context, "/v2/health/ready") == 200
        assert status(server, context, INFER, infer_body(200_000)) == 200
        assert f"https://127.0.0.1:{server.http_port}" in server.log()
        client = triton.InferenceServerClient(
            server.http, ssl=True, ssl_context_factory=lambda: context
        )
        asked = triton.InferInput("INPUT0", [1, 4], "FP32")
        asked.set_data_from_numpy(np.ones((1, 4), np.float32))
        assert client.infer("echo", [asked]).as_numpy("OUTPUT0").tolist() == [[1, 1, 1, 1]]
        client.close()
        with pytest.raises(ssl.SSLCertVerificationError):
            status(server, ssl.create_default_context(), "/v2")
        assert not server.is_ready("/v2/health/live")  # in clear text


def test_mutual_tls_serves_a_client_with_a_certificate(
    mutual: Server, certificates: Certificates
) -> None:
    context = client_context(certificates)
    context.load_cert_chain(certificates.client, certificates.client_key)
    assert status(mutual, context, INFER, infer_body()) == 200


def test_mutual_tls_turns_away_clients_without_one_and_strangers(
    mutual: Server, certificates: Certificates
) -> None:
    bare, strange = client_context(certificates), client_context(certificates)
    strange.load_cert_chain(certificates.stranger, certificates.stranger_key)
    for context in (bare, strange):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            status(mutual, context, "/v2/health/live")


def test_old_protocol_versions_are_not_spoken(mutual: Server, certificates: Certificates) -> None:
    assert server_context(certificates).minimum_version == ssl.TLSVersion.TLSv1_2


def server_context(certificates: Certificates, **changes: object) -> ssl.SSLContext:
    settings = {
        "http_use_ssl": True,
        "http_server_cert": certificates.server,
        "http_server_key": certificates.server_key,
        **changes,
    }
    context = http_context(Settings(**settings))
    assert context is not None
    return context


def test_no_tls_is_spoken_unless_asked_for() -> None:
    assert http_context(Settings()) is None
    assert grpc_context(Settings()) is None


def test_a_key_that_does_not_belong_to_the_certificate_is_refused(
    certificates: Certificates,
) -> None:
    with pytest.raises(UnusableCertificate) as caught:
        server_context(certificates, http_server_key=certificates.client_key)
    assert str(caught.value).startswith(f"--http-server-cert {certificates.server} with ")
    assert "KEY_VALUES_MISMATCH" in str(caught.value)


def test_a_missing_file_is_named_with_its_flag(certificates: Certificates, tmp_path: Path) -> None:
    with pytest.raises(UnusableCertificate, match="No such file"):
        server_context(certificates, http_server_cert=tmp_path / "none.pem")
    with pytest.raises(UnusableCertificate, match=r"--http-root-cert .*none\.pem cannot be used"):
        server_context(certificates, http_use_ssl_mutual=True, http_root_cert=tmp_path / "none.pem")


@pytest.mark.parametrize("listener", ["http", "grpc"])
def test_tls_without_its_files_is_refused_with_the_flag(listener: str) -> None:
    with pytest.raises(
        SettingsError, match=f"--{listener}-use-ssl needs a file in --{listener}-server-ce"
    ):
        Settings(**{f"{listener}_use_ssl": True})
    files = {f"{listener}_server_{part}": Path("x") for part in ("cert", "key")}
    with pytest.raises(SettingsError, match=f"{listener}_root_cert is not set"):
        Settings(**{f"{listener}_use_ssl_mutual": True, **files})


def test_grpc_speaks_tls_and_wants_a_certificate_where_it_says_so(
    certificates: Certificates, repository: Path
) -> None:
    with running(
        repository,
        allow_http=False,
        wait=False,
        grpc_use_ssl_mutual=True,
        grpc_server_cert=certificates.server,
        grpc_server_key=certificates.server_key,
        grpc_root_cert=certificates.authority,
    ) as server:
        server.wait_for(lambda: "gRPC" in server.log(), "the banner")
        options = {"ssl": True, "root_certificates": str(certificates.authority)}
        known = {
            "private_key": str(certificates.client_key),
            "certificate_chain": str(certificates.client),
        }
        asked = grpc_triton.InferInput("INPUT0", [1, 300_000], "FP32")
        asked.set_data_from_numpy(np.ones((1, 300_000), np.float32))
        with grpc_triton.InferenceServerClient(server.grpc, **options, **known) as client:
            assert client.infer("echo", [asked]).as_numpy("OUTPUT0").sum() == 300_000
        with (
            grpc_triton.InferenceServerClient(server.grpc, **options) as client,
            pytest.raises(InferenceServerException, match="UNAVAILABLE"),
        ):
            client.is_server_live(client_timeout=60)
        assert server.stop() == 0
