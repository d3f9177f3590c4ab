"""git over HTTP: advertisement, fetch and push, with real git behind a whole control process."""

import gzip
import hashlib
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from benchmarks.fuzz.http1 import check_answer, request
from benchmarks.fuzz.http1 import join as join_http
from benchmarks.fuzz.servers import InProcess, control_process, has_children, tell
from benchmarks.fuzz.target import Run, Target, Wrong

PATIENCE_S = 0.02
"""Until git runs, as a process of its own, or its answer is there without."""

CHECK_EVERY = 200
_CLOSE = {"Connection": "close"}
_PUSH = {"Content-Type": "application/x-git-receive-pack-request", **_CLOSE}
_FETCH = {"Content-Type": "application/x-git-upload-pack-request", **_CLOSE}
_RECEIVE, _UPLOAD = "/git/fuzz.git/git-receive-pack", "/git/fuzz.git/git-upload-pack"
_CAPABILITIES = b"\0 report-status side-band-64k push-options object-format=sha1 agent=git/2.40"
_ZERO = b"0" * 40
_WHO = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "a"), ("EMAIL", "a@b"), ("DATE", "1700000000 +0000"))
}


@contextmanager
def repository() -> Iterator[tuple[InProcess, Path]]:
    """A control process that hosts the repository `fuzz`."""
    with control_process() as (server, path):
        body = b'{"name":"fuzz"}'
        header = {"Content-Type": "application/json", **_CLOSE}
        made = server.run(tell(path, request("POST", "/api/v1/repositories", body, header), 60.0))
        if not made.startswith(b"HTTP/1.1 201"):
            raise Wrong(f"the repository cannot be created: {made[:300]!r}")
        yield server, path


@contextmanager
def opened() -> Iterator[Run]:
    with repository() as (server, path):
        count = 0

        def run(data: bytes) -> None:
            nonlocal count
            check_answer(server.run(tell(path, data, PATIENCE_S, has_children)))
            count += 1
            if count % CHECK_EVERY == 0:
                answer = server.run(tell(path, _advertise("git-upload-pack"), 60.0))
                if b"# service=git-upload-pack" not in answer:
                    raise Wrong(f"a valid request is answered {answer[:200]!r}")

        yield run


def _advertise(service: str, version: str = "") -> bytes:
    header: Mapping[str, str] = {"Git-Protocol": version, **_CLOSE} if version else _CLOSE
    return request("GET", f"/git/fuzz.git/info/refs?service={service}", b"", header)


def line(content: bytes) -> bytes:
    return b"%04x%s" % (len(content) + 4, content)


@cache
def packed() -> tuple[bytes, bytes]:
    """A commit with a model's config, as its id and a pack that git made."""
    with tempfile.TemporaryDirectory() as folder:

        def git(*words: str, stdin: bytes = b"") -> bytes:
            done = subprocess.run(
                ["git", *words], cwd=folder, input=stdin, capture_output=True, check=True,
                env={"PATH": "/usr/bin:/bin", "HOME": folder, **_WHO},
            )  # fmt: skip
            return done.stdout.strip()

        git("init", "-q", "-b", "main")
        model = Path(folder, "models", "m")
        (model / "1").mkdir(parents=True)
        (model / "config.pbtxt").write_text('backend: "identity"\n')
        (model / "1" / "a.txt").write_text("a\n")
        git("add", "-A")
        git("commit", "-q", "-m", "m")
        commit = git("rev-parse", "HEAD")
        return commit, git("pack-objects", "--revs", "--stdout", stdin=commit + b"\n")


def seeds() -> Sequence[bytes]:
    commit, pack = packed()
    create = line(_ZERO + b" " + commit + b" refs/heads/main" + _CAPABILITIES)
    other = line(_ZERO + b" " + commit + b" refs/heads/other")
    delete = line(commit + b" " + _ZERO + b" refs/heads/main" + _CAPABILITIES)
    options = line(b"note=a")
    want = line(b"want " + commit + b" ofs-delta side-band-64k\n") + b"0000" + line(b"done\n")
    listing = line(b"command=ls-refs\n") + b"0001" + line(b"peel\n") + b"0000"
    push = create + b"0000" + options + b"0000" + pack
    zipped = {**_FETCH, "Content-Encoding": "gzip"}
    return (
        _advertise("git-upload-pack", "version=2"),
        _advertise("git-receive-pack"),
        request("POST", _RECEIVE, push, _PUSH),
        request("POST", _RECEIVE, create + other + b"0000" + b"0000" + pack, _PUSH),
        request("POST", _RECEIVE, delete + b"0000" + b"0000", _PUSH),
        request("POST", _UPLOAD, want, _FETCH),
        request("POST", _UPLOAD, listing, {**_FETCH, "Git-Protocol": "version=2"}),
        request("POST", _UPLOAD, gzip.compress(want, mtime=0), zipped),
    )


def split(data: bytes) -> list[bytes]:
    """The lines of the head, then git's lines, then the pack."""
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        raise ValueError("no head")
    found = [one + b"\r\n" for one in head.split(b"\r\n")] + [b"\r\n"]
    at = 0
    while at + 4 <= len(body):
        try:
            length = max(int(body[at : at + 4], 16), 4)
        except ValueError:
            break
        found.append(body[at : at + length])
        at += length
    return [*found, body[at:]] if at < len(body) else found


def join(records: list[bytes]) -> bytes:
    """One request: Content-Length right, and the pack's checksum, where it is one."""
    if records and records[-1][:4] == b"PACK" and len(records[-1]) > 20:
        content = records[-1][:-20]
        records = [*records[:-1], content + hashlib.sha1(content).digest()]
    return join_http(records)


TARGET = Target(
    "git",
    ("control.git", "repository.git"),
    opened,
    seeds,
    split=split,
    join=join,
)
