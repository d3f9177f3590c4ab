"""Messages to receivers that accept, refuse, redirect, dawdle, or are where nobody may go."""

import asyncio
import socket
import ssl
import threading
from pathlib import Path

import pytest

from control.notifications import sender
from control.notifications.messages import OutgoingMessage
from control.notifications.policy import WebhookAnswer
from control.notifications.sender import LONGEST_TEXT, WebhookSender
from support.tls import make_certificates
from support.webhook_receiver import Receiver, Reply, receiver

HEADERS = {"webhook-id": "d1", "webhook-timestamp": "1", "webhook-signature": "v1,x"}
BODY = b'{"id":"d1"}'


def sent(url: str, *allowed: str, send_s: float = 30.0) -> WebhookAnswer:
    async def send() -> WebhookAnswer:
        sending = WebhookSender(allowed, send_s)
        try:
            return await sending.send(OutgoingMessage("d1", "w", 1, url, HEADERS, BODY))
        finally:
            sending.close()

    return asyncio.run(send())


def answered(reply: Reply) -> tuple[WebhookAnswer, Receiver]:
    with receiver() as there:
        there.answers.append(reply)
        return sent(there.url, there.prefix), there


def test_a_message_arrives_whole_with_its_headers() -> None:
    with receiver() as there:
        answer = sent(there.url + "?a=1", there.prefix)
    (message,) = there.messages
    assert (message.path, message.body) == ("/hook?a=1", BODY)
    assert HEADERS.items() <= message.headers.items()
    assert message.headers["content-type"] == "application/json"
    assert message.headers["host"] == f"127.0.0.1:{there.port}"
    assert (answer.status, answer.text, answer.words) == (200, "ok", "")
    assert 0 < answer.took_s < 30


def test_a_refusal_is_told_with_the_beginning_of_its_text() -> None:
    answer, _ = answered(Reply(403, b"no \x1b[31mhook\n" + b"x" * 10_000))
    assert answer.status == 403
    assert answer.text.startswith("no  [31mhook xxx")
    assert len(answer.text) == LONGEST_TEXT


def test_a_redirect_is_not_followed() -> None:
    with receiver() as elsewhere:
        answer, there = answered(Reply(307, headers=(("Location", elsewhere.url),)))
    assert answer.status == 307
    assert "redirects are not followed" in answer.words
    assert elsewhere.messages == []
    assert len(there.messages) == 1


def test_what_a_busy_receiver_asks_for_is_kept() -> None:
    answer, _ = answered(Reply(429, headers=(("Retry-After", "17"),)))
    assert answer.retry_after_s == 17


def test_an_early_hint_is_not_the_answer() -> None:
    raw = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nok"
    answer, _ = answered(Reply(raw=raw))
    assert (answer.status, answer.text) == (202, "ok")


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    answer, _ = answered(Reply(raw=b"HTTP/1.0 200 OK\r\n\r\nfine"))
    assert (answer.status, answer.text) == (200, "fine")


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "the answer is not HTTP"),
        (b"HTTP/1.1 20", "without an answer"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, "is not HTTP"),
    ],
)
def test_what_is_no_answer_is_told_so(raw: bytes, said: str) -> None:
    answer, _ = answered(Reply(raw=raw))
    assert answer.status in (0, 200)
    assert answer.status == 200 or said in answer.error


def test_an_endless_answer_is_read_to_a_bound() -> None:
    endless = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n" + b"y" * 1_000_000
    answer, _ = answered(Reply(raw=endless))
    assert (answer.status, answer.text) == (200, "y" * LONGEST_TEXT)


def test_a_receiver_that_says_nothing_has_one_deadline_for_everything() -> None:
    hold = threading.Event()
    with receiver() as there:
        there.answers.append(Reply(hold=hold))
        answer = sent(there.url, there.prefix, send_s=0.2)
        hold.set()
    assert (answer.status, answer.error) == (0, "no answer within 0.2 s")


def test_a_closed_port_is_told_so() -> None:
    with receiver() as there:
        url, allowed = there.url, there.prefix
    answer = sent(url, allowed)
    assert answer.status == 0
    assert answer.error.startswith("the connection failed: ")


def test_a_name_that_does_not_exist_is_told_so() -> None:
    answer = sent("https://nowhere.invalid/x")
    assert "'nowhere.invalid' cannot be resolved" in answer.error


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "10.0.0.1", "169.254.169.254"])
def test_a_private_address_is_refused_when_it_is_connected_to(host: str) -> None:
    with receiver() as there:
        answer = sent(f"https://{host}:{there.port}/hook")
    assert answer.status == 0
    assert "leads to an address that is" in answer.error
    assert "--notification-allow" in answer.error
    assert there.messages == []


def test_a_name_is_judged_by_what_it_resolves_to_at_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A public name whose server answers with a private address (DNS rebinding)."""

    def rebound(host: str, port: int, **_: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(sender.socket, "getaddrinfo", rebound)
    with receiver() as there:
        answer = sent(f"https://hooks.example.com:{there.port}/hook")
    assert "leads to an address that is loopback" in answer.error
    assert there.messages == []


def test_a_certificate_of_a_stranger_is_refused(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates.server, certificates.server_key)
    with receiver(tls=tls) as there:
        answer = sent(there.url, there.prefix)
    assert answer.error.startswith("its certificate is not valid: ")
    assert there.messages == []


def test_a_certificate_that_is_trusted_and_names_the_host_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = make_certificates(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates.server, certificates.server_key)
    with receiver(tls=tls) as there:
        assert sent(there.url, there.prefix).status == 200
