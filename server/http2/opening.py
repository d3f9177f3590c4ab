"""Open compressed messages on threads that do nothing else, so that the loop goes on."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from server.http2.messages import Assembler, Message

_pool = ThreadPoolExecutor(2, "grpc-open")


def opened(assembler: Assembler, message: Message) -> "asyncio.Future[bytes]":
    """The message without its compression, when a thread has opened it; fails with CallFailed."""
    return asyncio.get_running_loop().run_in_executor(_pool, assembler.plain, message)
