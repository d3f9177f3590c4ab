"""What requests have left free goes back to the system when no more of them come."""

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio
import threading

from control.series.points import SeriesPoint, SeriesSubject, SeriesWindow, SubjectPoint
from server.process.allocator import keep_buffers
from server.process.idle_trim import IdleTrim

THREADS = 4
keep_buffers(1)
filled, freed = threading.Barrier(THREADS), threading.Barrier(THREADS + 1)
ended = threading.Event()

def window(requests):
    point = SeriesPoint(succeeded=requests, memory_bytes=1)
    return SeriesWindow("", "", 0, (SubjectPoint(SeriesSubject("version", "m", 1), point),))

def resident_mib():
    return int(open("/proc/self/statm").read().split()[1]) >> 8

def answer_large_requests():
    blocks = [bytearray(b"x") * (16 << 20) for _ in range(2)]
    lives_on = bytearray(b"x") * (100 << 10)
    filled.wait()
    del blocks
    freed.wait()
    ended.wait()

async def main():
    closed = []

    async def note(window):
        closed.append(window)

    trim = IdleTrim(note)
    before = resident_mib()
    threads = [threading.Thread(target=answer_large_requests) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    freed.wait()
    for requests in (8, 0, 0):
        await trim.close(window(requests))
        print(resident_mib() - before, end=" ")
    ended.set()
    print(len(closed))

asyncio.run(main())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="about glibc")
def test_the_first_window_without_requests_returns_what_they_have_left_free() -> None:
    run = [sys.executable, "-c", PROGRAM]
    said = subprocess.run(run, capture_output=True, check=True, timeout=60).stdout.split()
    busy, idle, _, closed = map(int, said)
    assert busy > 64, "free blocks before one that lives on are kept"
    assert idle < 8
    assert closed == 3
