"""Which blocks the C allocator maps by themselves, after it has freed a larger one."""

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes
from server.process import allocator

getattr(allocator, {name!r})()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
fields = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in fields]

libc.mallinfo2.restype = Info
libc.free(libc.malloc(1 << 20))
before = libc.mallinfo2().hblks
libc.malloc({kib} << 10)
print(libc.mallinfo2().hblks - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="about glibc")
@pytest.mark.parametrize("kib", [512, 16 << 10])
@pytest.mark.parametrize(("name", "mapped"), [("return_buffers", 1), ("keep_buffers", 0)])
def test_a_large_block_is_mapped_by_itself_or_kept(name: str, mapped: int, kib: int) -> None:
    run = [sys.executable, "-c", PROGRAM.format(name=name, kib=kib)]
    assert int(subprocess.run(run, capture_output=True, check=True, timeout=60).stdout) == mapped
