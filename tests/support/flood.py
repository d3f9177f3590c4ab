"""Wrong tokens by the thousand, from a process of its own: `with flood(http_port, grpc_port, ...)`.

Each tries another token, over connections that stay and over new ones, REST and gRPC. It lasts
until so many seconds are over and so many tokens are tried.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

Lasts = Callable[[], bool]

_LONGEST_S = 300.0


class Flood:
    """A running flood; `ended` waits for its end and has what was answered, by way and status."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self._until = time.monotonic() + _LONGEST_S

    def running(self) -> bool:
        assert time.monotonic() < self._until, "the flood does not end"
        return self.process.poll() is None

    def ended(self) -> dict[str, int]:
        output, _ = self.process.communicate(timeout=_LONGEST_S)
        found: dict[str, int] = json.loads(output)
        return found


@contextmanager
def flood(http_port: int, grpc_port: int, seconds: float, least: int) -> Iterator[Flood]:
    arguments = [str(http_port), str(grpc_port), str(seconds), str(least)]
    # -P: beside this file lie others whose names are those of libraries.
    process = subprocess.Popen([sys.executable, "-P", __file__, *arguments], stdout=subprocess.PIPE)
    try:
        yield Flood(process)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


async def _main(http_port: int, grpc_port: int, seconds: float, least: int) -> Counter[str]:
    told: Counter[str] = Counter()
    until = time.monotonic() + seconds

    def lasts() -> bool:
        return time.monotonic() < until or told.total() < least

    await asyncio.gather(
        *(_rest(told, http_port, lasts, lasting=True) for _ in range(4)),
        *(_rest(told, http_port, lasts, lasting=False) for _ in range(4)),
        *(_grpc(told, grpc_port, lasts, lasting=True) for _ in range(4)),
        _grpc(told, grpc_port, lasts, lasting=False),
    )
    return told


async def _rest(told: Counter[str], port: int, lasts: Lasts, lasting: bool) -> None:
    while lasts():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while lasts():
            writer.write(_request(told.total()))
            status = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
            length = next(one for one in status if one.lower().startswith(b"content-length"))
            await reader.readexactly(int(length.partition(b":")[2]))
            told[f"rest {'lasting' if lasting else 'new'} {int(status[0].split()[1])}"] += 1
            if not lasting:
                break
        writer.close()
        await writer.wait_closed()


def _request(number: int) -> bytes:
    body = b'{"inputs": []}'
    return (
        b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: [::1]\r\nAuthorization: Bearer wrong-%d\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (number, len(body), body)
    )


async def _grpc(told: Counter[str], port: int, lasts: Lasts, lasting: bool) -> None:
    way = "lasting" if lasting else "new"
    while lasts():
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options) as channel:
            call: Any = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            while lasts():
                metadata = [("authorization", f"Bearer wrong-{told.total()}")]
                try:
                    await call(b"", metadata=metadata, timeout=60)
                except grpc.aio.AioRpcError as error:
                    told[f"grpc {way} {error.code().name}"] += 1
                if not lasting:
                    break


if __name__ == "__main__":
    ports, seconds, least = map(int, sys.argv[1:3]), float(sys.argv[3]), int(sys.argv[4])
    counted = asyncio.run(asyncio.wait_for(_main(*ports, seconds, least), _LONGEST_S / 2))
    sys.stdout.write(json.dumps(counted))
