"""Which blocks the C allocator maps by themselves, after it has freed a larger one."""

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes
from server.process import allocator

allocator.{call}
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
@pytest.mark.parametrize(("call", "mapped"), [("return_buffers()", 1), ("keep_buffers(2)", 0)])
def test_a_large_block_is_mapped_by_itself_or_kept(call: str, mapped: int, kib: int) -> None:
    run = [sys.executable, "-c", PROGRAM.format(call=call, kib=kib)]
    assert int(subprocess.run(run, capture_output=True, check=True, timeout=60).stdout) == mapped


ARENAS = """
import ctypes
import sys
import threading
from server.process import allocator

allocator.{call}
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.fflush.argtypes = [ctypes.c_void_p]
all_have = threading.Barrier(9)

def allocate():
    bytearray(1 << 20)
    all_have.wait()

for _ in range(8):
    threading.Thread(target=allocate).start()
all_have.wait()
stdout = libc.fdopen(1, b"w")
libc.malloc_info(0, stdout)
libc.fflush(stdout)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="about glibc")
@pytest.mark.parametrize(("call", "most"), [("return_buffers()", 1), ("keep_buffers(2)", 2)])
def test_threads_share_so_many_arenas(call: str, most: int) -> None:
    run = [sys.executable, "-c", ARENAS.format(call=call)]
    said = subprocess.run(run, capture_output=True, check=True, timeout=60, text=True).stdout
    assert said.count("<heap nr=") == most
