"""Requests over bare sockets: event streams, readers that are slow, clients that are killed."""

import json
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from benchmarks.soak.outcome import Hung, Lost, Refused, Wrong
from benchmarks.soak.vectors import LIMIT_S, RESPONSES

SLOW_S = 12.0
"""A slow reader takes about that long to read what was ready after two seconds."""
SLOW_WIDTH = 2000
"""Numbers in each response to a slow reader, 16 kB as text: more than the buffers between take."""

VICTIM = r"""
import http.client, json, sys, time
port, kind = int(sys.argv[1]), sys.argv[2]
lines = []
for number in range(4):
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    lines.append(line)
    if kind == "chat":
        body = {"model": "tiny", "prompt": "a", "max_tokens": 200, "stream": True}
        line.request("POST", "/v1/completions", json.dumps(body))
    elif kind == "stream":
        line.request("POST", "/v2/models/several/generate_stream", '{"INPUT0": [1.0, 2.0]}')
    else:
        line.putrequest("POST", "/v2/models/double/infer")
        line.putheader("Content-Length", "100000")
        line.endheaders(b'{"inputs": [' if number % 2 else b"")
print("under way", flush=True)
time.sleep(30)
"""
"""Has four requests under way, of which the last kind are never finished, until it is killed."""


class Plain:
    """One thread's requests; each has a connection of its own."""

    def __init__(self, host: str, port: int, seed: int) -> None:
        self._address = (host, port)
        self._random = random.Random(seed)

    def close(self) -> None:
        """Nothing stays open between requests."""

    def generate_stream(self) -> str:
        return self._stream(pause=0.0, buffer=0)

    def slow_reader(self) -> str:
        """Takes the stream in small pieces, with a pause after each."""
        return self._stream(pause=SLOW_S / RESPONSES, buffer=4096)

    def stream_cancelled(self) -> str:
        with self._open(0) as line:
            line.recv(self._random.choice((1, 400, 2000)))
        return "cancelled"

    def crash(self) -> str:
        """A client process that gets SIGKILL while its requests are under way."""
        kind = self._random.choice(("chat", "stream", "half"))
        victim = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", VICTIM, str(self._address[1]), kind],
            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            assert victim.stdout is not None
            if victim.stdout.readline() != b"under way\n":
                raise Lost("a client that was to crash could not send")
            time.sleep(self._random.uniform(0.0, 0.5))
        finally:
            victim.kill()
            victim.communicate()
        return "cancelled"

    def _stream(self, pause: float, buffer: int) -> str:
        sent = [float(self._random.randrange(100_000))] * (SLOW_WIDTH if pause else 2)
        got = list(self._events(sent, pause, buffer))
        if got != [sent] * RESPONSES:
            first = got[0][:3] if got else "none"
            raise Wrong(f"several: {len(got)} events, {first} instead of {sent[:3]}")
        return "right"

    def _events(self, sent: list[float], pause: float, buffer: int) -> Iterator[list[float]]:
        rest = b""
        with self._open(buffer, sent) as line:
            while piece := line.recv(4096 if pause else 2**16):
                rest += piece
                *lines, rest = rest.split(b"\n")
                for one in lines:
                    if one.startswith(b"data: "):
                        yield json.loads(one[6:])["OUTPUT0"]
                        if pause:
                            time.sleep(pause)

    def _open(self, buffer: int, sent: Sequence[float] = (1.0, 0.5)) -> "_Line":
        body = json.dumps({"INPUT0": list(sent)}).encode()
        return _Line(self._address, buffer, body)


class _Line:
    """A connection that asked for a stream; as a context it turns errors into what they mean."""

    def __init__(self, address: tuple[str, int], buffer: int, body: bytes) -> None:
        self._address, self._buffer, self._body = address, buffer, body
        self._socket = socket.socket()
        self._began = False

    def __enter__(self) -> "_Line":
        self._socket.settimeout(LIMIT_S)
        if self._buffer:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._buffer)
        try:
            self._socket.connect(self._address)
            self._socket.sendall(
                b"POST /v2/models/several/generate_stream HTTP/1.1\r\nHost: localhost\r\n"
                b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(self._body), self._body)
            )
        except OSError as error:
            self._socket.close()
            raise Lost(repr(error)) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def recv(self, size: int) -> bytes:
        """Raises Hung, Lost, Refused (an error status)."""
        try:
            piece = self._socket.recv(size)
        except TimeoutError as error:
            raise Hung("no further piece of the stream") from error
        except OSError as error:
            raise Lost(repr(error)) from error
        if not self._began and not piece:
            raise Lost("the connection was closed without an answer")
        if not self._began and size > 12 and not piece.startswith(b"HTTP/1.1 200"):
            raise Refused(self._rest(piece).partition(b"\r\n\r\n")[2].decode(errors="replace"))
        self._began = True
        return piece

    def _rest(self, piece: bytes) -> bytes:
        """An error's answer to its end, which its `Connection: close` says."""
        self._began = True
        found = piece
        while more := self.recv(2**16):
            found += more
        return found
