"""The settings of the listeners: where they listen, in which clothes, for whom. Part of `Settings`.

`server.settings.table` inherits them; `check_listeners` is their part of its checks.
"""

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from server.settings.kinds import (
    ADDRESS,
    BOOLEAN,
    FILE,
    NETWORK,
    PORT,
    REGEX,
    TEXT,
    choice,
    fraction,
    seconds,
    whole,
)
from server.settings.kinds import setting as _setting
from server.settings.restricted import RESTRICTION, read_locks
from server.settings.urls import HOST, ORIGIN, PUBLIC_URL

UNIX = "unix:"
_SERVER_PARTS = ("server_cert", "server_key")
_LISTENING, _TLS, _ACCESS, _LIMITS = "Listening", "TLS", "Access", "Limits"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """Addresses, TLS, tokens, restrictions, forwarding, limits of connections, the access log."""

    allow_http: bool = _setting(_LISTENING, BOOLEAN, True, "Open the REST listener.")
    http_address: str = _setting(
        _LISTENING,
        ADDRESS,
        "127.0.0.1",
        "Address of the REST listener; unix:PATH for a Unix socket.",
    )
    http_port: int = _setting(_LISTENING, PORT, 8000, "Port of the REST listener.")
    allow_grpc: bool = _setting(_LISTENING, BOOLEAN, True, "Open the gRPC listener.")
    grpc_address: str = _setting(
        _LISTENING,
        ADDRESS,
        "127.0.0.1",
        "Address of the gRPC listener; unix:PATH for a Unix socket.",
    )
    grpc_port: int = _setting(_LISTENING, PORT, 8001, "Port of the gRPC listener.")
    allow_metrics: bool = _setting(_LISTENING, BOOLEAN, True, "Serve Prometheus metrics.")
    metrics_address: str = _setting(
        _LISTENING, ADDRESS, "", "Address of the metrics.", note="as --http-address"
    )
    metrics_port: int = _setting(_LISTENING, PORT, 8002, "Port of the metrics.")
    allow_admin: bool = _setting(
        _LISTENING,
        BOOLEAN,
        True,
        "Run the console, the control API and git; without them, the last desired state is served.",
    )
    admin_address: str = _setting(
        _LISTENING,
        ADDRESS,
        "127.0.0.1",
        "Address of the console, the control API and git. They always ask who one is, so any "
        "address will do; put TLS in front of one that others can reach.",
    )
    admin_port: int = _setting(
        _LISTENING, PORT, 8003, "Port of the console, the control API and git."
    )
    public_url: str = _setting(
        _LISTENING,
        PUBLIC_URL,
        "",
        "What people and git call the console's address: in links, as URL to push to, and as Host "
        "that is answered.",
        note="http://ADMIN_ADDRESS:ADMIN_PORT",
    )
    trusted_proxies: tuple[str, ...] = _setting(
        _LISTENING,
        NETWORK,
        (),
        "Proxies before the listeners, as addresses or networks: only what these say in "
        "X-Forwarded-For is taken for the client's address; repeat it for several.",
        note="none",
        repeat=True,
    )
    admin_trusted_proxies: tuple[str, ...] = _setting(
        _LISTENING,
        NETWORK,
        (),
        "The same for proxies before the admin port.",
        note="as --trusted-proxies",
        repeat=True,
    )
    allow_unauthenticated: bool = _setting(
        _LISTENING,
        BOOLEAN,
        False,
        "Allow addresses other machines can reach while --inference-auth is open.",
    )
    reuse_port: bool = _setting(
        _LISTENING,
        BOOLEAN,
        False,
        "Let several servers listen on the same ports; the kernel spreads the connections.",
    )
    reuse_http_port: bool = _setting(
        _LISTENING, BOOLEAN, False, "--reuse-port for the REST listener alone."
    )
    reuse_grpc_port: bool = _setting(
        _LISTENING, BOOLEAN, False, "--reuse-port for the gRPC listener alone."
    )

    http_use_ssl: bool = _setting(_TLS, BOOLEAN, False, "Speak HTTPS on the REST listener.")
    http_use_ssl_mutual: bool = _setting(
        _TLS, BOOLEAN, False, "Ask REST clients for a certificate as well; implies --http-use-ssl."
    )
    http_server_cert: Path | None = _setting(  # noqa: RUF009 (a frozen default, like the others)
        _TLS, FILE, None, "PEM file: the REST listener's certificate, then its chain.", note="none"
    )
    http_server_key: Path | None = _setting(  # noqa: RUF009 (a frozen default, like the others)
        _TLS, FILE, None, "PEM file: the private key of that certificate.", note="none"
    )
    http_root_cert: Path | None = _setting(  # noqa: RUF009 (a frozen default, like the others)
        _TLS, FILE, None, "PEM file: the authorities that sign REST clients.", note="none"
    )
    grpc_use_ssl: bool = _setting(_TLS, BOOLEAN, False, "Speak TLS on the gRPC listener.")
    grpc_use_ssl_mutual: bool = _setting(
        _TLS, BOOLEAN, False, "Ask gRPC clients for a certificate as well; implies --grpc-use-ssl."
    )
    grpc_server_cert: Path | None = _setting(  # noqa: RUF009 (a frozen default, like the others)
        _TLS, FILE, None, "PEM file: the gRPC listener's certificate, then its chain.", note="none"
    )
    grpc_server_key: Path | None = _setting(  # noqa: RUF009 (a frozen default, like the others)
        _TLS, FILE, None, "PEM file: the private key of that certificate.", note="none"
    )
    grpc_root_cert: Path | None = _setting(  # noqa: RUF009 (a frozen default, like the others)
        _TLS, FILE, None, "PEM file: the authorities that sign gRPC clients.", note="none"
    )

    inference_auth: str = _setting(
        _ACCESS,
        choice("open", "token"),
        "open",
        "Who may use REST, gRPC and the metrics. open: everybody, and a token that is shown is "
        "held to its scopes and rate; token: who shows one. Health is everybody's.",
    )
    http_cors_allow_origin: tuple[str, ...] = _setting(
        _ACCESS,
        ORIGIN,
        (),
        "Let web pages of these origins call REST and read the answers (CORS); * for every page "
        "there is. Of all other pages, requests that are not GET, HEAD or OPTIONS are refused.",
        note="none",
        repeat=True,
    )
    allowed_hosts: tuple[str, ...] = _setting(
        _ACCESS,
        HOST,
        (),
        "Answer REST, metrics and console requests whose Host header has one of these names as "
        "well, for a proxy in front; * for any on REST and metrics. While an address is of "
        "loopback, or this is set, other names than those of loopback are refused.",
        note="none",
        repeat=True,
    )
    http_restricted_api: tuple[str, ...] = _setting(
        _ACCESS,
        RESTRICTION,
        (),
        "Answer these REST APIs only to requests with the header KEY: VALUE. APIs: health, "
        "metadata, inference, shared-memory, model-config, model-repository, statistics, trace, "
        "logging.",
        note="none",
        repeat=True,
    )
    grpc_restricted_protocol: tuple[str, ...] = _setting(
        _ACCESS,
        RESTRICTION,
        (),
        "The same for gRPC; the metadata is triton-grpc-protocol-KEY: VALUE.",
        note="none",
        repeat=True,
    )
    http_header_forward_pattern: str = _setting(
        _ACCESS,
        REGEX,
        "",
        "Hand request headers whose name this regular expression finds to the model as "
        "parameters; any case, unless it begins with (?-i).",
        note="none",
    )
    grpc_header_forward_pattern: str = _setting(
        _ACCESS, REGEX, "", "The same for gRPC metadata.", note="none"
    )
    access_log: str = _setting(
        _ACCESS,
        TEXT,
        "",
        "File to append one JSON line per request to; - for standard output.",
        note="off",
    )
    access_log_sample: float = _setting(
        _ACCESS, fraction(), 1.0, "Share of the requests written to the access log."
    )

    http_max_input_size: int = _setting(
        _LIMITS,
        whole(1, 2**40, "BYTES"),
        64 * 2**20,
        "Largest REST request body, as sent and after decompression.",
    )
    http_max_json_depth: int = _setting(
        _LIMITS, whole(1, 10_000), 100, "Deepest nesting of a JSON body."
    )
    http_max_header_size: int = _setting(
        _LIMITS,
        whole(1, 2**24, "BYTES"),
        64 * 2**10,
        "Largest head of a REST request that arrives in pieces; one that arrives whole may be "
        "as large as one read of the socket, 250 KiB.",
    )
    http_max_chunk_count: int = _setting(
        _LIMITS, whole(1, 2**31), 2**16, "Most chunks in a chunked REST request body."
    )
    http_keep_alive_secs: float = _setting(
        _LIMITS, seconds(0.1), 75.0, "How long an idle REST connection stays open, at least."
    )
    http_stall_secs: float = _setting(
        _LIMITS,
        seconds(0.1),
        60.0,
        "Longest a REST client may keep the server waiting: for the head of a request, for a body "
        "slower than 1 KiB/s, or for an answer that is read slower than that.",
    )
    grpc_max_message_size: int = _setting(
        _LIMITS,
        whole(1, 2**31 - 1, "BYTES"),
        2**31 - 1,
        "Largest gRPC message, both ways; a compressed one may open to 64 MiB.",
    )
    grpc_receive_timeout_secs: float = _setting(
        _LIMITS,
        seconds(0.1),
        60.0,
        "Longest a gRPC client may send nothing of a request it began, or less than 1 KiB/s, or "
        "than would bring the message in an hour; the call ends with DEADLINE_EXCEEDED. A stream "
        "may rest between its messages.",
    )
    grpc_send_timeout_secs: float = _setting(
        _LIMITS,
        seconds(0.1),
        300.0,
        "Longest a gRPC client may take nothing of an answer that waits for it, or less than "
        "1 KiB/s, or than would take it in an hour; the stream is reset.",
    )


def check_listeners(settings: Any) -> str:
    """What contradicts itself among the listeners' settings, in words; "" when nothing does.

    `settings` is a `Settings`, whose `source(name)` says where a value came from.
    """
    return _reach(settings) or _places(settings) or _tls(settings) or _locks(settings)


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches `address`; Unix sockets included."""
    if address == "localhost" or address.startswith(UNIX):
        return True
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def _open(settings: Any, *listeners: str) -> list[str]:
    return [listener for listener in listeners if getattr(settings, f"allow_{listener}")]


def _reach(settings: Any) -> str:
    if settings.allow_unauthenticated or settings.inference_auth != "open":
        return ""
    for listener in _open(settings, "http", "grpc", "metrics"):
        address = getattr(settings, f"{listener}_address")
        if not is_loopback(address):
            return (
                f"{settings.source(f'{listener}_address')}: {listener}_address '{address}' can be "
                "reached by other machines, and --inference-auth is open; stay on 127.0.0.1, pass "
                "--inference-auth=token to ask for tokens, or pass --allow-unauthenticated if the "
                "network is yours"
            )
    return ""


def _places(settings: Any) -> str:
    if settings.allow_admin and settings.admin_address.startswith(UNIX):
        return (
            f"{settings.source('admin_address')}: admin_address '{settings.admin_address}' is a "
            "Unix socket; give an address, or leave it at 127.0.0.1"
        )
    listeners: dict[tuple[str, int], str] = {}
    for listener in _open(settings, "http", "grpc", "metrics", "admin"):
        address, port = (
            getattr(settings, f"{listener}_address"),
            getattr(settings, f"{listener}_port"),
        )
        path = address.startswith(UNIX)
        other = listeners.setdefault((address, 0 if path else port), listener)
        if other != listener and path:
            return (
                f"{settings.source(f'{listener}_address')}: {listener}_address '{address}' is also "
                f"the {other}_address; give each its own"
            )
        if other != listener and port:
            return (
                f"{settings.source(f'{listener}_port')}: {listener}_port {port} is also the "
                f"{other}_port ({settings.source(f'{other}_port')}); give each its own"
            )
    return ""


def _tls(settings: Any) -> str:
    for listener in ("http", "grpc"):
        mutual = getattr(settings, f"{listener}_use_ssl_mutual")
        if not (mutual or getattr(settings, f"{listener}_use_ssl")):
            continue
        for part in ("server_cert", "server_key", "root_cert") if mutual else _SERVER_PARTS:
            if getattr(settings, f"{listener}_{part}") is None:
                flag = "use-ssl-mutual" if mutual else "use-ssl"
                return (
                    f"--{listener}-{flag} needs a file in --{listener}-{part.replace('_', '-')}; "
                    f"{listener}_{part} is not set"
                )
    return ""


def _locks(settings: Any) -> str:
    for name in ("http_restricted_api", "grpc_restricted_protocol"):
        try:
            read_locks(getattr(settings, name))
        except ValueError as error:
            return f"{settings.source(name)}: {name}: {error}"
    return ""
