"""The worker sandbox, tried out from inside by models of real servers."""

import json
import os
import pty
import re
import socket
import sqlite3
from functools import partial
from pathlib import Path
from shutil import which

import pytest

from repository.sandbox.enter import kernel
from support.hosting import alive
from support.llm_served import GREEDY, generate, parameters, write_language_model
from support.sandbox import answer, write_prober
from support.server import Server, running
from support.web_server import web_server

pytestmark = pytest.mark.skipif(
    kernel().landlock_abi < 6 or not kernel().seccomp, reason="needs Landlock (ABI 6) and seccomp"
)

_HONEST = {
    "numpy": "import numpy; return numpy.ones(3).sum()",
    "torch_": "import torch; return torch.ones(3).sum().item()",
    "fork": "import multiprocessing as m; return m.get_context('fork').Pool(1).map(abs, [-1])",
    "spawn": """
        import multiprocessing as m
        with m.get_context("spawn").Pool(1) as pool:
            return pool.map(abs, [-1])
    """,
    "manager": """
        import multiprocessing as m
        with m.get_context("fork").Manager() as manager:
            shared = manager.list([1, 2]); shared.append(3); return list(shared)
    """,
    "program": "import subprocess as s; return s.check_output(['sh', '-c', 'echo hello'])",
    "beside": """
        import pathlib
        return (pathlib.Path(__file__).parent / "words.txt").read_text()
    """,
    "shared": """
        from multiprocessing.shared_memory import SharedMemory
        memory = SharedMemory(create=True, size=8); memory.buf[0] = 7
        try:
            return memory.buf[0]
        finally:
            memory.close(); memory.unlink()
    """,
    "temporary": """
        import tempfile, shutil, os
        folder = tempfile.mkdtemp(); path = os.path.join(folder, "a"); open(path, "w").write("x")
        shutil.copy2(path, path + "b"); os.rename(path, os.path.join(folder, "c"))
        return sorted(os.listdir(folder))
    """,
    "streams": "open('/dev/null', 'w').write('x'); return len(open('/dev/urandom', 'rb').read(4))",
    "threads": "return int(open('/proc/self/status').read().split('Threads:')[1].split()[0]) > 0",
    "machine": "return 'processor' in open('/proc/cpuinfo').read()",
    "certificates": "import ssl; return len(ssl.create_default_context().get_ca_certs()) >= 0",
}


def test_what_honest_models_do_works_by_default(tmp_path: Path) -> None:
    with web_server() as url:
        fetch = f"import urllib.request as r; return r.urlopen({url!r}).read()"
        folder = write_prober(tmp_path, "honest", fetch=fetch, **_HONEST)
        (folder / "1" / "words.txt").write_text("to the wise")
        with running(tmp_path) as server:
            said = {probe: answer(server, "honest", probe) for probe in (*_HONEST, "fetch")}
            log = server.log()
    assert {probe: text for probe, text in said.items() if not text.startswith("ok")} == {}
    assert said["beside"] == "ok: to the wise"
    assert said["fetch"] == "ok: b'hello'"
    assert "the worker sandbox (default) confines files, TCP" in log


@pytest.mark.slow
@pytest.mark.skipif(which("g++") is None, reason="needs a compiler")
def test_torch_compile_works_by_default(tmp_path: Path) -> None:
    code = """
        import torch, torch._inductor.config as config
        config.cpp_cache_precompile_headers = False  # compiling them takes a minute
        return torch.compile(lambda x: x * 2 + 1)(torch.ones(8)).sum().item()
    """
    write_prober(tmp_path, "compiled", twice=code)
    # As a process has it that has compiled before and starts the server then.
    elsewhere = {"TORCHINDUCTOR_CACHE_DIR": "/tmp/torchinductor_root"}
    with running(tmp_path, environment=elsewhere) as server:
        assert answer(server, "compiled", "twice") == "ok: 24.0"


_CALLS = {
    "trace": "101, 16, parent, 0, 0",
    "namespaces": "272, 0x10000000",
    "ring": "425, 4, ctypes.create_string_buffer(256)",
    "memory_that_stays": "29, 0, 4096, 0o1600",
    "niceness": "141, 0, parent, 19",
    "niceness_of_the_user": "141, 2, 0, 19",
    "idle_priority": "144, parent, 5, ctypes.byref(ctypes.c_int(0))",
    "disk_priority": "251, 1, parent, 3 << 13",
}
"""System calls of x86-64 by number, with their arguments; each must be refused."""
_CALL_IT = """
import ctypes, os
libc, parent = ctypes.CDLL(None, use_errno=True), os.getppid()
if libc.syscall({arguments}) < 0:
    raise OSError(ctypes.get_errno(), "syscall")
"""

_CALLED = {name: _CALL_IT.format(arguments=arguments) for name, arguments in _CALLS.items()}


_OF_THREADS = ("oom_score_adj", "mem", "uid_map", "comm")
_OF_THREAD = "import os; return open(f'/proc/self/task/{{os.getpid()}}/{name}', 'r+b', 0).fileno()"
"""Files of a thread, none of which may be opened to be written."""


def _hostile(state: Path, other: Path, home: Path, terminal: str) -> dict[str, str]:
    """Everything here must be refused."""
    return {
        "database": f"return open({str(state / 'modelyard.db')!r}, 'rb').read(16)",
        "tokens": f"""
            import sqlite3
            return sqlite3.connect({str(state / "modelyard.db")!r}).execute(
                "select * from token").fetchall()
        """,
        "listing": f"import os; return os.listdir({str(state)!r})",
        "desired": f"return open({str(state / 'desired.msgpack')!r}, 'rb').read()",
        "other": f"return open({str(other)!r}).read()",
        "others": f"import os; return os.listdir({str(other.parents[2])!r})",
        "around": f"""
            import os
            os.symlink({str(state)!r}, os.environ["TMPDIR"] + "/link")
            return os.listdir(os.environ["TMPDIR"] + "/link")
        """,
        "home": f"return open({str(home / 'secret.txt')!r}).read()",
        "environment": "import os; return os.environ['DB_PASSWORD']",
        "environ": "return 'DB_PASSWORD' in open('/proc/self/environ').read() or 1 / 0",
        "parent": "import os; return open(f'/proc/{os.getppid()}/environ', 'rb').read()",
        "parents_name": "import os; return open(f'/proc/{os.getppid()}/comm', 'r+').write('x')",
        "own_limits": "return open('/proc/self/oom_score_adj', 'r+').write('1')",
        **{f"own_{name}_by_thread": _OF_THREAD.format(name=name) for name in _OF_THREADS},
        "core_pattern": "return open('/proc/sys/kernel/core_pattern', 'r+').fileno()",
        "memory": "import os; return open(f'/proc/{os.getppid()}/mem', 'rb').read(1)",
        "root": "import os; return os.listdir(f'/proc/{os.getppid()}/root')",
        "descriptors": """
            import os
            return open(f"/proc/{os.getppid()}/fd/2", "rb")
        """,
        "kill": "import os; return os.kill(os.getppid(), 0)",
        "child": f"""
            import subprocess
            return subprocess.check_output(["cat", {str(state / "modelyard.db")!r}])
        """,
        "write": "return open('/var/tmp/modelyard-escaped', 'w')",
        "beside_itself": "return open(__file__ + '.new', 'w')",
        "disk": """
            import os
            for name in os.listdir("/sys/class/block"):
                open("/dev/" + name, "rb")
            raise PermissionError
        """,
        "cores": """
            import os
            cores = os.sched_getaffinity(os.getppid())
            os.sched_setaffinity(os.getppid(), {min(cores)})
            if os.sched_getaffinity(os.getppid()) == cores:
                raise PermissionError
        """,
        "mode": f"""
            import os
            os.chmod({str(state)!r}, 0o777)
            if os.stat({str(state)!r}).st_mode & 0o077 == 0:
                raise PermissionError
        """,
        "keystrokes": f"""
            import os
            return os.read(os.open({terminal!r}, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK), 9)
        """,
        "limit": "import resource as r; r.setrlimit(r.RLIMIT_MSGQUEUE, (1, 1))",
        "abstract": """
            import socket
            socket.socket(socket.AF_UNIX).connect("\\0modelyard-test-sandbox")
        """,
        **(_CALLED if os.uname().machine == "x86_64" else {}),
    }


_ORPHAN = """
    import os, time
    told, tell = os.pipe()
    if not os.fork():
        os.setsid()
        if not os.fork():
            os.write(tell, str(os.getpid()).encode())
            os.closerange(0, 1024)
            time.sleep(600)
        os._exit(0)
    os.wait()
    return os.read(told, 20).decode()
"""


def test_a_hostile_model_reaches_nothing_of_the_servers(tmp_path: Path) -> None:
    repository, state, home = tmp_path / "models", tmp_path / "state", tmp_path / "home"
    home.mkdir()
    (home / "secret.txt").write_text("hidden")
    state.mkdir()
    with sqlite3.connect(state / "modelyard.db") as database:
        database.execute("create table token (digest text)")
    (state / "desired.msgpack").write_bytes(b"x")
    other = write_prober(repository, "victim", ask="return 1") / "1" / "model.py"
    keyboard, screen = pty.openpty()
    os.write(keyboard, b"password\n")
    probes = _hostile(state, other, home, os.ttyname(screen))
    write_prober(repository, "hostile", orphan=_ORPHAN, **probes)
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind("\0modelyard-test-sandbox")
    abstract.listen()
    environment = {"DB_PASSWORD": "hunter2", "HOME": str(home), "CUDA_VISIBLE_DEVICES": ""}
    with (
        abstract,
        running(repository, state_dir=state, environment=environment) as server,
    ):
        said = {probe: answer(server, "hostile", probe) for probe in probes}
        orphan = int(answer(server, "hostile", "orphan").removeprefix("ok: "))
        assert alive(orphan)
    assert not alive(orphan)
    os.close(keyboard)
    os.close(screen)
    assert {probe: text for probe, text in said.items() if text.startswith("ok")} == {}


def test_strict_starts_no_programs_and_reads_its_own_version_only(tmp_path: Path) -> None:
    probes = {
        "compute": "import torch; return torch.ones(2).sum().item()",
        "beside": "import os; return sorted(os.listdir(os.path.dirname(__file__)))",
        "pipes": "import multiprocessing as m; return m.get_context('fork').Pool(1).map(abs, [-1])",
        "program": "import subprocess; return subprocess.check_output(['true'])",
        "config": "return open(__file__.replace('1/model.py', 'config.pbtxt')).read()",
        "elsewhere": f"return open({str(tmp_path / 'data.txt')!r}).read()",
        "times": f"import os; return os.utime({str(tmp_path / 'data.txt')!r})",
        "mode": f"import os; return os.chmod({str(tmp_path / 'data.txt')!r}, 0o666)",
        "unix": "import socket; return socket.socket(socket.AF_UNIX)",
        "internet": "import socket; return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    }
    (tmp_path / "data.txt").write_text("x")
    write_prober(tmp_path / "models", "strict", **probes)
    with running(tmp_path / "models", worker_sandbox="strict") as server:
        said = {probe: answer(server, "strict", probe) for probe in probes}
    allowed = {probe for probe, text in said.items() if text.startswith("ok")}
    assert allowed == {"compute", "beside", "pipes"}, said


@pytest.mark.slow
def test_off_leaves_a_model_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("x")
    path = str(tmp_path / "data.txt")
    write_prober(tmp_path / "models", "free", write=f"return open({path!r}, 'a').write('y')")
    with running(tmp_path / "models", worker_sandbox="off") as server:
        assert answer(server, "free", "write") == "ok: 1"
        assert "the worker sandbox is off" in server.log()


@pytest.mark.slow
def test_the_operator_allows_paths_and_variables(tmp_path: Path) -> None:
    cache, home, out = tmp_path / "home" / "cache", tmp_path / "home", tmp_path / "out"
    cache.mkdir(parents=True)
    out.mkdir()
    (cache / "x").write_text("cached")
    (home / "y").write_text("private")
    probes = {
        "cached": f"return open({str(cache / 'x')!r}).read()",
        "private": f"return open({str(home / 'y')!r}).read()",
        "result": f"return open({str(out / 'z')!r}, 'w').write('z')",
        "variable": "import os; return os.environ['WEATHER_API_KEY']",
    }
    write_prober(tmp_path / "models", "m", **probes)
    with running(
        tmp_path / "models",
        environment={"HOME": str(home), "WEATHER_API_KEY": "sunny"},
        worker_sandbox_allow_read=cache,
        worker_sandbox_allow_write=out,
        worker_sandbox_allow_env="WEATHER_API_KEY",
    ) as server:
        said = {probe: answer(server, "m", probe) for probe in probes}
    assert said["cached"] == "ok: cached"
    assert said["private"].startswith("refused")
    assert said["result"] == "ok: 1"
    assert said["variable"] == "ok: sunny"


def is_ready(server: Server, model: str) -> bool:
    return server.get(f"/v2/models/{model}/ready")[0] == 200


def test_a_worker_that_takes_too_much_memory_is_killed_and_the_others_go_on(tmp_path: Path) -> None:
    probes = {
        "small": "return 1",
        "huge": "block = b'x' * (600 << 20); import time; time.sleep(30); return len(block)",
    }
    own = 'parameters { key: "memory_limit" value { string_value: "300MiB" } }'
    wrong = own.replace("300MiB", "a lot")
    write_prober(tmp_path, "greedy", **probes)
    write_prober(tmp_path, "modest", own, **probes)
    write_prober(tmp_path, "odd", wrong, **probes)
    with running(tmp_path, worker_memory_limit=400 << 20, strict_readiness=False) as server:
        for model, limit in (
            ("greedy", b"--worker-memory-limit=419430400"),
            ("modest", b"parameter memory_limit=314572800"),
        ):
            assert answer(server, model, "small") == "ok: 1"
            inputs = [{"name": "IN", "datatype": "BYTES", "shape": [1], "data": ["huge"]}]
            status, body = server.post(f"/v2/models/{model}/infer", {"inputs": inputs})
            assert status == 500, body
            assert re.search(
                rb"took \d{9} bytes of memory, more than " + limit + b" bytes, and was killed", body
            ), body
            server.wait_for(partial(is_ready, server, model), "the worker to be started again")
            assert answer(server, model, "small") == "ok: 1"
        status, body = server.post("/v2/repository/index", {})
        reason = next(row["reason"] for row in json.loads(body) if row["name"] == "odd")
        assert "parameter memory_limit is 'a lot'; it must be a number of bytes" in reason


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["default", "strict"])
def test_a_language_model_works_in_each_profile_with_its_compiled_kernels(
    mode: str, tmp_path: Path
) -> None:
    write_language_model(tmp_path, "tiny", parameters(threads=1))
    with running(tmp_path, worker_sandbox=mode) as server:
        status, said = generate(server, "tiny", "Once upon a time", max_tokens=4, **GREEDY)
        assert status == 200, said
        log = server.log()
    if which("g++") is not None and "this CPU lacks" not in log:
        assert "plain torch" not in log
