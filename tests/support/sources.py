"""A web server for fetches: files with ranges and ETags, and every way to let one down."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from repository.sources.limits import FetchLimits
from repository.sources.progress import Progress

MIB = 1 << 20
LIMITS = FetchLimits(
    max_bytes=64 * MIB, max_files=100, stall_s=30.0, total_s=300.0, attempts=3, pause_s=0.01
)
DEADLINE_SECS = 60.0


@dataclass(frozen=True)
class Request:
    path: str
    query: str
    headers: dict[str, str]


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one answer; `cut` and `stall` count bytes of its body."""

    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    cut: int | None = None
    stall: int | None = None
    damaged: bool = False


@dataclass
class File:
    """A file of a site; each answer uses up one fault."""

    body: bytes
    headers: dict[str, str] = field(default_factory=lambda: {"ETag": '"v1"'})
    faults: deque[Fault] = field(default_factory=deque)
    heeds_if_range: bool = True

    def __call__(self, request: Request) -> "Answer":
        fault = self.faults.popleft() if self.faults else Fault()
        answer = self._ranged(request)
        if fault.status:
            answer = Answer(fault.status, {}, b"")
        body = bytes(len(answer.body)) if fault.damaged else answer.body
        headers = {**answer.headers, "Content-Length": str(len(body)), **dict(fault.headers)}
        return replace(answer, headers=headers, body=body, cut=fault.cut, stall=fault.stall)

    def _ranged(self, request: Request) -> "Answer":
        found = re.fullmatch(r"bytes=(\d+)-", request.headers.get("range", ""))
        asked = request.headers.get("if-range")
        known = self.headers.get("ETag", self.headers.get("Last-Modified"))
        if found is None or (self.heeds_if_range and asked not in (None, known)):
            return Answer(200, self.headers, self.body)
        start, size = int(found[1]), len(self.body)
        if start >= size:
            return Answer(416, {"Content-Range": f"bytes */{size}"}, b"")
        place = {"Content-Range": f"bytes {start}-{size - 1}/{size}"}
        return Answer(206, {**self.headers, **place}, self.body[start:])


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    cut: int | None = None
    stall: int | None = None


def redirect(location: str) -> Callable[[Request], Answer]:
    return lambda request: Answer(302, {"Location": location, "Content-Length": "0"}, b"")


class Site:
    """Answers by path; `requests` are those that came, in order."""

    def __init__(self) -> None:
        self.pages: dict[str, Callable[[Request], Answer]] = {}
        self.requests: list[Request] = []
        self.url = ""

    def asked(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path == path]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await _request(reader)
            self.requests.append(request)
            page = self.pages.get(request.path)
            answer = page(request) if page else Answer(404, {"Content-Length": "0"}, b"")
            await _send(writer, answer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    made = Site()
    running: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        await made.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class Seen(list[Progress]):
    """Every report of a fetch's progress; it is the callback."""

    def __call__(self, progress: Progress) -> None:
        self.append(progress)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_SECS):
        while not condition():  # noqa: ASYNC110  files tell nobody
            await asyncio.sleep(0.005)


async def _request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    path, _, query = head[0].split(" ")[1].partition("?")
    pairs = (line.partition(":") for line in head[1:] if line)
    return Request(path, query, {name.lower(): value.strip() for name, _, value in pairs})


async def _send(writer: asyncio.StreamWriter, answer: Answer) -> None:
    headers = {**answer.headers, "Connection": "close"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"HTTP/1.1 {answer.status} Because\r\n{lines}\r\n".encode())
    end = min(x for x in (answer.cut, answer.stall, len(answer.body)) if x is not None)
    writer.write(answer.body[:end])
    await writer.drain()
    if answer.stall is not None:
        await asyncio.sleep(DEADLINE_SECS)
