"""Certificates for tests, made by the openssl command: an authority, a server, two clients."""

import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple


class Certificates(NamedTuple):
    """PEM files. `stranger` is a client of another authority."""

    authority: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path
    stranger: Path
    stranger_key: Path


def make_certificates(folder: Path) -> Certificates:
    """For 127.0.0.1, localhost and console.localhost, valid for a day."""
    authority, authority_key = _authority(folder, "authority")
    other, other_key = _authority(folder, "other")
    return Certificates(
        authority,
        *_signed(folder, "server", authority, authority_key),
        *_signed(folder, "client", authority, authority_key),
        *_signed(folder, "stranger", other, other_key),
    )


def server_context(certificates: Certificates) -> ssl.SSLContext:
    """What a listener serves TLS with."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.server, certificates.server_key)
    return context


def _authority(folder: Path, name: str) -> tuple[Path, Path]:
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    _openssl("req", "-x509", *_NEW_KEY, "-keyout", key, "-out", certificate, "-days", "1",
             "-subj", f"/CN={name}")  # fmt: skip
    return certificate, key


def _signed(folder: Path, name: str, authority: Path, authority_key: Path) -> tuple[Path, Path]:
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    _openssl("req", "-x509", *_NEW_KEY, "-keyout", key, "-out", certificate, "-days", "1",
             "-subj", f"/CN={name}", "-CA", authority, "-CAkey", authority_key,
             "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:console.localhost",
             "-addext", "basicConstraints=critical,CA:FALSE")  # fmt: skip
    return certificate, key


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)
