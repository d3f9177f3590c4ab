"""TLS for the listeners: the server's certificate, and the clients' where they must have one."""

import ssl
from collections.abc import Sequence
from pathlib import Path

from server.settings.table import Settings

HTTP_1 = ("http/1.1",)
HTTP_2 = ("h2",)


class UnusableCertificate(Exception):
    """A certificate, key or authority cannot be used; names the flag, the file and the reason."""


def http_context(settings: Settings) -> ssl.SSLContext | None:
    """What the REST listener speaks; None for plain HTTP. Raises UnusableCertificate."""
    return _context(settings, "http", HTTP_1)


def grpc_context(settings: Settings) -> ssl.SSLContext | None:
    """What the gRPC listener speaks; None for plain HTTP/2. Raises UnusableCertificate."""
    return _context(settings, "grpc", HTTP_2)


def _context(settings: Settings, listener: str, protocols: Sequence[str]) -> ssl.SSLContext | None:
    mutual = getattr(settings, f"{listener}_use_ssl_mutual")
    if not (mutual or getattr(settings, f"{listener}_use_ssl")):
        return None
    certificate: Path = getattr(settings, f"{listener}_server_cert")
    key: Path = getattr(settings, f"{listener}_server_key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(list(protocols))
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ssl.SSLError) as error:
        raise UnusableCertificate(
            f"--{listener}-server-cert {certificate} with --{listener}-server-key {key} cannot be "
            f"used: {_reason(error)}"
        ) from error
    if mutual:
        _demand_clients(context, listener, getattr(settings, f"{listener}_root_cert"))
    return context


def _demand_clients(context: ssl.SSLContext, listener: str, authorities: Path) -> None:
    try:
        context.load_verify_locations(authorities)
    except (OSError, ssl.SSLError) as error:
        raise UnusableCertificate(
            f"--{listener}-root-cert {authorities} cannot be used: {_reason(error)}"
        ) from error
    context.verify_mode = ssl.CERT_REQUIRED


def _no_password() -> str:
    raise OSError("the key is encrypted; give one without a password")


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"{error.reason or error}; both must be PEM files that belong together"
    return error.strerror or str(error)
