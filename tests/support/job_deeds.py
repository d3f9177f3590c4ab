"""A job's process for tests that does one thing, named in its task file: `{"do": NAME}`."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path


def main() -> int:
    """Do it; messages go to the descriptor of the second argument."""
    task = json.loads(Path(sys.argv[1]).read_text())
    return int(_DEEDS[task["do"]](int(sys.argv[2]), task) or 0)


def say(descriptor: int, **message: object) -> None:
    os.write(descriptor, json.dumps(message).encode() + b"\n")


def finish(descriptor: int) -> None:
    say(descriptor, type="finished", report={"title": "Done", "verdict": "accepted"})


def work(descriptor: int, task: dict[str, str]) -> None:
    say(descriptor, type="progress", fraction=0.5, text="half of it")
    say(descriptor, type="point", curve="loss", step=1, value=0.25)
    say(descriptor, type="note", text="a note")
    print("printed")
    (Path(task["output"]) / "result").write_text("x")
    finish(descriptor)


def facts(descriptor: int, task: dict[str, str]) -> None:
    """What its surroundings are, as notes."""
    names = ("OMP_NUM_THREADS", "HOME", "AWS_SECRET_ACCESS_KEY", "PYTHONPATH")
    names += ("DEPLOYMENT_NOTE", "HTTPS_PROXY", "LC_ALL")
    found = {name: os.environ.get(name) for name in names}
    found |= {"nice": os.nice(0), "cwd": os.getcwd(), "modules": "sqlalchemy" in sys.modules}
    say(descriptor, type="note", text=json.dumps(found))
    finish(descriptor)


def probe(descriptor: int, task: dict[str, str]) -> None:
    """Try what the sandbox is to refuse; a note names what was possible."""
    tries = {
        "read": lambda: Path(task["hidden"]).read_text(),
        "write": lambda: Path(task["elsewhere"]).write_text("x"),
        "connect": lambda: __import__("socket").socket(),
        "session": os.setsid,
        "shared memory": lambda: Path("/dev/shm/job-probe").write_text("x"),
    }
    possible = []
    for name, one in tries.items():
        try:
            one()
        except OSError:
            continue
        possible.append(name)
    say(descriptor, type="note", text=json.dumps(possible))
    finish(descriptor)


def change_attributes(descriptor: int, task: dict[str, str]) -> None:
    """Of a hidden file and, through a descriptor that only reads, of one that is not; then copy a
    tree, which asks for the same of what was written."""
    os.chmod(task["hidden"], 0o666)
    os.utime(task["hidden"], (0, 0))
    opened = os.open(task["beside"], os.O_RDONLY)
    os.fchmod(opened, 0o666)
    os.utime(opened, (0, 0))
    os.setxattr(opened, "user.x", b"1")
    tree = Path(task["scratch"], "tree")
    tree.mkdir()
    (tree / "file").write_text("x")
    shutil.copytree(tree, Path(task["scratch"], "copy"))
    finish(descriptor)


def eat_memory(*_: object) -> None:
    held = []
    while True:
        held.append(bytearray(os.urandom(1 << 12) * (1 << 12)))


def ask_for_too_much(*_: object) -> None:
    bytearray(1 << 36)


def loop(*_: object) -> None:
    while True:
        pass


def flood(*_: object) -> None:
    while True:
        sys.stdout.write("flood " * 1000 + "\n")


def flood_without_lines(*_: object) -> None:
    while True:
        sys.stdout.write("x" * 65536)


def fork(*_: object) -> None:
    """Twice as many eleven times: a machine bears 2,048 processes where nobody ends them."""
    for _ in range(11):
        os.fork()
    time.sleep(60)


def leave_children(descriptor: int, task: dict[str, str]) -> None:
    """One child of its own, and one whose parent has ended."""
    program = f"{sys.executable} -c 'import time; time.sleep(600)' {task['mark']}"
    subprocess.Popen(program, shell=True)
    subprocess.run(f"({program} &) ; exit 0", shell=True, check=True)
    finish(descriptor)


def crash(*_: object) -> None:
    ctypes.string_at(0)


def crash_at_the_end(descriptor: int, task: dict[str, str]) -> None:
    finish(descriptor)
    crash()


def stay_at_the_end(descriptor: int, task: dict[str, str]) -> None:
    finish(descriptor)
    time.sleep(600)


def ignore_signals(descriptor: int, task: dict[str, str]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say(descriptor, type="progress", fraction=0.1, text="deaf")
    time.sleep(600)


def sleep(descriptor: int, task: dict[str, str]) -> None:
    Path(task["scratch"], "pid").write_text(str(os.getpid()))
    say(descriptor, type="progress", fraction=0.1, text="asleep")
    time.sleep(600)


def nest(descriptor: int, task: dict[str, str]) -> None:
    """Folders in folders, deeper than a stack of Python's."""
    os.chdir(task[task["where"]])
    for _ in range(1200):
        os.mkdir("folder")
        os.chdir("folder")
    finish(descriptor)


def many_entries(descriptor: int, task: dict[str, str]) -> None:
    for number in range(200):
        Path(task["scratch"], str(number)).touch()
    finish(descriptor)


def hide_mapped(descriptor: int, task: dict[str, str]) -> None:
    """Files that are mapped, and neither open nor in a folder any more."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    path = Path(task["scratch"], "hidden")
    for _ in range(int(task["mib"]) // 50):
        if task["where"] == "memory":
            file = os.memfd_create("hidden")
        else:
            file = os.open(path, os.O_RDWR | os.O_CREAT)
            path.unlink()
        for _ in range(50):
            os.write(file, b"x" * (1 << 20))
        libc.mmap(None, 50 << 20, 1, 1, file, 0)
        os.close(file)
    time.sleep(60)


def leave_a_child(descriptor: int, task: dict[str, str]) -> None:
    """Whose parent has ended; say whether it lives once `go` is there."""
    _leave(descriptor, task, "")


def leave_a_stray(descriptor: int, task: dict[str, str]) -> None:
    """The same, in a session of its own and without an environment."""
    _leave(descriptor, task, "env -i setsid ")


def _leave(descriptor: int, task: dict[str, str], before: str) -> None:
    program = f"{before}{sys.executable} -c 'import time; time.sleep(600)' {task['mark']}"
    told = subprocess.run(f"({program} >/dev/null & echo $!)", shell=True, stdout=subprocess.PIPE)
    say(descriptor, type="progress", fraction=0.1, text="left")
    until = time.monotonic() + 60
    while not Path(task["scratch"], "go").exists() and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(int(told.stdout), 0)
    finish(descriptor)


def escape(descriptor: int, task: dict[str, str]) -> None:
    """Take memory in a session of one's own, whose parent has ended, without an environment."""
    program = "import os,time; held = [os.urandom(1 << 20) for _ in range(400)]; time.sleep(600)"
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve(sys.executable, [sys.executable, "-c", program, task["mark"]], {})
        os._exit(0)
    os.wait()
    time.sleep(60)


def half_line(descriptor: int, task: dict[str, str]) -> int:
    os.write(descriptor, b'{"type": "progress", "frac')
    return 3


def no_message(*_: object) -> None:
    print("nothing to say")


def bad_message(descriptor: int, task: dict[str, str]) -> None:
    os.write(descriptor, b'{"type": "progress", "fraction": "x"}\n')
    time.sleep(600)


def long_message(descriptor: int, task: dict[str, str]) -> None:
    while True:
        os.write(descriptor, b"x" * 65536)


def many_messages(descriptor: int, task: dict[str, str]) -> None:
    for step in range(20_000):
        say(descriptor, type="point", curve="loss", step=step, value=1.0)
    finish(descriptor)


def fill_disk(descriptor: int, task: dict[str, str]) -> None:
    for number in range(10_000):
        Path(task["output"], f"{number}").write_bytes(b"x" * (1 << 20))
        time.sleep(0.001)
    time.sleep(600)


def fill_unlinked(descriptor: int, task: dict[str, str]) -> None:
    held: list[int] = []
    for number in range(10_000):
        path = Path(task["scratch"], f"{number}")
        held.append(os.open(path, os.O_CREAT | os.O_WRONLY))
        os.write(held[-1], b"x" * (1 << 20))
        path.unlink()
        time.sleep(0.001)
    time.sleep(600)


def one_large_file(descriptor: int, task: dict[str, str]) -> None:
    with open(Path(task["output"], "large"), "wb") as file:
        while True:
            file.write(b"x" * (1 << 20))


def refuse(descriptor: int, task: dict[str, str]) -> None:
    say(descriptor, type="refused", reason="no such layer")


def spin_threads(descriptor: int, task: dict[str, str]) -> None:
    for _ in range(2):
        threading.Thread(target=loop, daemon=True).start()
    loop()


def start_threads(descriptor: int, task: dict[str, str]) -> None:
    threading.stack_size(1 << 16)
    for _ in range(200):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    time.sleep(60)


_DEEDS = {name: value for name, value in list(globals().items()) if callable(value)}
